"""Settings of the pre-training program."""

from __future__ import annotations

import pytest

from albert_tf.pretraining.settings import Settings

NEEDED = {"albert_config_file": "c.json", "input_file": "records", "output_dir": "out"}


def test_the_defaults_are_those_of_the_paper():
    settings = Settings(**NEEDED)
    assert (settings.optimizer, settings.learning_rate) == ("lamb", 0.00176)
    assert (settings.train_batch_size, settings.num_train_steps) == (4096, 125000)


def test_masking_during_training_is_rejected():
    with pytest.raises(ValueError, match="masked_lm_budget=3: expected 0"):
        Settings(**NEEDED, masked_lm_budget=3)


def test_a_decay_that_lets_the_learning_rate_grow_is_rejected():
    with pytest.raises(ValueError, match=r"poly_power=-1\.0: expected 0 or more"):
        Settings(**NEEDED, poly_power=-1.0)


@pytest.mark.parametrize("name", ["input_file", "output_dir"])
def test_records_and_folder_are_required(name):
    with pytest.raises(TypeError, match=name):
        Settings(**{other: value for other, value in NEEDED.items() if other != name})
