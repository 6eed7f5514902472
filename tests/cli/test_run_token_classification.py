"""What run_token_classification.py alone does; `test_programs.py` has what all programs do."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import token_classification
from albert_tf.token_classification import task
from albert_tf.token_classification.reading import read_sentences
from albert_tf.tokenization import FullTokenizer
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


def test_the_exported_model_predicts_like_the_best_checkpoint(tagger, tmp_path):
    finished, path = tagger.out, tagger.saved_model()
    assert (path / "assets.extra" / "labels.txt").read_text() == "B-LOC\nB-OBJ\nO\n"
    tokenizer = FullTokenizer(spm_model_file=str(path / "assets.extra" / "toy.model"))
    settings = token_classification.Settings(data_dir=str(tmp_path), output_dir="none")
    (tmp_path / "test.txt").write_text(conll())
    data = read_sentences(settings, "test")
    labels = ("B-LOC", "B-OBJ", "O")
    windows = task.make_features(data, labels, tokenizer, 17)
    batch = windows.batch(np.arange(len(windows)), 17)
    del batch["label_ids"]
    signatures = tf.saved_model.load(str(path)).signatures
    served = signatures["tensors"](**{name: tf.constant(x) for name, x in batch.items()})
    found = [labels[number] for number in windows.at_tokens(served["predictions"].numpy())]
    assert found == [row[2] for row in columns(finished / "dev_predictions.tsv")]
    assert served["probabilities"].shape == (len(windows), 17, 3)
