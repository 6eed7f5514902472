r"""Identifies a released checkpoint, and evaluates it on a task with the published settings.

    python tools/check_release.py --input=albert_tiny

compares the checksum of every tensor with those of nine releases by Google and albert_zh, and lists
the tensors that were altered, are missing or were added. Converted releases are recognized as well.

    python tools/check_release.py --input=albert_tiny --task=lcqmc_tiny --data_dir=lcqmc \
        --output_dir=lcqmc_check

then fine-tunes the model with a recipe from configs/recipes, and prints the published result next
to the measured one. Run the same command again to resume an interrupted run.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import subprocess
import sys

from absl import logging

from albert_tf import files, included
from albert_tf.checkpoints import finding, releases, run_record
from albert_tf.cli import program
from albert_tf.settings import REQUIRED, SettingsGroup, setting

DATA_FILE_FLAGS = ("train_file", "predict_file")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(SettingsGroup):
    """What to check."""

    input: str = setting(REQUIRED, "Folder of a released model, or a checkpoint in it.")
    task: str = setting(
        "", "Recipe in configs/recipes to run, such as lcqmc_tiny; if empty, no recipe is run."
    )
    data_dir: str = setting(
        "", "Folder with the data of the task; if empty, the one that the recipe names."
    )
    output_dir: str = setting(
        "", "Output folder of the run; if empty, the one that the recipe names."
    )

    def __post_init__(self) -> None:
        """Checks that the flags are consistent."""
        if not self.task and (self.data_dir or self.output_dir):
            raise ValueError("--data_dir and --output_dir require --task")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A recipe in configs/recipes.

    Attributes:
        path: path of the file.
        command: module of `albert_tf.commands` that runs the recipe.
        published: the published results, as quoted in the comments of the file.
        lines: the flags, as the file lists them.
    """

    path: str
    command: str
    published: str
    lines: list[str]

    @property
    def flags(self) -> dict[str, str]:
        """The flags that have a value, name → value."""
        pairs = (line[2:].partition("=") for line in self.lines)
        return {name: value for name, is_given, value in pairs if is_given}


def read_recipe(name: str) -> Recipe:
    """Reads a recipe.

    Args:
        name: name of a recipe in configs/recipes, or a path.

    Raises:
        FileNotFoundError: there is no such recipe; the message lists the available ones.
        ValueError: the comments of the file contain no command or no published result.
    """
    path = included.recipe_file(name)
    text = files.read_text(path)
    command = re.search(r"^#     python (\w+)\.py ", text, re.MULTILINE)
    published = re.search(r"^# Published: (.*(?:\n# .*)*)", text, re.MULTILINE)
    if command is None or published is None:
        raise ValueError(
            f"{path} is not a recipe: its comments must name a command and a published result"
        )
    lines = [line for line in text.splitlines() if line.startswith("--")]
    return Recipe(path, command[1], published[1].replace("\n# ", " "), lines)


def command_line(settings: Settings, recipe: Recipe) -> list[str]:
    """Returns the command that runs a recipe with the model and the folders from the settings.

    Raises:
        FileNotFoundError, ValueError: the folder contains no config or vocabulary, or several.
    """
    checkpoint = finding.find_checkpoint(settings.input)
    folder = os.path.dirname(checkpoint)
    vocab_file, spm_model_file = finding.find_vocabulary(folder)
    model = {
        "init_checkpoint": checkpoint,
        "albert_config_file": finding.find_config(folder),
        "spm_model_file": spm_model_file or "",
        "vocab_file": vocab_file or "",
    }
    kept = [line for line in recipe.lines if line[2:].split("=")[0] not in model]
    given = [f"--{name}={value}" for name, value in model.items() if value]
    given += [f"--{name}={value}" for name, value in _folders(settings, recipe).items()]
    return [sys.executable, "-m", f"albert_tf.commands.{recipe.command}", *kept, *given]


def _folders(settings: Settings, recipe: Recipe) -> dict[str, str]:
    """Returns the flags for the data and the output folder, with the values from the settings."""
    flags = {"output_dir": settings.output_dir} if settings.output_dir else {}
    if settings.data_dir and "data_dir" in recipe.flags:
        return flags | {"data_dir": settings.data_dir}
    if settings.data_dir:  # the SQuAD program takes paths of files instead of a folder
        paths = {name: recipe.flags[name] for name in DATA_FILE_FLAGS if name in recipe.flags}
        for name, path in paths.items():
            flags[name] = os.path.join(settings.data_dir, os.path.basename(path))
    return flags


def measured(output_dir: str) -> str:
    """Returns the results of a run as one line, phase by phase."""
    results = run_record.read_results(output_dir)
    phases = {
        phase: ", ".join(
            f"{name} {value:.4g}" for name, value in values.items() if isinstance(value, float)
        )
        for phase, values in results.items()
    }
    return "; ".join(f"{phase}: {text}" for phase, text in phases.items() if text)


def run(settings: Settings) -> str:
    """Identifies a release, runs the recipe if one is given, and returns the report."""
    if logging.get_verbosity() == logging.INFO:
        logging.set_verbosity(logging.WARNING)
    recipe = read_recipe(settings.task) if settings.task else None
    command = command_line(settings, recipe) if recipe else []
    report = releases.identify(settings.input)
    if recipe is None:
        return str(report)
    sys.stdout.write(f"{report}\n{shlex.join(command)}\n")
    sys.stdout.flush()
    status = subprocess.run(command, check=False).returncode
    if status:
        raise ChildProcessError(f"the run failed (exit status {status}); see its message above")
    output_dir = settings.output_dir or recipe.flags["output_dir"]
    return f"published  {recipe.published}\nmeasured   {measured(output_dir)}"


def main() -> None:
    """Runs the command line of this process."""
    program.start(Settings, run, __doc__)


if __name__ == "__main__":
    main()
