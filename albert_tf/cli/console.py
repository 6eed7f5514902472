"""Log messages on the console: one line per message without absl's prefix, above progress bars."""

from __future__ import annotations

import logging
import sys

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
    """Formats messages; those of other levels than INFO start with the level.

    Args:
        has_time: whether to start with the local time, which is useful in log files.
    """

    def __init__(self, has_time: bool) -> None:
        super().__init__("%(message)s", "%Y-%m-%d %H:%M:%S")
        self._has_time = has_time

    def format(self, record: logging.LogRecord) -> str:
        """Returns the formatted message."""
        text = super().format(record)
        if record.levelno != logging.INFO:
            text = f"{record.levelname}: {text}"
        if self._has_time:
            text = f"{self.formatTime(record, self.datefmt)} {text}"
        return text


def install() -> None:
    """Replaces absl's log handler with `ConsoleHandler`."""
    handler = ConsoleHandler()
    handler.setFormatter(ConsoleFormatter(has_time=not sys.stderr.isatty()))
    root = logging.getLogger()
    root.removeHandler(absl_logging.get_absl_handler())
    root.addHandler(handler)
