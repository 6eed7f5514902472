"""The command-line programs, one module with a function `main` for each.

The scripts in the root folder of the repository and in `tools/` call these functions, and so do the
console commands of an installed package, such as `albert-run-classifier`. `fine_tune` is the
program of a registered task in a file of its own.
"""

from __future__ import annotations

import functools

from albert_tf import tasks


def fine_tune(name: str, description: str | None) -> None:
    """Runs the command line of this process, to fine-tune a model for a task.

    Args:
        name: name of the task in `albert_tf.tasks`, whose settings are the flags.
        description: the docstring of the script, for `--help`.
    """
    from albert_tf.cli import program  # imported late: other commands do not need them
    from albert_tf.commands import plot_results
    from albert_tf.finetuning.program import run_task

    run = functools.partial(plot_results.run_and_plot, functools.partial(run_task, name))
    program.start(tasks.resolve(tasks.get(name).settings), run, description)
