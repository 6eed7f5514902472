"""Log messages on the console: one line per message without absl's prefix, above progress bars."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator

from absl import logging as absl_logging
from tqdm import tqdm


class ConsoleHandler(logging.Handler):
    """Writes messages to standard error, above progress bars."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a message."""
        try:
            tqdm.write(self.format(record), file=sys.stderr)
        except Exception:
            self.handleError(record)


class ConsoleFormatter(logging.Formatter):
    """Formats messages: the local time, the level unless it is INFO, and the text."""

    def __init__(self) -> None:
        super().__init__("%(message)s", "%Y-%m-%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """Returns the formatted message."""
        text = super().format(record)
        if record.levelno != logging.INFO:
            text = f"{record.levelname}: {text}"
        return f"{self.formatTime(record, self.datefmt)} {text}"


def install() -> None:
    """Replaces absl's log handler with `ConsoleHandler`."""
    handler = ConsoleHandler()
    handler.setFormatter(ConsoleFormatter())
    root = logging.getLogger()
    root.removeHandler(absl_logging.get_absl_handler())
    root.addHandler(handler)


@contextlib.contextmanager
def ending_with_reader() -> Iterator[None]:
    """Ends a block of prints quietly if the reader closes standard output, as `head` does."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        with open(os.devnull, "wb") as nothing:  # what Python flushes when it exits
            os.dup2(nothing.fileno(), sys.stdout.fileno())
