"""The table of programs, which `albert VERB` and the scripts of a checkout start.

A program is a module with a class `Settings`, whose fields are its flags, and a function
`run(settings)`, whose result is printed; `--help` shows the module's docstring. `albert run-race`,
`albert race` and, in a checkout, `python run_race.py` start the same one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import io
import json
import logging as python_logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, TypeVar

from absl import app, logging
from absl import flags as absl_flags
from tqdm import tqdm

from albert_tf.cli import flags, plot_results
from albert_tf.finetuning import registry, run_task
from albert_tf.settings import SettingsGroup, did_you_mean
from albert_tf.training import interruption
from albert_tf.training.interruption import InterruptedRunError
from albert_tf.training.settings import RunSettings
from albert_tf.version import __version__


@dataclasses.dataclass(frozen=True)
class Program:
    """A row of the table.

    Attributes:
        module: dotted name of the module.
        purpose: what it does, for the list of programs.
    """

    module: str
    purpose: str

    def load(self) -> ModuleType:
        """Imports the module."""
        return importlib.import_module(self.module)


PROGRAMS = {
    "train-vocabulary": Program("albert_tf.data.train_vocabulary", "train a vocabulary"),
    "create-pretraining-data": Program("albert_tf.data", "create records from text"),
    "inspect-records": Program("albert_tf.data.inspect_records", "print and count records"),
    "run-pretraining": Program("albert_tf.pretraining", "pre-train"),
    "run-classifier": Program(
        "albert_tf.finetuning.classification", "fine-tune on GLUE, CLUE or texts of your own"
    ),
    "run-squad": Program("albert_tf.finetuning.squad", "fine-tune on questions with a context"),
    "run-race": Program("albert_tf.finetuning.race", "fine-tune on multiple choice"),
    "run-token-classification": Program(
        "albert_tf.finetuning.token_classification", "fine-tune on tokens, as for NER"
    ),
    "download": Program("albert_tf.checkpoints.download", "download a released model"),
    "run-predict": Program("albert_tf.inference", "predict with a trained model"),
    "plot-results": Program("albert_tf.cli.plot_results", "plot the results of a run"),
    "convert": Program("albert_tf.checkpoints.convert", "convert a model's format"),
    "describe": Program("albert_tf.cli.describe", "parameters, FLOPs and memory of a model"),
}


def main(name: str = "", *flags: str) -> None:
    """Runs a program with the command line of this process.

    Args:
        name: name in PROGRAMS; "" takes the verb of `albert VERB`.
        *flags: default flags; flags on the command line override them.
    """
    sys.argv[1:1] = flags
    module = PROGRAMS[name or _take_verb()].load()
    start(module.Settings, module.run, module.__doc__)


def fine_tune(name: str, description: str | None) -> None:
    """Runs the command line of this process, to fine-tune a model for a task of your own.

    Args:
        name: name of the task in `albert_tf.finetuning.registry`, whose settings are the flags.
        description: the docstring of the script, for `--help`.
    """
    settings_class = registry.resolve(registry.get(name).settings)
    start(settings_class, functools.partial(run_task, name), description)


def _take_verb() -> str:
    """Returns the program that the first argument names, and leaves the other arguments.

    Exits if there is none, or if it asks for help or the version.
    """
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in HELP:
        sys.stdout.write(_list_programs())
        sys.exit(0)
    if arguments[0] == VERSION:
        sys.stdout.write(f"albert-tf2 {__version__}\n")
        sys.exit(0)
    verb = arguments[0].replace("_", "-")
    name = verb if verb in PROGRAMS else f"run-{verb}"
    if name not in PROGRAMS:
        candidates = [*PROGRAMS, *(name.removeprefix("run-") for name in PROGRAMS)]
        problem = f"{verb!r} is not a program. {did_you_mean(verb, candidates)}".rstrip()
        sys.exit(f"albert: {problem}\nPass --help to see all programs.")
    sys.argv = [f"albert {verb}", *arguments[1:]]  # as it was typed, for messages
    return name


def _list_programs() -> str:
    """Returns the list of programs, for `albert --help`."""
    width = max(map(len, PROGRAMS))
    lines = "\n".join(f"  {name:{width}}  {row.purpose}" for name, row in PROGRAMS.items())
    return (
        f"usage: albert PROGRAM [--flags]\n\n{lines}\n\n"
        '"run-" may be left out. `albert PROGRAM --help` lists the flags of a program.\n'
    )


# Runs programs from the command line: parses settings, and prints the result or an error.
#
# TensorFlow is not imported here, so that `--help` is fast.

SettingsType = TypeVar("SettingsType", bound=SettingsGroup)
HELP_FULL = "--helpfull"
HELP = {"--help", "-help", HELP_FULL, "--helpshort", "-h", "-?"}
VERSION = "--version"


def start(
    settings_class: type[SettingsType],
    run: Callable[[SettingsType], Any],
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
        text = flags.help_text(settings_class, _as_called(description or ""), is_full)
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
    root.addHandler(ConsoleHandler())
    try:
        return flags.parse(settings_class, argv[1:])
    except (absl_flags.Error, ValueError, OSError) as error:
        sys.exit(f"{_script_name()}: {error}\nPass --helpfull to see all flags.")


def _run(run: Callable[[SettingsType], Any], settings: SettingsType) -> None:
    """Runs a program, and plots and prints its result; see `start`."""
    try:
        if isinstance(settings, RunSettings):
            settings.require_a_phase()
        result = run(settings)
        if isinstance(settings, RunSettings):
            plot_results.plot_result(settings, result)
        _print(result)
    except InterruptedRunError as error:
        _end(str(error), interruption.EXIT_STATUS)
    except KeyboardInterrupt as error:
        _end(str(error) or "interrupted", interruption.KEYBOARD_STATUS)
    except (ValueError, OSError, ArithmeticError) as error:
        if logging.get_verbosity() >= logging.DEBUG:
            raise
        sys.exit(f"{_script_name()}: {error}")


def _print(result: Any) -> None:
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
