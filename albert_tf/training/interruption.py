"""Graceful stop: a first SIGTERM, SIGINT or SIGHUP saves and ends a run, a second ends it at once.

SIGHUP, which says that the terminal was closed, never counts as the second: the kernel and the
shell send one each.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from absl import logging

EXIT_STATUS = 75  # EX_TEMPFAIL of sysexits.h: the same command resumes the run
KEYBOARD_STATUS = 128 + signal.SIGINT  # as shells report a program that Ctrl-C ended
_HANGUP = getattr(signal, "SIGHUP", None)  # Windows has none
SIGNALS = (signal.SIGTERM, signal.SIGINT, *((_HANGUP,) if _HANGUP is not None else ()))
_REPEAT_SECONDS = 0.05


class InterruptedRunError(Exception):
    """Training was asked to stop, and has saved what it had."""


class StopRequest:
    """Handles signals in a `with` block: the first one only sets `is_made`.

    The second one has its usual effect, unless it is SIGHUP; so have all of them outside the main
    thread, where Python allows no handlers. SIGHUP stays ignored where nohup has it ignored.

    Attributes:
        is_made: whether a signal asked to stop.
    """

    def __init__(self) -> None:
        self.is_made = False
        self._usual: dict[int, object] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._usual = {
                number: signal.signal(number, self._ask)
                for number in SIGNALS
                if number != _HANGUP or signal.getsignal(number) != signal.SIG_IGN
            }
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._usual.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._usual = {}

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.is_made and number == _HANGUP:
            return
        if self.is_made:
            self._restore()
            os.kill(os.getpid(), number)
            return
        self.is_made = True
        logging.warning(
            "%s: saving after this step, then stopping. Once more to stop at once, without saving.",
            signal.Signals(number).name,
        )


@contextlib.contextmanager
def unchanged_handlers() -> Iterator[None]:
    """Sets the handlers of signals again that the `with` block has changed.

    TensorFlow takes SIGTERM for itself when it connects several workers, and ignores it.
    """
    usual = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    if threading.current_thread() is threading.main_thread():
        for number, handler in usual.items():
            signal.signal(number, handler)


def repeat_lost_interrupts() -> None:
    """Sends SIGINT again where Python could not raise KeyboardInterrupt, until it can.

    In a destructor, TensorFlow has many, or in a callback of the garbage collector an exception is
    reported as ignored, and the program would run on.
    """
    report = sys.unraisablehook

    def repeat(unraisable: sys.UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            report(unraisable)
            return
        # Not at once: it would be raised in here, and be lost as well.
        timer = threading.Timer(_REPEAT_SECONDS, os.kill, (os.getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()

    sys.unraisablehook = repeat
