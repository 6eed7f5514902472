"""Runs a program from the command line: parses its settings, and prints its result or an error.

TensorFlow is not imported here, so that `--help` is fast.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import logging as python_logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from absl import app, logging
from absl import flags as absl_flags
from tqdm import tqdm

from albert_tf.cli import flags, plot_results
from albert_tf.cli.help import HELP, HELP_FULL, VERSION, help_text
from albert_tf.cli.plot_results import PlottedResult
from albert_tf.settings import SettingsGroup
from albert_tf.training import interruption
from albert_tf.training.interruption import InterruptedRunError
from albert_tf.training.settings import RunSettings
from albert_tf.version import __version__

MAX_MESSAGE = 4000  # characters; a terminal shows about as many

SettingsType = TypeVar("SettingsType", bound=SettingsGroup)


def start(
    settings_class: type[SettingsType],
    run: Callable[[SettingsType], object],
    description: str | None,
) -> None:
    """Runs a program: parses the command line into settings, and prints the result of `run`.

    The results of a program that trains, whose settings are `RunSettings`, are plotted as well.

    An invalid command line, and errors that the user can fix (ValueError, OSError and the like),
    exit with one line on standard error and status 1; with --verbosity=1 the traceback is shown. A
    run that was asked to stop exits with status 75; the same command resumes it. Ctrl-C at a time
    when nothing can be saved exits with status 130.

    Args:
        settings_class: the program's settings.
        run: the program. The `str` of its result is printed unless it is None or empty; of an
            iterator, that of each item.
        description: the docstring of the script, for `--help`.
    """
    # Set before `run` imports TensorFlow: hides log messages about the CPU and missing GPUs (errors
    # still raise exceptions), and skips the import of Keras 3, which takes almost two seconds.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell, as with `>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the process ends
    if not HELP.isdisjoint(sys.argv[1:]):
        is_full = HELP_FULL in sys.argv[1:]
        text = help_text(settings_class, _as_called(description or ""), is_full)
        sys.stdout.write(f"{text}\n")
        return
    if VERSION in sys.argv[1:]:
        sys.stdout.write(f"albert-tf2 {__version__}\n")
        return
    app.run(
        functools.partial(_run, run),
        flags_parser=lambda argv: _parse(settings_class, argv),
    )


def _parse(settings_class: type[SettingsType], argv: Sequence[str]) -> SettingsType:
    """Returns the settings of a command line; exits if it is invalid."""
    absl_flags.FLAGS.mark_as_parsed()  # the program's flags are in a separate FlagValues object
    root = python_logging.getLogger()
    root.removeHandler(logging.get_absl_handler())
    # A program may be started several times in a process.
    if not any(isinstance(handler, ConsoleHandler) for handler in root.handlers):
        root.addHandler(ConsoleHandler())
    try:
        return flags.parse(settings_class, argv[1:])
    except (absl_flags.Error, ValueError, OSError) as error:
        sys.exit(f"{_script_name()}: {_shortened(error)}\nPass --helpfull to see all flags.")


def _run(run: Callable[[SettingsType], object], settings: SettingsType) -> None:
    """Runs a program, and plots and prints its result; see `start`."""
    try:
        if isinstance(settings, RunSettings):
            settings.require_a_phase()
        result = run(settings)
        if isinstance(settings, RunSettings) and isinstance(result, PlottedResult):
            plot_results.plot_result(settings, result)
        _print(result)
    except InterruptedRunError as error:
        _end(str(error), interruption.EXIT_STATUS)
    except KeyboardInterrupt as error:
        _end(str(error) or "interrupted", interruption.KEYBOARD_STATUS)
    except (ValueError, OSError, ArithmeticError) as error:
        if logging.get_verbosity() >= logging.DEBUG:
            raise
        sys.exit(f"{_script_name()}: {_shortened(error)}")


def _shortened(error: BaseException) -> str:
    """Returns the message of an error; of a very long one, the beginning."""
    message = str(error)
    rest = len(message) - MAX_MESSAGE
    return message if rest <= 0 else f"{message[:MAX_MESSAGE]}… ({rest} more characters)"


def _print(result: object) -> None:
    """Prints a result, or the items of an iterator as soon as they are there; dicts as JSON.

    Printing ends quietly if the reader closes the output, as `head` does.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    for item in result if isinstance(result, Iterator) else [result]:
        text = "" if item is None else str(item)
        if isinstance(item, dict):
            text = json.dumps(item, ensure_ascii=False)
        try:
            if text:
                print(text, flush=True)
        except BrokenPipeError:
            with open(os.devnull, "wb") as nothing:  # what Python flushes when it exits
                os.dup2(nothing.fileno(), sys.stdout.fileno())
            return


class ConsoleHandler(python_logging.Handler):
    """Writes messages to standard error, above progress bars.

    Each is a line without absl's prefix: the local time, the level unless it is INFO, the text.
    """

    def emit(self, record: python_logging.LogRecord) -> None:
        """Writes a message."""
        level = "" if record.levelno == python_logging.INFO else f"{record.levelname}: "
        try:
            text = self.format(record)
            tqdm.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {level}{text}", file=sys.stderr)
        except Exception:
            self.handleError(record)


def _end(message: str, status: int) -> None:
    """Exits with a status and a message, which is dropped if the terminal is closed."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{_script_name()}: {message}\n")
        sys.stderr.flush()
    sys.exit(status)


def _as_called(description: str) -> str:
    """Returns a docstring whose commands have the name under which the program was called."""
    if _script_name().endswith(".py"):
        return description
    return re.sub(r"\bpython \w+\.py\b", _script_name(), description)


def _script_name() -> str:
    return os.path.basename(sys.argv[0])
