"""The learning rate of pre-training, scaled to the batch size."""

from __future__ import annotations

import pytest

from albert_tf.pretraining.schedule import choose_learning_rate, scaled_learning_rate
from albert_tf.pretraining.settings import Settings


def choose(rate, batch_size, **changes):
    settings = Settings(
        input_file="records",
        output_dir="out",
        learning_rate=rate,
        train_batch_size=batch_size,
        **changes,
    )
    return choose_learning_rate(settings)


def test_the_learning_rate_scales_with_the_square_root_of_the_batch_size():
    assert scaled_learning_rate(0.00176, 4096) == 0.00176
    assert choose(0.00176, 1024, scale_learning_rate=True) == pytest.approx(0.00088)


@pytest.mark.parametrize(
    ("rate", "batch_size", "advised"),
    [
        (0.00176, 32, "0.000156"),
        (0.00176, 1024, "0.00088"),
        (0.00176, 4096, None),
        (0.00176, 1025, None),
        (0.001, 32, None),
    ],
)
def test_a_warning_reports_the_papers_rate_with_a_small_batch(rate, batch_size, advised, caplog):
    assert choose(rate, batch_size) == rate
    assert len(caplog.messages) == (advised is not None)
    for warning in caplog.messages:
        assert f"--train_batch_size is {batch_size}" in warning
        assert f"--scale_learning_rate, or --learning_rate={advised}." in warning
