"""The command line of a program that fine-tunes a registered task, such as one of your own."""

import functools

from albert_tf import tasks
from albert_tf.cli import program
from albert_tf.commands import plot_results
from albert_tf.finetuning.program import run_task


def main(name: str, description: str | None) -> None:
    """Runs the command line of this process.

    Args:
        name: name of the task in `albert_tf.tasks`, whose settings are the flags.
        description: the docstring of the script, for `--help`.
    """
    settings_class = tasks.resolve(tasks.get(name).settings)
    run = functools.partial(plot_results.run_and_plot, functools.partial(run_task, name))
    program.start(settings_class, run, description)
