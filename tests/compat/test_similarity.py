"""Similarity of sentences by a fine-tuned classifier."""

from __future__ import annotations

import numpy as np
import pytest
import similarity

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.checkpoints.store import save_checkpoint
from tests.checkpoints.checkpoint_samples import SHARED, random_weights

PAIRS = [("天气好", "天气不好"), ("你很好", "我很好吗")]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"天气好不你很我吗"]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    """Returns the output directory of a model fine-tuned on a task with two labels."""
    folder = tmp_path_factory.mktemp("model")
    rng = np.random.default_rng(5)
    head = {
        "output_weights": rng.standard_normal((2, SHARED.hidden_size), np.float32),
        "output_bias": np.zeros(2, np.float32),
    }
    save_checkpoint(str(folder / "model.ckpt-best"), random_weights(SHARED) | head)
    SHARED.to_json_file(str(folder / "albert_config.json"))
    (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n", encoding="utf-8")
    task = {"name": "classification", "labels": ["no", "yes"]}
    RunFolder(str(folder)).write_record(RunRecord(task=task))
    return str(folder)


@pytest.mark.ci
def test_the_program_prints_a_table_of_a_file(model_dir, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join("\t".join(pair) + "\t1\n" for pair in PAIRS), encoding="utf-8")
    settings = similarity.Settings(model_dir, input_file=str(path), max_seq_length=11)
    header, *rows = similarity.run(settings).split("\n")
    assert header.split("\t") == ["text_a", "text_b", "prediction", "no", "yes"]
    cells = [row.split("\t") for row in rows]
    assert [tuple(row[:2]) for row in cells] == PAIRS
    for row in cells:
        assert row[2] == ("yes" if float(row[4]) > 0.5 else "no")
