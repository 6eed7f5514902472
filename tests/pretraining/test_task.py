"""The pre-training task: losses in NumPy, and the record files that it accepts."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.evaluations import Evaluation
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.pretraining.task import PretrainingTask, format_results
from tests.conftest import BATCH_SIZE, MAX_PREDICTIONS, SEQ_LENGTH
from tests.training.test_loop import write_records


@pytest.fixture(name="task")
def make_task(tiny_config):
    return PretrainingTask(tiny_config, SEQ_LENGTH, MAX_PREDICTIONS)


@pytest.fixture(name="path")
def make_path(tmp_path):
    path = tmp_path / "train.tfrecord"
    write_records(path, 4)
    return path


def write_metadata(path, size):
    entry = {"name": path.name, "instances": 4, "bytes": path.stat().st_size}
    vocabulary = {"size": size, "checksum": "a", "file": "a.model"}
    metadata = {"files": [entry], "settings": {}, "vocabulary": vocabulary, "mask_id": 4}
    (path.parent / "x.records.json").write_text(json.dumps(metadata))


@pytest.mark.parametrize("weight", [1.0, 0.25, 0.0])
@pytest.mark.parametrize("name", ["sentence_order", "next_sentence", None])
def test_losses_follow_the_formula(tiny_config, tiny_batch, name, weight):
    objective = {"sentence_order": "sop", "next_sentence": "nsp", None: "none"}[name]
    task = PretrainingTask(tiny_config, SEQ_LENGTH, MAX_PREDICTIONS, objective, weight)
    assert ("next_sentence_labels" in task.features) == (name is not None)
    rng = np.random.default_rng(3)
    words = rng.normal(size=(BATCH_SIZE, MAX_PREDICTIONS, 97)).astype(np.float32)
    order = rng.normal(size=(BATCH_SIZE, 2)).astype(np.float32)
    outputs = {"masked_lm_logits": tf.constant(words)}
    outputs |= {f"{name}_logits": tf.constant(order)} if name else {}
    batch = {k: tf.constant(v) for k, v in tiny_batch.items() if k in task.features}
    loss, sums = task.loss(outputs, batch)

    def log_softmax(x):
        return x - np.log(np.exp(x).sum(-1, keepdims=True))

    labels, weights = tiny_batch["masked_lm_ids"], tiny_batch["masked_lm_weights"]
    losses = -np.take_along_axis(log_softmax(words), labels[..., None], -1)[..., 0]
    targets = tiny_batch["next_sentence_labels"]
    order_losses = -np.take_along_axis(log_softmax(order), targets, -1)
    expected = (losses * weights).sum() / (weights.sum() + 1e-5)
    expected += weight * order_losses.mean() if name else 0
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert float(sums["masked_lm_loss"][0]) == pytest.approx((losses * weights).sum(), rel=1e-5)
    hits = ((words.argmax(-1) == labels) * weights).sum()
    assert [float(x) for x in sums["masked_lm_accuracy"]] == [hits, weights.sum()]
    of_pairs = {metric: values for metric, values in sums.items() if "masked_lm" not in metric}
    assert set(of_pairs) == ({f"{name}_loss", f"{name}_accuracy"} if name else set())
    if name:
        right = (order.argmax(-1) == targets[:, 0]).sum()
        assert [float(x) for x in sums[f"{name}_accuracy"]] == [right, BATCH_SIZE]
        assert float(sums[f"{name}_loss"][0]) == pytest.approx(order_losses.sum(), rel=1e-5)


def test_empty_prediction_slots_do_not_count(task, tiny_batch, tiny_model):
    outputs = tiny_model(tiny_batch)
    batch = {name: tf.constant(value) for name, value in tiny_batch.items()}
    loss, _ = task.loss(outputs, batch)
    unused = 1 - tiny_batch["masked_lm_weights"].astype(np.int32)
    batch["masked_lm_ids"] = tf.constant(tiny_batch["masked_lm_ids"] + 9 * unused)
    other, _ = task.loss(outputs, batch)
    assert float(other) == float(loss)


def test_a_sequence_longer_than_the_positions_is_rejected(tiny_config):
    with pytest.raises(ValueError, match=r"--max_seq_length=14 is larger .*max_position_.*=13"):
        PretrainingTask(tiny_config, 14, MAX_PREDICTIONS)


@pytest.mark.parametrize(
    ("changes", "lengths", "vocabulary", "message"),
    [
        ({}, (11, 7), 97, None),
        ({}, (12, 7), 97, r"input_ids has 11 values, but --max_seq_length=12\."),
        ({}, (11, 8), 97, r"has 7 values, but --max_predictions_per_seq=8\."),
        ({"vocab_size": 50}, (11, 7), 50, r"ids contains \d+, expected 0 to 49 .* vocab_size=50"),
        ({}, (11, 7), 98, r"vocabulary of 98 entries.* vocab_size=97.*a\.model"),
    ],
)
def test_records_are_those_of_the_task(tiny_config, path, changes, lengths, vocabulary, message):
    write_metadata(path, vocabulary)
    task = PretrainingTask(dataclasses.replace(tiny_config, **changes), *lengths)
    if message is None:
        (file,) = task.find_records(f"{path.parent}/*", "input_file")
        assert file.num_records == 4
        return
    with pytest.raises(ValueError, match=message):
        task.find_records(str(path), "input_file")


def test_records_without_masked_tokens_are_accepted_with_a_warning(task, path, caplog):
    task.find_records(str(path), "input_file")
    assert not caplog.records
    write_records(path, 4, masked=0)
    task.find_records(str(path), "input_file")
    assert f"{path}: the first record has no masked tokens" in caplog.text


def test_results_are_sorted_lines(task, tmp_path):
    results = [
        Evaluation(step, {"loss": loss}, "a", "records") for step, loss in ((2, 1.5), (4, 1.25))
    ]
    assert format_results(results[0]) == "global_step = 2\nloss = 1.5\n"
    folder = RunFolder(str(tmp_path))
    task.write_evaluations(folder, results)
    text = (tmp_path / "eval_results.txt").read_text()
    assert text == "global_step = 2\nloss = 1.5\nglobal_step = 4\nloss = 1.25\n"
    in_bfloat16 = [dataclasses.replace(result, precision="bfloat16") for result in results]
    task.write_evaluations(folder, in_bfloat16)
    first, *others = (tmp_path / "eval_results.txt").read_text().splitlines(keepends=True)
    assert first.startswith("# Computed in bfloat16; ")
    assert "".join(others) == text
