"""The interface of a task, and what it inherits: mean loss, sums of metrics, evaluation text."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType

import numpy as np
import tensorflow as tf

from albert_tf import classification
from albert_tf.checkpoints.evaluations import Evaluation
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.batching import Padding
from albert_tf.finetuning.splits import Split
from albert_tf.finetuning.task import FineTuningTask


class Distances(FineTuningTask):
    """A minimal task; only its losses are computed."""

    selection_metric = "closeness"
    outputs = MappingProxyType({"logits": 0.0})

    def read(self, split):
        raise NotImplementedError

    def make_features(self, data, split):
        raise NotImplementedError

    def build_model(self):
        raise NotImplementedError

    def losses(self, outputs, batch):
        distances = tf.abs(outputs - batch["label_ids"])
        return distances, {"is_near": distances < 1}

    def measure(self, split, outputs, batch_size):
        raise NotImplementedError


TASK = Distances()
BATCH = {"input_ids": tf.zeros((3, 7), tf.int32), "label_ids": tf.constant([1.0, 2.0, 5.0])}
OUTPUTS = tf.constant([1.5, 0.0, 5.0])


def test_a_task_that_lacks_a_method_cannot_be_instantiated():
    methods = {"read", "make_features", "build_model", "losses", "measure"}
    assert FineTuningTask.__abstractmethods__ == methods


def test_the_loss_is_a_mean_and_metrics_are_sums():
    loss, sums = TASK.loss(OUTPUTS, BATCH)
    np.testing.assert_allclose(loss, 2.5 / 3, rtol=1e-6)
    total, count = sums["is_near"]
    assert (float(total), float(count)) == (2.0, 3.0)


def test_losses_of_micro_batches_add_up_to_that_of_the_batch():
    weights = TASK.loss_weights(BATCH)
    assert weights.shape == (1,)
    parts = [slice(0, 1), slice(1, 3)]
    losses = [
        TASK.loss(OUTPUTS[rows], {name: BATCH[name][rows] for name in BATCH}, weights)[0]
        for rows in parts
    ]
    np.testing.assert_allclose(sum(losses), TASK.loss(OUTPUTS, BATCH)[0], rtol=1e-6)


class DistancesOfSome(Distances):
    """A task in which some tokens have no weight."""

    def sample_weights(self, batch):
        return tf.cast(batch["label_ids"] != 2.0, tf.float32)


def test_examples_with_a_weight_of_zero_do_not_count():
    task = DistancesOfSome()
    np.testing.assert_array_equal(task.loss_weights(BATCH), [2.0])
    loss, sums = task.loss(OUTPUTS, BATCH)
    np.testing.assert_allclose(loss, 0.25)
    assert [float(value) for value in sums["is_near"]] == [2.0, 2.0]


def test_the_defaults_suit_most_tasks():
    assert TASK.padding(Padding(11, 4)) == Padding(11, 4)
    assert TASK.num_examples(Split("train", [], [1, 2, 3])) == 3
    assert TASK.predictions({"logits": 1}) == TASK.served_outputs({"logits": 1}) == {"logits": 1}
    assert TASK.checksum(["a", "b"]) == TASK.checksum(["a", "b"]) != TASK.checksum(["ab"])


def test_metrics_depend_on_the_settings_of_the_model():
    task = Distances()
    task.settings = classification.Settings(task_name="x", data_dir="x", output_dir="x")
    before = task.measured_with(None, 3, None)
    task.settings = dataclasses.replace(task.settings, learning_rate=1.0)
    assert task.measured_with(None, 3, None) == before
    task.settings = dataclasses.replace(task.settings, use_pooled_output=False)
    assert task.measured_with(None, 3, None) != before


def test_predictions_are_json_lines_with_the_fewest_digits(tmp_path):
    outputs = {"logits": np.array([[0.1, 2], [3, 4]], np.float32), "best": np.array([1, 0])}
    TASK.write_predictions(RunFolder(str(tmp_path)), Split("test", [], []), outputs, 7)
    lines = (tmp_path / "test_predictions.jsonl").read_text().splitlines()
    assert lines == ['{"logits": [0.1, 2.0], "best": 1}', '{"logits": [3.0, 4.0], "best": 0}']


def test_evaluations_are_described_by_the_last_one_and_the_best_value():
    task = Distances()
    task.settings = classification.Settings(task_name="x", data_dir="x", output_dir="x")
    evaluations = [
        Evaluation(0, {"closeness": 0.75}, "a", "dev"),
        Evaluation(5, {"closeness": 0.5}, "b", "dev"),
    ]
    text = task.describe_evaluations(RunFolder("out"), evaluations)
    assert text == "closeness = 0.5\nbest = 0.75\n"
