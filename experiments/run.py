"""Runs one of the paper's experiments at a small scale, and writes its table with error bars.

    python experiments/run.py sharing --output_dir=work/experiments
    python experiments/run.py sharing --output_dir=work/experiments --scale=0.5 --seeds=5

A table is a file in `experiments/tables`. Its rows differ in the model's config, in the records or
in the settings of training. Each row is pre-trained once per seed, evaluated on the same held-out
text, and fine-tuned if the table says so. Runs that are done are not repeated, so the same command
resumes. The corpus and the task are made as those of the demo; all tables of an output folder
share them.

Written to `output_dir/<table>`: `table.md` (mean and standard deviation over the seeds, beside the
numbers of the paper), `plot.png`, and a folder for each run with its log.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, ClassVar

if __name__ == "__main__":
    ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path[:0] = [ROOT, os.path.join(ROOT, "examples")]

import report
from corpus import constant_answers, prepare_text, records_of, training_part, vocabulary_file
from report import RESULT, Table, folder_of

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.cli import console
from albert_tf.settings import REQUIRED, SettingsGroup, setting

if TYPE_CHECKING:
    from albert_tf.pretraining.task import PretrainingTask

CONFIG = files.read_json(os.path.join(os.path.dirname(os.path.abspath(__file__)), "model.json"))
TRAINING = {
    "train_batch_size": 64,
    "optimizer": "adamw",
    "learning_rate": 1e-3,
    "num_train_steps": 1200,
    "num_warmup_steps": 150,
}
FINE_TUNING = {"train_batch_size": 64, "learning_rate": 5e-4, "train_step": 300, "warmup_step": 60}
OF_TIME = ("num_train_steps", "num_warmup_steps", "train_step", "warmup_step")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(SettingsGroup):
    """The experiment and its size."""

    ARGUMENT: ClassVar[str] = "table"

    table: str = setting(REQUIRED, "Name of a table in experiments/tables, or a file of that form.")
    output_dir: str = setting(REQUIRED, "Folder for the corpus, the runs and the results.")
    seeds: int = setting(3, "Number of runs of each row, with different seeds.", minimum=1)
    scale: float = setting(
        1.0,
        "Factor for the numbers of training steps; 1 takes about three minutes a run.",
        minimum=0.001,
    )
    num_workers: int = setting(2, "Number of runs at the same time.", minimum=1)
    threads: int = setting(1, "Number of threads of each run.", minimum=1)
    row: str = setting("", "Do only this run of the table, in this process.", group="internal")
    seed: int = setting(0, "Seed of that run.", minimum=0, group="internal")


def scaled(values: dict[str, Any], scale: float) -> dict[str, Any]:
    """Returns settings with the numbers of steps multiplied by `scale`."""
    return {
        name: max(1, round(value * scale)) if name in OF_TIME else value
        for name, value in values.items()
    }


def run_row(settings: Settings, table: Table, folder: str) -> None:
    """Trains, evaluates and fine-tunes one row with one seed, and writes `result.json`."""
    from albert_tf.pretraining.metadata_checks import find_objective, find_record_files

    row = table.rows[settings.row]
    output_dir = settings.output_dir
    records = records_of(output_dir, table, training_part(table), row.get("data", {}))
    objective = find_objective(find_record_files(records, "--input_file"))
    began = time.monotonic()
    checkpoint = ""
    for number, phase in enumerate(row.get("phases", [{}])):
        config = CONFIG | table.config | row.get("config", {}) | phase.get("config", {})
        training = row.get("training", {}) | phase.get("training", {})
        training = scaled(TRAINING | table.training | training, settings.scale) | table.lengths
        model_dir = os.path.join(folder, f"phase_{number}")
        train(settings, config, training, records, model_dir, checkpoint)
        checkpoint = model_dir
    result = {"parameters": float(count_parameters(config))}
    result["tokens_per_second"] = speed_of(checkpoint)
    for name, held_out in table.held_out.items():
        judged = records_of(output_dir, table, "held_out", held_out.get("data", {}))
        judge = make_judge(config | held_out.get("config", {}), table, objective)
        metrics = evaluate(judge, judged, checkpoint)
        result |= {f"{name}/{metric}": value for metric, value in metrics.items()}
    if "task" in table.columns.values():
        result["task"] = fine_tune(settings, table, checkpoint, os.path.join(folder, "task"))
    result["seconds"] = time.monotonic() - began
    files.write_json(os.path.join(folder, RESULT), result)


def train(
    settings: Settings,
    config: dict[str, Any],
    training: dict[str, Any],
    records: str,
    model_dir: str,
    init_checkpoint: str,
) -> None:
    """Pre-trains one model, or resumes its run."""
    from albert_tf import pretraining

    files.ensure_directory(model_dir, "--output_dir")
    config_file = f"{model_dir}.json"
    files.write_json(config_file, config)
    steps = training["num_train_steps"]
    pretraining.run(
        pretraining.Settings(
            **training,
            albert_config_file=config_file,
            input_file=records,
            output_dir=model_dir,
            init_checkpoint=init_checkpoint or None,
            seed=settings.seed,
            threads=settings.threads,
            save_checkpoints_steps=steps,
            log_steps=max(1, steps // 10),
        )
    )


def count_parameters(config: dict[str, Any]) -> int:
    """Returns the number of parameters of the encoder."""
    from albert_tf.model.config import AlbertConfig

    return AlbertConfig.from_dict(config).num_weights


def speed_of(model_dir: str) -> float:
    """Returns the median of the tokens per second that training has logged."""
    speeds = [row.get("tokens_per_second") for row in RunFolder(model_dir).metrics()]
    return float(statistics.median([speed for speed in speeds if speed] or [0.0]))


def make_judge(config: dict[str, Any], table: Table, objective: str) -> PretrainingTask:
    """Returns the pre-training task of a model, to evaluate it on any records."""
    from albert_tf.model.config import AlbertConfig
    from albert_tf.pretraining.task import PretrainingTask

    lengths = table.max_seq_length, table.max_predictions_per_seq
    return PretrainingTask(AlbertConfig.from_dict(config), *lengths, objective)


def evaluate(judge: PretrainingTask, records: str, checkpoint: str) -> dict[str, float]:
    """Returns the metrics of a checkpoint on some records.

    `sentence` is the accuracy of the model's sentence head on the records' own labels, even if it
    was trained for another sentence objective (table 5 of the paper). For all of them, label 0 is
    the segment that follows. A model without such a head guesses: 0.5.
    """
    from albert_tf.checkpoints import loading, model_folder
    from albert_tf.data.record_metadata import find_records
    from albert_tf.pretraining import input_pipeline, record_files
    from albert_tf.training.evaluation import Evaluator

    model = judge.build_model()
    loading.load_weights(model, model_folder.find_checkpoint(checkpoint))
    chosen = record_files.check_files(find_records(records, "records"), judge.features)
    dataset = input_pipeline.evaluation_dataset(chosen, judge.features, 64)
    metrics = Evaluator(model, judge, dataset, max_steps=100).evaluate()
    return {
        "masked": metrics["masked_lm_accuracy"],
        "masked_loss": metrics["masked_lm_loss"],
        "sentence": metrics.get(judge.objective.accuracy_name, 0.5),
    }


def fine_tune(settings: Settings, table: Table, checkpoint: str, folder: str) -> float:
    """Returns the dev accuracy on the task of the demo: which package does a sentence document?"""
    from albert_tf import classification

    result = classification.run(
        classification.Settings(
            task_name="tsv",
            data_dir=os.path.join(settings.output_dir, "task"),
            spm_model_file=vocabulary_file(settings.output_dir, table),
            init_checkpoint=checkpoint,
            output_dir=folder,
            do_train=True,
            do_eval=True,
            max_seq_length=table.max_seq_length,
            seed=settings.seed,
            threads=settings.threads,
            **scaled(FINE_TUNING | table.fine_tuning, settings.scale),
        )
    )
    return result.metrics["eval_accuracy"]


def run_all(settings: Settings, table: Table, folder: str, constants: dict[str, float]) -> str:
    """Does all runs of a table that are not done, several at a time; returns the table.

    Args:
        settings: the settings.
        table: the experiment.
        folder: its folder.
        constants: the accuracies of the best constant answers.
    """

    def write_table() -> str:
        results = report.results_of(table, folder, settings.seeds)
        return report.write_table(table, results, constants, folder, settings.scale)

    runs = [(row, seed) for seed in range(1, settings.seeds + 1) for row in table.rows]
    is_done = {run: files.is_file(os.path.join(folder_of(folder, *run), RESULT)) for run in runs}
    waiting = [run for run in runs if not is_done[run]]
    print(f"{table.title}: {len(runs)} runs, {len(runs) - len(waiting)} of them done", flush=True)
    began = time.monotonic()
    done = 0
    with concurrent.futures.ThreadPoolExecutor(settings.num_workers) as pool:
        started = {pool.submit(start, settings, folder, *run): run for run in waiting}
        try:
            for future in concurrent.futures.as_completed(started):
                row, seed = started[future]
                future.result()
                done += 1
                minutes = (time.monotonic() - began) / done * (len(waiting) - done) / 60
                print(f"  {row}, seed {seed}: done; about {minutes:.0f} min left", flush=True)
                write_table()
        except BaseException:  # also if interrupted: the runs that wait do not start
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return write_table()


def start(settings: Settings, folder: str, row: str, seed: int) -> None:
    """Does one run in a process of its own, with a log in its folder."""
    place = folder_of(folder, row, seed)
    files.ensure_directory(place, "--output_dir")
    arguments = {"output_dir": settings.output_dir, "scale": settings.scale}
    arguments |= {"threads": settings.threads, "row": row, "seed": seed}
    command = [sys.executable, os.path.abspath(__file__), settings.table]
    command += [f"--{name}={value}" for name, value in arguments.items()]
    log = os.path.join(place, "log.txt")
    with open(log, "w", encoding="utf-8") as stream:
        code = subprocess.run(command, stdout=stream, stderr=stream, check=False).returncode
    if code:
        raise RuntimeError(f"{row}, seed {seed} failed; see {log}")


def run(settings: Settings) -> str:
    """Runs an experiment, or one of its runs; returns the table."""
    table = report.read_table(settings.table)
    name = os.path.basename(settings.table).removesuffix(".json")
    if settings.scale != 1:  # runs of another scale are other runs
        name += f"-x{settings.scale:g}"
    folder = os.path.join(settings.output_dir, name)
    if settings.row:
        run_row(settings, table, folder_of(folder, settings.row, settings.seed))
        return ""
    files.ensure_directory(folder, "--output_dir")
    shared = {
        "config": CONFIG | table.config,
        "training": TRAINING | table.training,
        "fine_tuning": FINE_TUNING | table.fine_tuning,
        "held_out": table.held_out,
    }
    report.keep_settings(table, shared, folder)
    prepare_text(settings.output_dir, table)
    for row in table.rows.values():
        records_of(settings.output_dir, table, training_part(table), row.get("data", {}))
    return run_all(settings, table, folder, constant_answers(settings.output_dir, table))


if __name__ == "__main__":
    console.start(Settings, run, __doc__)
