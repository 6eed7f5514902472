"""Graceful stop: a first SIGTERM, SIGINT or SIGHUP saves and stops a run, a second kills it.

SIGHUP, which means that the terminal was closed, never counts as a second signal, because both the
kernel and the shell send it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeAlias

from absl import logging

EXIT_STATUS = 75  # EX_TEMPFAIL of sysexits.h: the same command resumes the run
KEYBOARD_STATUS = 128 + signal.SIGINT  # the status that shells report for Ctrl-C
_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # Windows has none
SIGNALS = (signal.SIGTERM, signal.SIGINT, *([_HANGUP] if _HANGUP else []))

Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None  # of a signal


class InterruptedRunError(Exception):
    """Training was asked to stop, after saving its state, or lost a worker."""


class StopRequest:
    """Context manager that handles signals: the first one only sets `is_made`.

    A second signal other than SIGHUP has its usual effect. Outside the main thread, where Python
    does not allow signal handlers, all signals do. If SIGHUP is ignored, as with nohup, it remains
    ignored.

    Attributes:
        is_made: whether a signal has requested a stop.
    """

    def __init__(self) -> None:
        self.is_made = False
        self._not_logged: int | None = None
        self._usual: dict[int, Handler] = {}

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
            signal.signal(number, handler)
        self._usual = {}

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.is_made and number == _HANGUP:
            return
        if self.is_made:
            self._restore()
            os.kill(os.getpid(), number)
            return
        self.is_made = True
        self._not_logged = number

    def log(self) -> None:
        """Logs a new request. The handler cannot: it may have interrupted a write to the log."""
        if self._not_logged is not None:
            logging.warning(
                "%s: saving after this step, then stopping. Send it again to stop now, without "
                "saving.",
                signal.Signals(self._not_logged).name,
            )
            self._not_logged = None


@contextlib.contextmanager
def unchanged_handlers() -> Iterator[None]:
    """Context manager that restores the signal handlers.

    TensorFlow replaces the handler of SIGTERM when it connects several workers, and ignores it.
    """
    usual = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in usual.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def ending_by_exception() -> Iterator[None]:
    """Context manager in which SIGTERM and SIGHUP raise SystemExit, as Ctrl-C raises an exception.

    By default they kill the process, which leaves its temporary files behind. The exit status is
    the one that shells report for the signal. Outside the main thread, nothing is changed.
    """

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with unchanged_handlers():
        if threading.current_thread() is threading.main_thread():
            for number in set(SIGNALS) - {signal.SIGINT}:
                if signal.getsignal(number) == signal.SIG_DFL:
                    signal.signal(number, end)
        yield
