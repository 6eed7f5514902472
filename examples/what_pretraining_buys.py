"""Compares fine-tuning from a pre-trained model with fine-tuning from random weights.

    python examples/what_pretraining_buys.py --model_dir=work/pretrain_small/model \
        --package_task_dir=work/pretrain_small/package_task \
        --pair_task_dir=work/pretrain_small/pair_task --glue_dir=glue --output_dir=work/compared

Runs run_classifier.py on every task that has a folder, with the same settings and several seeds
from both starting points, and prints each command before it runs. The dev set is evaluated before
the first step and after the last one, and the better accuracy counts. At the end, prints the mean,
the standard deviation and each accuracy beside the best constant answer. Run the same command again
to resume.
"""

from __future__ import annotations

import collections
import csv
import dataclasses
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator

from albert_tf import files
from albert_tf.cli import program
from albert_tf.settings import REQUIRED, SettingsGroup, setting

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRETRAINED = "pretrained"
RANDOM = "random"
METRIC = "eval_accuracy"


@dataclasses.dataclass(frozen=True)
class Task:
    """A task and the settings of its fine-tuning.

    Attributes:
        title: what the table calls it.
        name: run_classifier.py's `--task_name`.
        length: `--max_seq_length`.
        steps: `--train_step`, of BATCH_SIZE examples each.
    """

    title: str
    name: str
    length: int
    steps: int


TASKS = {
    "package": Task("package of a sentence", "tsv", 64, 500),
    "pair": Task("does the second sentence follow?", "tsv", 96, 600),
    "sst-2": Task("SST-2", "sst-2", 64, 1000),
    "mrpc": Task("MRPC", "mrpc", 128, 350),
    "rte": Task("RTE", "rte", 128, 240),
}
BATCH_SIZE = 32
WARMUP_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class Settings(SettingsGroup):
    """The model, the data and the folder of the runs."""

    model_dir: str = setting(REQUIRED, "Folder of a pre-trained model with its vocabulary.")
    output_dir: str = setting(REQUIRED, "Folder for the runs.")
    package_task_dir: str | None = setting(
        None,
        "Folder that make_corpus.py wrote with --task_dir; if not given, the task is left out.",
    )
    pair_task_dir: str | None = setting(
        None, "Folder that pair_task.py wrote; if not given, the task is left out."
    )
    glue_dir: str | None = setting(
        None, "Folder with SST-2, MRPC and RTE; if not given, these tasks are left out."
    )
    learning_rate: float = setting(
        5e-5, "Peak learning rate; 2e-4 destroys what the small model has learned.", minimum=0
    )
    num_runs: int = setting(3, "Number of seeds.", minimum=2)


def data_dirs(settings: Settings) -> dict[str, str]:
    """Returns the folder of the data of each task to run.

    Raises:
        ValueError: there is none.
    """
    folders = {"package": settings.package_task_dir, "pair": settings.pair_task_dir}
    folders |= dict.fromkeys(("sst-2", "mrpc", "rte"), settings.glue_dir)
    given = {name: folder for name, folder in folders.items() if folder}
    if not given:
        raise ValueError("expected --package_task_dir, --pair_task_dir or --glue_dir")
    return given


def command_of(settings: Settings, name: str, start: str, data_dir: str) -> list[str]:
    """Returns the command that fine-tunes on a task from one starting point, with all seeds."""
    task = TASKS[name]
    options = {
        "task_name": task.name,
        "data_dir": data_dir,
        "albert_config_file": os.path.join(settings.model_dir, "albert_config.json"),
        "spm_model_file": os.path.join(settings.model_dir, "spiece.model"),
        "output_dir": os.path.join(settings.output_dir, name, start),
        "max_seq_length": task.length,
        "train_batch_size": BATCH_SIZE,
        "eval_batch_size": 64,
        "learning_rate": settings.learning_rate,
        "train_step": task.steps,
        "warmup_step": round(WARMUP_SHARE * task.steps),
        "save_checkpoints_steps": task.steps,
        "num_runs": settings.num_runs,
    }
    if start == PRETRAINED:
        options["init_checkpoint"] = settings.model_dir
    flags = [f"--{key}={value}" for key, value in options.items()]
    return ["python", "run_classifier.py", "--do_train", "--do_eval", *flags]


def run_all(settings: Settings) -> None:
    """Fine-tunes on every task from both starting points.

    Raises:
        ChildProcessError: a run failed.
    """
    for name, data_dir in data_dirs(settings).items():
        for start in (RANDOM, PRETRAINED):
            command = command_of(settings, name, start, data_dir)
            print("+", shlex.join(command), flush=True)
            program_file = os.path.join(ROOT, command[1])
            code = subprocess.run([sys.executable, program_file, *command[2:]], check=False)
            if code.returncode:
                raise ChildProcessError(f"run_classifier.py stopped with status {code.returncode}")


def accuracies(folder: str) -> list[float]:
    """Returns the accuracy of each run of a sweep, in the order of the seeds."""
    lines = files.read_text(os.path.join(folder, "sweep_results.tsv")).splitlines()
    return [float(row[METRIC]) for row in csv.DictReader(lines, delimiter="\t") if row[METRIC]]


def constant_accuracy(folder: str) -> float:
    """Returns the share of the most frequent label of the dev set that a run has predicted."""
    (path, *_) = sorted(dev_predictions(folder))
    rows = csv.DictReader(
        files.read_text(path).splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE
    )
    counts = collections.Counter(row["label"] for row in rows)
    return max(counts.values()) / counts.total()


def dev_predictions(folder: str) -> Iterator[str]:
    """Yields the paths of the dev predictions of a sweep's runs."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name, "dev_predictions.tsv")
        if os.path.isfile(path):
            yield path


def cells(values: list[float]) -> str:
    """Returns mean ± standard deviation, and the single values."""
    single = ", ".join(f"{value:.3f}" for value in values)
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f} ({single})"


def table(settings: Settings) -> str:
    """Returns the results as a Markdown table."""
    lines = [
        "| task | dev accuracy, pre-trained | random weights | difference | best constant answer |",
        "|---|---|---|---|---|",
    ]
    for name in data_dirs(settings):
        folder = os.path.join(settings.output_dir, name)
        of_start = {
            start: accuracies(os.path.join(folder, start)) for start in (PRETRAINED, RANDOM)
        }
        gain = statistics.mean(of_start[PRETRAINED]) - statistics.mean(of_start[RANDOM])
        constant = constant_accuracy(os.path.join(folder, RANDOM))
        both = f"{cells(of_start[PRETRAINED])} | {cells(of_start[RANDOM])}"
        lines.append(f"| {TASKS[name].title} | {both} | {gain:+.3f} | {constant:.3f} |")
    return "\n".join(lines)


def run(settings: Settings) -> str:
    """Runs everything and returns the table."""
    data_dirs(settings)
    run_all(settings)
    return table(settings)


if __name__ == "__main__":
    program.start(Settings, run, __doc__)
