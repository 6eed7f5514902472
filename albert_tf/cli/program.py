"""Runs programs from the command line: parses settings, and prints the result or an error.

TensorFlow is not imported here, so that `--help` is fast.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from absl import app, logging
from absl import flags as absl_flags

from albert_tf.cli import console, flags, plot_results
from albert_tf.settings import SettingsGroup
from albert_tf.training import interruption
from albert_tf.training.interruption import InterruptedRunError
from albert_tf.version import __version__

SettingsType = TypeVar("SettingsType", bound=SettingsGroup)
HELP_FULL = "--helpfull"
HELP = {"--help", "-help", HELP_FULL, "--helpshort", "-h", "-?"}
VERSION = "--version"


def start(
    settings_class: type[SettingsType],
    run: Callable[[SettingsType], Any],
    description: str | None,
    is_plotted: bool = False,
) -> None:
    """Runs a program: parses the command line into settings, and prints the result of `run`.

    An invalid command line, and errors that the user can fix (ValueError, OSError and the like),
    exit with one line on standard error and status 1; with --verbosity=1 the traceback is shown. A
    run that was asked to stop exits with status 75; the same command resumes it. Ctrl-C at a time
    when nothing can be saved exits with status 130.

    Args:
        settings_class: the program's settings.
        run: the program. The `str` of its result is printed unless it is None or empty.
        description: the docstring of the script, for `--help`.
        is_plotted: whether its results are plotted; for programs that train.
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
        sys.stdout.write(
            flags.help_text(settings_class, _as_called(description or ""), is_full) + "\n"
        )
        return
    if VERSION in sys.argv[1:]:
        sys.stdout.write(f"albert-tf2 {__version__}\n")
        return
    app.run(
        functools.partial(_run, run, is_plotted),
        flags_parser=lambda argv: _parse(settings_class, argv),
    )


def _parse(settings_class: type[SettingsType], argv: Sequence[str]) -> SettingsType:
    """Returns the settings of a command line; exits if it is invalid."""
    absl_flags.FLAGS.mark_as_parsed()  # the program's flags are in a separate FlagValues object
    console.install()
    try:
        return flags.parse(settings_class, argv[1:])
    except (absl_flags.Error, ValueError, OSError) as error:
        sys.exit(f"{_script_name()}: {error}\nPass --helpfull to see all flags.")


def _run(run: Callable[[Any], Any], is_plotted: bool, settings: Any) -> None:
    """Runs a program, and plots and prints its result; see `start`."""
    try:
        if is_plotted:
            settings.require_a_phase()
        result = run(settings)
        if is_plotted:
            plot_results.plot_result(settings, result)
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


@contextlib.contextmanager
def ending_with_reader() -> Iterator[None]:
    """Ends a block of prints quietly if the reader closes standard output, as `head` does."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        with open(os.devnull, "wb") as nothing:  # what Python flushes when it exits
            os.dup2(nothing.fileno(), sys.stdout.fileno())


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
