"""Graceful stop: the first SIGTERM or SIGINT saves and ends a run, the second ends it at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from absl import logging

EXIT_STATUS = 75  # EX_TEMPFAIL of sysexits.h: the same command resumes the run
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class InterruptedRunError(Exception):
    """Training was asked to stop, and has saved what it had."""


class StopRequest:
    """Handles signals in a `with` block: the first one only sets `is_made`.

    The second one has its usual effect; so have all of them outside the main thread, where Python
    allows no handlers.

    Attributes:
        is_made: whether a signal asked to stop.
    """

    def __init__(self) -> None:
        self.is_made = False
        self._usual: dict[int, object] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._usual = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._usual.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._usual = {}

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.is_made:
            self._restore()
            os.kill(os.getpid(), number)
            return
        self.is_made = True
        logging.warning(
            "%s: saving after this step, then stopping. Once more to stop at once, without saving.",
            signal.Signals(number).name,
        )
