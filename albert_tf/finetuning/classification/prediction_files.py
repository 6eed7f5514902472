"""The files of a classifier's predictions: for error analysis, and for leaderboards.

Source of the latter: `run_classifier.py` of google-research/albert, and CLUE.

Shapes: N examples, K labels.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence

import numpy as np
from absl import logging
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.classification.encoding import Example
from albert_tf.finetuning.classification.tasks import ClassificationTask
from albert_tf.finetuning.metrics import scores_of_labels

DEV_PREDICTIONS = "dev_predictions.tsv"
LABEL_SCORES = "label_scores.tsv"
DEV_COLUMNS = ("line", "guid", "label", "prediction")  # and one for each label, or the score
SCORE = "score"
MULTI_LABEL_COLUMNS = ("line", "guid", "labels", "predictions")  # both are JSON lists


def write_dev_predictions(
    folder: RunFolder,
    task: ClassificationTask,
    examples: Sequence[Example],
    predicted: Sequence[str],
    rows: NDArray[np.float32],
) -> None:
    """Writes `dev_predictions.tsv` and, except for regression, `label_scores.tsv`.

    Each row of the first describes an example: the number of its row in the file, from 1, without
    a header; its own id, or else its split and its number from 0; its label, prediction, and the
    probabilities of the labels, or the score in regression. In multi-label tasks, the true and the
    predicted labels are JSON lists.

    Args:
        folder: folder of the run.
        task: the task.
        examples: N examples with their labels.
        predicted: the prediction of each.
        rows: the probabilities, or the score, of each, [N, K].
    """
    columns = MULTI_LABEL_COLUMNS if task.is_multi_label else DEV_COLUMNS
    with files.write_atomically(folder.file(DEV_PREDICTIONS)) as stream:
        stream.write("\t".join((*columns, *(task.labels or (SCORE,)))) + "\n")
        for example, prediction, row in zip(examples, predicted, rows, strict=True):
            label = label_list(example.labels) if task.is_multi_label else example.label
            cells = (example.row, example.id, label, prediction, *row)
            stream.write("\t".join(map(str, cells)) + "\n")
    if task.labels:
        _write_label_scores(folder, task, examples, predicted)


def _write_label_scores(
    folder: RunFolder,
    task: ClassificationTask,
    examples: Sequence[Example],
    predicted: Sequence[str],
) -> None:
    """Writes precision, recall and F1 of each label, and how many examples have it."""
    answers = [json.loads(x) if task.is_multi_label else [x] for x in predicted]
    truth = [x.labels if task.is_multi_label else [x.label or ""] for x in examples]
    true, guessed = (Counter(itertools.chain.from_iterable(x)) for x in (truth, answers))
    both = zip(truth, answers, strict=True)
    hits = Counter(itertools.chain.from_iterable({*a} & {*b} for a, b in both))
    counts = ([counter[label] for label in task.labels or ()] for counter in (hits, guessed, true))
    scores = scores_of_labels(*counts)
    with files.write_atomically(folder.file(LABEL_SCORES)) as stream:
        stream.write("\t".join(("label", *scores, "examples")) + "\n")
        for label, *values in zip(task.labels or (), *scores.values(), strict=True):
            numbers = "\t".join(f"{value:.4f}" for value in values)
            stream.write(f"{label}\t{numbers}\t{true[label]}\n")


def read_dev_predictions(folder: RunFolder) -> tuple[list[str], list[tuple[str, str]]]:
    """Reads the labels in `dev_predictions.tsv`.

    Returns:
        The labels of the task, and the label and the prediction of each example. Both are empty if
        there is no such file, or if its examples do not have one label each: in regression,
        multi-label tasks and token classification.

    Raises:
        ValueError: the file is empty, or a row is damaged, whose line the message names.
    """
    path = folder.file(DEV_PREDICTIONS)
    if not files.exists(path):
        return [], []
    lines = files.read_text(path).splitlines()
    if not lines:
        raise ValueError(f"{path}: empty, expected a header. Evaluate again to write the file")
    header, *rows = [line.split("\t") for line in lines]
    labels = header[len(DEV_COLUMNS) :]
    if tuple(header[: len(DEV_COLUMNS)]) != DEV_COLUMNS or labels == [SCORE]:
        return [], []
    for number, row in enumerate(rows, 2):
        if len(row) != len(header) or not {row[2], row[3]} <= set(labels):
            raise ValueError(
                f"{path}:{number}: expected {len(header)} cells, as in the header, with two of its "
                f"labels in columns 3 and 4; got {files.quote_all(row)}"
            )
    return labels, [(row[2], row[3]) for row in rows]


def write_submissions(
    folder: RunFolder,
    task: ClassificationTask,
    guids: Sequence[str],
    predicted: Sequence[str],
    rows: NDArray[np.float32],
) -> None:
    """Writes predictions of the test split in all formats.

    * `test_results.tsv`, as in Google's program: one line per example, with the probabilities of
      the labels, or the score in regression;
    * `submit_results.tsv`, as in Google's program: `index` and `prediction`, in multi-label tasks a
      JSON list of labels; also under the name that GLUE's leaderboard expects, such as `MRPC.tsv`;
    * `<task>_predict.json` for CLUE: one JSON object per line, with `id` and `label`.

    Args:
        folder: folder of the run.
        task: the task.
        guids: ids of N examples.
        predicted: the prediction of each.
        rows: the probabilities, or the score, of each, [N, K].
    """
    submission = "index\tprediction\n" + "".join(
        f"{guid}\t{prediction}\n" for guid, prediction in zip(guids, predicted, strict=True)
    )
    contents = {
        "test_results.tsv": "".join("\t".join(map(str, row)) + "\n" for row in rows),
        "submit_results.tsv": submission,
    }
    if task.leaderboard_file:
        contents[task.leaderboard_file] = submission
    if task.clue_fields is not None:
        contents[f"{task.name}_predict.json"] = _clue_lines(task, guids, predicted, rows)
    for name, content in contents.items():
        files.write_file(folder.file(name), content)
    logging.info("Predictions of %d examples: %s", len(guids), ", ".join(contents))


def _clue_lines(
    task: ClassificationTask,
    guids: Sequence[str],
    predicted: Sequence[str],
    rows: NDArray[np.float32],
) -> str:
    if task.group_size > 1:  # options of one question, whose label is the most probable option
        best = rows[:, -1].reshape(-1, task.group_size).argmax(axis=1)  # [questions]
        guids = guids[:: task.group_size]
        predicted = [str(choice) for choice in best]
    lines = []
    for number, (guid, prediction) in enumerate(zip(guids, predicted, strict=True)):
        name = int(guid) if guid.isdecimal() else number
        lines.append(json.dumps({"id": name, "label": prediction, **(task.clue_fields or {})}))
    return "".join(line + "\n" for line in lines)


def label_list(labels: Sequence[str]) -> str:
    """Returns the labels of an example in a multi-label task as a JSON list."""
    return json.dumps(labels, ensure_ascii=False)
