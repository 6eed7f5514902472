"""Work that goes on in a thread while training continues, such as writing a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from absl import logging


class BackgroundWork:
    """Runs one function at a time in a thread; a context manager that waits for it at the end.

    An error of the function is raised by the next call of a method, or at the end of the block. If
    the block itself fails, that error is raised, and the one of the function is logged.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._running: Future[None] | None = None

    def __enter__(self) -> BackgroundWork:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.wait()
        else:
            self.settle()

    def start(self, function: Callable[[], None]) -> None:
        """Runs a function in the thread, after waiting for the one before."""
        self.wait()
        self._running = self._executor.submit(function)

    def check(self) -> None:
        """Raises the error of a function that has failed; does not wait for it."""
        if self._running is not None and self._running.done():
            self.wait()

    def wait(self) -> None:
        """Waits for the function, and raises its error if it failed."""
        running = self._running
        self._running = None
        if running is not None:
            running.result()

    def settle(self) -> None:
        """Waits for the function, and logs its error if it failed."""
        try:
            self.wait()
        except Exception as error:  # whatever it is, another error ends the run
            logging.error("%s", error)
