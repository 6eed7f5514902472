"""What run_token_classification.py alone does; `test_programs.py` has what all programs do."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.cli.fine_tuning_programs import conll

pytestmark = pytest.mark.ci


def columns(path):
    return [line.split("\t") for line in path.read_text().splitlines() if line]


def test_predictions_of_all_tokens_are_written_in_columns(tagger):
    finished = tagger.out
    rows = columns(finished / "dev_predictions.tsv")
    expected = [line.split() for line in conll().splitlines() if line]
    assert [row[:2] for row in rows] == expected
    assert {row[2] for row in rows} <= {"B-LOC", "B-OBJ", "O"}
    assert (finished / "dev_predictions.tsv").read_text().count("\n\n") == 6
    # They are those of the best checkpoint.
    hits = np.mean([row[1] == row[2] for row in rows])
    accuracies = re.findall(r"accuracy = (\S+)", (finished / "eval_results.txt").read_text())
    assert any(hits == pytest.approx(float(value)) for value in accuracies)
    assert columns(finished / "test_predictions.tsv") == [[row[0], row[2]] for row in rows]
    assert not (finished / "predict_results.txt").exists()
