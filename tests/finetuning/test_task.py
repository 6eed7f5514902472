"""What a task inherits: mean loss, sums of metrics, predictions in the file's order, and texts."""

from types import MappingProxyType

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import classification
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.task import FineTuningTask, Split


class Distances(FineTuningTask):
    """A minimal task; only its losses are computed."""

    selection_metric = "closeness"
    outputs = MappingProxyType({"logits": 0.0})

    def __init__(self):
        settings = classification.Settings(task_name="x", data_dir="x", output_dir="x")
        super().__init__(settings, None, None)

    def make_features(self, data, split):
        raise NotImplementedError

    def build_model(self):
        raise NotImplementedError

    def losses(self, outputs, batch):
        distances = tf.abs(outputs - batch["label_ids"])
        return distances, {"is_near": distances < 1}

    def measure(self, split, outputs, batch_size):
        raise NotImplementedError


class DistancesOfSome(Distances):
    """A task in which some examples have no weight."""

    def sample_weights(self, batch):
        return tf.cast(batch["label_ids"] != 2.0, tf.float32)


BATCH = {"input_ids": tf.zeros((3, 7), tf.int32), "label_ids": tf.constant([1.0, 2.0, 5.0])}
OUTPUTS = tf.constant([1.5, 0.0, 5.0])


def test_the_loss_is_a_mean_and_metrics_are_sums_over_examples_with_a_weight():
    loss, sums = Distances().loss(OUTPUTS, BATCH)
    np.testing.assert_allclose(loss, 2.5 / 3, rtol=1e-6)
    assert [float(value) for value in sums["is_near"]] == [2.0, 3.0]
    loss, sums = DistancesOfSome().loss(OUTPUTS, BATCH)
    np.testing.assert_allclose(loss, 0.25)
    assert [float(value) for value in sums["is_near"]] == [2.0, 2.0]


@pytest.mark.parametrize("task", [Distances(), DistancesOfSome()])
def test_losses_of_micro_batches_add_up_to_that_of_the_batch(task):
    weights = task.loss_weights(BATCH)
    assert weights.shape == (1,)
    losses = [
        task.loss(OUTPUTS[rows], {name: BATCH[name][rows] for name in BATCH}, weights)[0]
        for rows in (slice(0, 1), slice(1, 3))
    ]
    np.testing.assert_allclose(sum(losses), task.loss(OUTPUTS, BATCH)[0], rtol=1e-6)


def test_predictions_are_json_lines_with_the_fewest_digits(tmp_path):
    outputs = {"logits": np.array([[0.1, 2], [3, 4]], np.float32), "best": np.array([1, 0])}
    Distances().write_predictions(RunFolder(str(tmp_path)), Split("test", [], []), outputs, 7)
    lines = (tmp_path / "test_predictions.jsonl").read_text().splitlines()
    assert lines == ['{"logits": [0.1, 2.0], "best": 1}', '{"logits": [3.0, 4.0], "best": 0}']
