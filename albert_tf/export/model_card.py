"""Writes the model card of a folder for Hugging Face, from what the run of the model recorded."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord

FILE = "README.md"
# Name of a task → that of the Hugging Face Hub.
_PIPELINES = {
    "classification": "text-classification",
    "multi_label_classification": "text-classification",
    "regression": "text-classification",
    "token_classification": "token-classification",
    "multiple_choice": "multiple-choice",
    "spans": "question-answering",
    "answerable_spans": "question-answering",
    "pretraining": "fill-mask",
}
# Settings that name data.
_DATA = ("task_name", "data_dir", "train_file", "dev_file", "predict_file", "input_file")
_DATA_RECORDS = (run_record.TRAINING_EXAMPLES, run_record.TRAINING_DATA)


def write(folder: str, run: RunFolder) -> None:
    """Writes `README.md`, unless there is no record of the training, as of a released model.

    It has the task, the labels, the scores of the best checkpoint, the data and the command.

    Args:
        folder: the folder for Hugging Face.
        run: the folder of the run.
    """
    if not files.exists(run.file(run_record.FILE)):
        return
    files.write_file(os.path.join(folder, FILE), "\n".join(_lines(run)) + "\n")
    logging.info("%s has the data and the command of the training: edit it to publish", FILE)


def _lines(run: RunFolder) -> Iterator[str]:
    record = run.record
    task = record.task_name
    yield from ("---", "library_name: transformers")
    if task in _PIPELINES:
        yield f"pipeline_tag: {_PIPELINES[task]}"
    yield from ("tags:", "- albert", "---", "", f"# ALBERT for {task or 'texts'}", "")
    version = _version(record)
    yield f"Trained with albert-tf2 {version}." if version else "Saved with albert-tf2."
    if record.labels:
        yield from ("", "## Labels", "")
        yield from (f"{number}. {_code(label)}" for number, label in enumerate(record.labels))
    best = run.best_evaluation
    if best is not None:
        yield from ("", "## Scores", "", f"Of the checkpoint at step {best.step}, on the dev set:")
        yield from ("", "| metric | value |", "|---|---|")
        yield from (f"| {name} | {value:.4f} |" for name, value in sorted(best.metrics.items()))
    yield from _data(record)
    command = record.start.get("command")
    if isinstance(command, list) and command:
        yield from ("", "## Command", "", "```bash", shlex.join(map(str, command)), "```")


def _data(record: RunRecord) -> Iterator[str]:
    """Yields the section about the data, if something is known."""
    known = [(name, record.settings.get(name)) for name in _DATA]
    known += [(name, record.files[name].digest) for name in _DATA_RECORDS if name in record.files]
    rows = [f"| {name} | {_code(str(value))} |" for name, value in known if value]
    if rows:
        yield from ("", "## Data", "", "| | |", "|---|---|", *rows)


def _version(record: RunRecord) -> str:
    versions = record.start.get("versions")
    return str(versions.get("albert_tf", "")) if isinstance(versions, dict) else ""


def _code(text: str) -> str:
    """Returns a text as Markdown's code in one line of a table."""
    line = text if text.isprintable() else json.dumps(text, ensure_ascii=True)
    return f"`{line}`".replace("|", "\\|")
