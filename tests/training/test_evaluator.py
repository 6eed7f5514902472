"""The metrics of a task over a dataset."""

from __future__ import annotations

import pytest
import tensorflow as tf

from albert_tf.training.evaluator import Evaluator
from tests.training.one_weight import OneWeightTask


def test_metrics_are_weighted_means_over_the_whole_set_and_the_loss_a_mean_of_batches():
    """As in Google's programs. The error of a row is |x / 4 − 1|, and its loss the square."""
    task = OneWeightTask()
    dataset = tf.data.Dataset.from_tensor_slices({"x": [1.0, 2.0, 3.0]}).batch(2)

    def evaluate(max_steps=None):
        return Evaluator(task.build_model(), task, dataset, max_steps).evaluate()

    losses = (0.75**2 + 0.5**2) / 2, 0.25**2
    assert evaluate() == pytest.approx({"error": 1.5 / 3, "loss": sum(losses) / 2})
    assert evaluate(1) == pytest.approx({"error": 1.25 / 2, "loss": losses[0]})
