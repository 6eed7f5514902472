"""The table of programs, which `albert VERB` and the scripts of a checkout start.

A program is a module with a class `Settings`, whose fields are its flags, and a function
`run(settings)`, whose result is printed; `--help` shows the module's docstring. `albert run-race`,
`albert race` and, in a checkout, `python run_race.py` start the same one.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
from types import ModuleType

from albert_tf.cli.console import start
from albert_tf.cli.help import HELP, VERSION
from albert_tf.finetuning import registry, run_task
from albert_tf.spelling import did_you_mean
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
    "convert": Program("albert_tf.inference.convert", "convert a model's format"),
    "describe": Program("albert_tf.cli.describe", "parameters, FLOPs and memory of a model"),
}


_HELP_VERB = "help"


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
    start(registry.get(name).settings_class, functools.partial(run_task, name), description)


def _take_verb() -> str:
    """Returns the program that the first argument names, and leaves the other arguments.

    Exits if there is none, or if it asks for help or the version.
    """
    arguments = sys.argv[1:]
    if arguments[:1] == [_HELP_VERB]:  # `albert help`, or `albert help PROGRAM`
        arguments = [*arguments[1:2], "--help"]
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
