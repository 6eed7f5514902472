"""What the settings say about steps and batches."""

from __future__ import annotations

import dataclasses

import pytest
import tensorflow as tf

from albert_tf.finetuning import splits
from albert_tf.finetuning.settings import FineTuningSettings


def make_settings(**values):
    return FineTuningSettings(**{"output_dir": "out"} | values)


def test_epochs_are_full_batches_and_replace_steps():
    settings = make_settings(train_step=30, warmup_step=4, train_batch_size=5)
    assert splits.training_steps(settings, 23) == (30, 4)
    epochs = dataclasses.replace(settings, num_train_epochs=2.5, warmup_proportion=0.3)
    assert splits.training_steps(epochs, 23) == (11, 3)
    with pytest.raises(ValueError, match=r"0\.1 with 23 examples is less than one step"):
        splits.training_steps(dataclasses.replace(settings, num_train_epochs=0.1), 23)


def test_the_example_order_is_ours_or_googles():
    ours = splits.training_order(make_settings(seed=7))
    assert (ours.seed, ours.batches_to_sort, ours.shuffle_buffer) == (7, 8, None)
    theirs = splits.training_order(make_settings(official_order=True))
    assert (theirs.batches_to_sort, theirs.shuffle_buffer) == (1, 100)


def test_batches_have_few_lengths_and_little_padding(monkeypatch):
    def multiple(**values):
        return splits.padding_multiple(make_settings(**values), tf.distribute.get_strategy())

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    limits = (1, 5, 128, 129, 256, 384, 512)
    assert [multiple(max_seq_length=n) for n in limits] == [2, 2, 2, 4, 4, 6, 8]
    assert multiple(max_seq_length=512, pad_to_multiple=1) == 1
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    assert multiple(max_seq_length=128) == 8
    monkeypatch.setattr(splits.devices, "is_tpu", lambda strategy: True)
    assert multiple(max_seq_length=128, pad_to_multiple=4) == 128
