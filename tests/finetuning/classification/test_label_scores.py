"""`label_scores.tsv`: precision, recall and F1 of each label, beside `dev_predictions.tsv`."""

from __future__ import annotations

import json
import types

import numpy as np
import pytest

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.classification import prediction_files

NAMES = ("ice", "land", "water")


def write(folder, truth, predicted, is_multi_label):
    task = types.SimpleNamespace(labels=NAMES, is_multi_label=is_multi_label)
    examples = [
        types.SimpleNamespace(row=n, id=f"dev-{n}", label=None if is_multi_label else x, labels=x)
        for n, x in enumerate(truth)
    ]
    rows = np.zeros((len(truth), len(NAMES)), np.float32)
    run = RunFolder(str(folder))
    prediction_files.write_dev_predictions(run, task, examples, predicted, rows)
    return [line.split("\t") for line in (folder / "label_scores.tsv").read_text().splitlines()]


@pytest.mark.parametrize("is_multi_label", [False, True])
def test_each_label_has_its_scores_and_the_number_of_its_examples(tmp_path, is_multi_label):
    truth = ["land", "land", "land", "water"]
    predicted = ["land", "water", "land", "water"]
    if is_multi_label:
        truth, predicted = [[x] for x in truth], [json.dumps([x]) for x in predicted]
    assert write(tmp_path, truth, predicted, is_multi_label) == [
        ["label", "precision", "recall", "f1", "examples"],
        ["ice", "0.0000", "0.0000", "0.0000", "0"],
        ["land", "1.0000", "0.6667", "0.8000", "3"],
        ["water", "0.5000", "1.0000", "0.6667", "1"],
    ]


def test_labels_of_one_text_count_each(tmp_path):
    truth = [["ice", "water"], [], ["water"]]
    predicted = map(json.dumps, [["water"], ["ice"], ["ice", "water"]])
    rows = {row[0]: row[1:] for row in write(tmp_path, truth, list(predicted), True)}
    assert rows["ice"] == ["0.0000", "0.0000", "0.0000", "1"]
    assert rows["water"] == ["1.0000", "1.0000", "1.0000", "2"]


def test_numbers_have_no_labels_to_score(tmp_path):
    task = types.SimpleNamespace(labels=None, is_multi_label=False)
    example = types.SimpleNamespace(row=1, id="dev-1", label="2.5", labels=())
    arguments = task, [example], ["2.25"], np.float32([[2.25]])
    prediction_files.write_dev_predictions(RunFolder(str(tmp_path)), *arguments)
    assert not (tmp_path / "label_scores.tsv").exists()
