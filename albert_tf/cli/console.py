"""Log messages on the console: one line per message without absl's prefix, above progress bars."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator

from absl import logging as absl_logging
from tqdm import tqdm

_TIME = "%Y-%m-%d %H:%M:%S"


class ConsoleHandler(logging.Handler):
    """Writes messages to standard error: the local time, the level unless it is INFO, the text."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a message."""
        level = "" if record.levelno == logging.INFO else f"{record.levelname}: "
        try:
            text = self.format(record)
            tqdm.write(f"{time.strftime(_TIME)} {level}{text}", file=sys.stderr)
        except Exception:
            self.handleError(record)


def install() -> None:
    """Replaces absl's log handler with `ConsoleHandler`."""
    root = logging.getLogger()
    root.removeHandler(absl_logging.get_absl_handler())
    root.addHandler(ConsoleHandler())


@contextlib.contextmanager
def ending_with_reader() -> Iterator[None]:
    """Ends a block of prints quietly if the reader closes standard output, as `head` does."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        with open(os.devnull, "wb") as nothing:  # what Python flushes when it exits
            os.dup2(nothing.fileno(), sys.stdout.fileno())
