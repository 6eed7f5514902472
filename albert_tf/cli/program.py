"""Runs root scripts: from a command line to settings, and from a result or an error to the shell.

TensorFlow is not imported here, so that `--help` answers at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from absl import app, logging
from absl import flags as absl_flags

from albert_tf import __version__
from albert_tf.cli import console, flags
from albert_tf.settings import SettingsGroup
from albert_tf.training import interruption
from albert_tf.training.interruption import InterruptedRunError

SettingsType = TypeVar("SettingsType", bound=SettingsGroup)
HELP = {"--help", "-help", "--helpfull", "--helpshort", "-h", "-?"}
VERSION = "--version"


def start(
    settings_class: type[SettingsType], run: Callable[[SettingsType], Any], description: str | None
) -> None:
    """Runs a root script: makes settings of its command line, and prints what `run` returns.

    A command line that is wrong, and what a user can put right (ValueError, OSError and the like)
    end the script with one line on standard error and exit status 1; with --verbosity=1 the
    traceback of an error is shown. A run that was asked to stop ends with status 75: the same
    command resumes it. Ctrl-C, where nothing is saved, ends the script with status 130.

    Args:
        settings_class: the program's settings.
        run: the program. The `str` of what it returns is printed, unless that is None or empty.
        description: the docstring of the script, for `--help`.
    """
    # Before `run` imports TensorFlow. Without notes on the processor and missing GPUs: errors
    # reach Python as exceptions. Without Keras 3, whose import takes almost two seconds.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    if not HELP.isdisjoint(sys.argv[1:]):
        sys.stdout.write(flags.help_text(settings_class, _as_called(description or "")) + "\n")
        return
    if VERSION in sys.argv[1:]:
        sys.stdout.write(f"albert-tf2 {__version__}\n")
        return
    interruption.repeat_lost_interrupts()
    app.run(
        lambda settings: _run(run, settings), flags_parser=lambda argv: _parse(settings_class, argv)
    )


def _parse(settings_class: type[SettingsType], argv: Sequence[str]) -> SettingsType:
    """Returns the settings of a command line; ends the process if it is wrong."""
    absl_flags.FLAGS.mark_as_parsed()  # absl's own; those of the program have their own table
    console.install()
    try:
        return flags.parse(settings_class, argv[1:])
    except (absl_flags.Error, ValueError, OSError) as error:
        sys.exit(f"{_script_name()}: {error}\nPass --help to see all flags.")


def _run(run: Callable[[SettingsType], Any], settings: SettingsType) -> None:
    """Runs a program and prints its result; see `start`."""
    try:
        result = run(settings)
    except InterruptedRunError as error:
        _end(str(error), interruption.EXIT_STATUS)
    except KeyboardInterrupt as error:
        _end(str(error) or "interrupted", interruption.KEYBOARD_STATUS)
    except (ValueError, OSError, ArithmeticError) as error:
        if logging.get_verbosity() >= logging.DEBUG:
            raise
        sys.exit(f"{_script_name()}: {error}")
    text = "" if result is None else str(result)
    if text:
        sys.stdout.write(text + "\n")


def _end(message: str, status: int) -> None:
    """Ends the process with a message, if there still is a terminal to show it, and a status."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{_script_name()}: {message}\n")
        sys.stderr.flush()
    sys.exit(status)


def _as_called(description: str) -> str:
    """Returns a docstring whose commands have the name under which the program was called."""
    if _script_name().endswith(".py"):
        return description
    return re.sub(r"\bpython [\w/]+\.py\b", _script_name(), description)


def _script_name() -> str:
    return os.path.basename(sys.argv[0])
