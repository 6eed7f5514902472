"""Makes the corpus of the experiments, its vocabulary, the task and the records."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import demo
import demo_report
from report import Table

from albert_tf import data, files


def prepare_text(output_dir: str, table: Table) -> None:
    """Makes the corpus, the task and the vocabulary of a table, unless they are there.

    Args:
        output_dir: the folder for them, and for the part of the corpus to train on.
        table: the experiment.
    """
    output_dir = os.path.abspath(output_dir)  # the steps run in the repository's folder
    text = text_file(output_dir, "train")
    vocabulary = demo.vocabulary_step(
        text, os.path.dirname(vocabulary_file(output_dir, table)), table.vocab_size
    )
    for step in (demo.corpus_step(output_dir), vocabulary):
        if not files.is_file(step.output):
            print(f"{step.name} ...", flush=True)
            demo.run_step(step)
    start = text_file(output_dir, training_part(table))
    if not files.is_file(start):
        content = files.read_text(text)
        with files.write_atomically(start) as stream:  # whole documents
            stream.write(content[: content.find("\n\n", int(table.megabytes * 1e6)) + 1])


def vocabulary_file(output_dir: str, table: Table) -> str:
    """Returns the path of the vocabulary of a table."""
    return os.path.join(output_dir, f"vocabulary-{table.vocab_size}", "vocabulary.model")


def constant_answers(output_dir: str, table: Table) -> dict[str, float]:
    """Returns the accuracies of the best constant answers, with the names of a run's results."""
    labels = demo_report.count_labels(output_dir)
    answers = {"task": max(labels.values()) / labels.total()}
    for name, held_out in table.held_out.items():
        judged = records_of(output_dir, table, "held_out", held_out.get("data", {}))
        chance = demo_report.count_chance(judged)
        answers[f"{name}/masked"] = chance.masked_lm_accuracy
        answers[f"{name}/sentence"] = chance.sentence_order_accuracy
    return answers


def training_part(table: Table) -> str:
    """Returns the name of the part of the corpus to train on."""
    return f"train-{table.megabytes:g}" if table.megabytes else "train"


def text_file(output_dir: str, part: str) -> str:
    """Returns the path of a part of the corpus."""
    return os.path.join(output_dir, "corpus", f"{part}.txt")


def records_of(output_dir: str, table: Table, part: str, changes: dict[str, Any]) -> str:
    """Returns the path of the records of a part of the corpus, which are written if necessary.

    Args:
        output_dir: folder of the corpus.
        table: the experiment.
        part: "held_out", or one to train on.
        changes: settings of create_pretraining_data.py that differ from those of all records.
    """
    dupe_factor = 1 if part == "held_out" else 2
    values = table.lengths | {"dupe_factor": dupe_factor} | changes
    made_of = json.dumps([table.vocab_size, values], sort_keys=True)
    digest = hashlib.sha256(made_of.encode()).hexdigest()[:10]
    path = os.path.join(output_dir, "records", f"{part}-{digest}.tfrecord")
    if not files.is_file(path):
        settings = data.Settings.make(
            input_file=text_file(output_dir, part),
            output_file=path,
            spm_model_file=vocabulary_file(output_dir, table),
            num_logged_instances=0,
            **values,
        )
        data.run(settings)
    return path
