"""The log on the console: clean lines, marked warnings, whole progress bars."""

from __future__ import annotations

import io
import logging
import re
import sys

from tqdm import tqdm

from albert_tf.cli.console import ConsoleFormatter, ConsoleHandler


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self):
        return True


def replace_stderr(monkeypatch):
    """Not a fixture: between setup and test pytest sets standard error anew."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def handler():
    console = ConsoleHandler()
    console.setFormatter(ConsoleFormatter())
    return console


def record(level, text, *args):
    return logging.LogRecord("absl", level, "/a/file.py", 66, text, args, None)


def test_messages_have_the_time_and_warnings_and_errors_are_marked(monkeypatch):
    stderr = replace_stderr(monkeypatch)
    console = handler()
    for level in (logging.INFO, logging.WARNING, logging.ERROR):
        console.handle(record(level, "%d of %s", 3, "many"))
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    lines = stderr.getvalue().splitlines()
    for line, level in zip(lines, ("", "WARNING: ", "ERROR: "), strict=True):
        assert re.fullmatch(f"{time} {level}3 of many", line)


def test_a_progress_bar_and_messages_do_not_share_a_line(monkeypatch):
    stderr = replace_stderr(monkeypatch)
    with tqdm(total=4, file=stderr, desc="training", ncols=60, mininterval=0) as bar:
        bar.update()
        handler().handle(record(logging.INFO, "step 1/4"))
        bar.update()
    lines = [line.split("\r")[-1] for line in stderr.getvalue().split("\n")]
    assert lines[0].endswith(" step 1/4")  # after the bar is cleared
    assert lines[1].startswith("training:  50%")
