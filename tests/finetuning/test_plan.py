"""What the settings say about steps, the order of examples, and padding."""

import pytest
import tensorflow as tf

from albert_tf.finetuning import engine as plan
from albert_tf.finetuning.batching import TrainingOrder
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.training import replicas


def make_settings(**values):
    return FineTuningSettings(output_dir="out", **values)


def test_epochs_are_full_batches_and_replace_steps():
    def steps(**epochs):
        settings = make_settings(train_step=30, warmup_step=4, train_batch_size=5, **epochs)
        return plan.training_steps(settings, 23)

    assert steps() == (30, 4)
    assert steps(num_train_epochs=2.5, warmup_proportion=0.3) == (11, 3)
    with pytest.raises(ValueError, match=r"0\.1 with 23 examples is less than one step"):
        steps(num_train_epochs=0.1)


@pytest.mark.parametrize(
    ("num_examples", "epochs", "proportion", "expected"),
    [
        (5, 1.0, 1.0, (1, 1)),  # just one step, all of it warm-up
        (9, 1.0, 0.99, (1, 0)),  # 1.8 steps, 0.99 of warm-up
        (10, 1.0, 0.5, (2, 1)),
        (10, 1.5, 0.34, (3, 1)),
    ],
)
def test_steps_and_warm_up_are_rounded_down(num_examples, epochs, proportion, expected):
    settings = make_settings(
        train_batch_size=5, num_train_epochs=epochs, warmup_proportion=proportion
    )
    assert plan.training_steps(settings, num_examples) == expected
    with pytest.raises(ValueError, match="with 4 examples is less than one step"):
        plan.training_steps(make_settings(train_batch_size=5, num_train_epochs=1.0), 4)


def test_the_example_order_is_ours_or_googles():
    assert plan.training_order(make_settings(seed=7)) == TrainingOrder(32, 7, None, 8)
    theirs = plan.training_order(make_settings(seed=7, official_order=True))
    assert theirs == TrainingOrder(32, 7, 100, 1)


def test_batches_have_few_lengths_and_little_padding(monkeypatch):
    def multiple(num_batches=None, **values):
        strategy = tf.distribute.get_strategy()
        return plan.padding_multiple(make_settings(**values), strategy, num_batches)

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    limits = (1, 5, 128, 129, 256, 384, 512)
    assert [multiple(max_seq_length=n) for n in limits] == [2, 2, 2, 4, 4, 6, 8]
    of_evaluation = [multiple(n, max_seq_length=128) for n in (0, 3, 27, 125, 5000)]
    assert of_evaluation == [128, 128, 26, 12, 2]
    # At most 64 lengths, and so many only for 64² batches.
    assert [multiple(n, max_seq_length=128) for n in (4095, 4096, 4097)] == [4, 2, 2]
    assert multiple(27, max_seq_length=512, pad_to_multiple=1) == 1
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    assert multiple(max_seq_length=128) == 8
    monkeypatch.setattr(replicas, "is_tpu", lambda strategy: True)
    assert multiple(max_seq_length=128, pad_to_multiple=4) == 128
