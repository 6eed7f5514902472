"""The order of training examples, the padding of batches, and what the settings say about both."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.finetuning import batching, task
from albert_tf.finetuning.batching import Padding, TokenSequences, TrainingOrder
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.training import replicas

NUM_EXAMPLES = 23
PADDING = Padding(max_seq_length=20, multiple=4)
SHUFFLED = TrainingOrder(5, seed=3)
ORDERS = [
    SHUFFLED,
    TrainingOrder(5, seed=3, shuffle_buffer=7),
    TrainingOrder(5, seed=3, shuffle_buffer=100),
    TrainingOrder(5, seed=3, shuffle_buffer=1),
    TrainingOrder(5, seed=3, batches_to_sort=6),
    TrainingOrder(5, seed=3, shuffle_buffer=7, batches_to_sort=6),
]


@pytest.fixture(scope="module")
def features():
    """Features where example i has the label i and a length between 2 and 18."""
    lengths = np.random.default_rng(5).integers(2, 19, NUM_EXAMPLES)
    return TokenSequences.pack(
        [([7] * length, length) for length in lengths],
        {"label_ids": np.arange(NUM_EXAMPLES, dtype=np.int32)},
    )


def take(order, count, start=0):
    return list(itertools.islice(batching.example_order(NUM_EXAMPLES, order, start), count))


def training_batches(features, order, count, start=0):
    batches = batching.training_batches(features, order, PADDING, start)
    return list(itertools.islice(batches, count))


@pytest.mark.parametrize("order", ORDERS)
def test_resuming_continues_the_same_order(features, order):
    def labels(start, stop):
        batches = training_batches(features, order, stop - start, start)
        return [batch["label_ids"].tolist() for batch in batches]

    through = labels(0, 40)
    for start in (1, 5, 6, 13, 39):
        assert labels(start, 40) == through[start:]


def test_an_epoch_has_every_example_once_in_a_new_order():
    epochs = [take(SHUFFLED, NUM_EXAMPLES, epoch * NUM_EXAMPLES) for epoch in range(3)]
    assert all(sorted(epoch) == list(range(NUM_EXAMPLES)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert take(TrainingOrder(5, seed=4), NUM_EXAMPLES) != epochs[0]
    with pytest.raises(ValueError, match="no examples"):
        batching.example_order(0, SHUFFLED)


def test_a_buffer_never_runs_ahead_of_its_size():
    """As in Google's `repeat().shuffle(7)`, position t holds an example up to t + 6 only."""
    in_file_order = TrainingOrder(5, seed=3, shuffle_buffer=1)
    assert take(in_file_order, 50) == [number % NUM_EXAMPLES for number in range(50)]
    size = 7
    numbers = batching.example_order(5000, TrainingOrder(5, shuffle_buffer=size))
    late = np.arange(4900) - np.array(list(itertools.islice(numbers, 4900)))
    # An example leaves the buffer with probability 1/7 per draw: the mean delay is 6 draws.
    assert late.min() == 1 - size
    assert np.mean(late == 1 - size) == pytest.approx(1 / size, abs=0.02)
    assert np.mean(late) == pytest.approx(0.0, abs=0.3)


def test_a_batch_is_as_long_as_its_longest_row_rounded_up(features):
    batches = training_batches(features, SHUFFLED, 20)
    for batch in batches:
        longest = batch["input_mask"].sum(axis=1).max()
        assert batch["input_ids"].shape == (5, -(-longest // 4) * 4)
    assert [Padding(20, 8).length(n) for n in (1, 8, 9, 16, 17, 20)] == [8, 8, 16, 16, 20, 20]
    assert {Padding(20, 20).length(n) for n in range(1, 21)} == {20}


def test_sorting_batches_saves_padding_and_keeps_the_examples(features):
    plain, by_length = (
        training_batches(features, TrainingOrder(5, seed=3, batches_to_sort=n), 138)
        for n in (1, 23)
    )
    sizes = [sum(batch["input_ids"].size for batch in batches) for batches in (plain, by_length)]
    assert sizes[1] < 0.8 * sizes[0]
    # 23 batches are 5 epochs: each example occurs 5 times.
    counts = np.bincount(np.concatenate([batch["label_ids"] for batch in by_length[:23]]))
    assert counts.tolist() == [5] * 23


def test_evaluation_sees_every_example_once_longest_first(features):
    batches = list(batching.evaluation_batches(features, 5, PADDING))
    rows = np.concatenate([rows for rows, _ in batches])
    assert sorted(rows.tolist()) == list(range(NUM_EXAMPLES))
    assert [len(rows) for rows, _ in batches] == [5, 5, 5, 5, 3]
    for rows, batch in batches:
        assert batch["label_ids"].tolist() == rows.tolist()
    lengths = [batch["input_ids"].shape[1] for _, batch in batches]
    assert lengths == sorted(lengths, reverse=True)


def test_a_training_dataset_starts_at_any_step_and_has_the_rows_of_its_process(features):
    order = TrainingOrder(5, seed=3, batches_to_sort=3)
    through = [batch["label_ids"] for batch in training_batches(features, order, 9)]
    dataset = batching.training_dataset(features, order, PADDING, 4, slice(2, 5))
    assert dataset.options().autotune.enabled is False  # see `task.prefetch`
    for batch, whole in zip(dataset, through[4:], strict=False):
        np.testing.assert_array_equal(batch["label_ids"], whole[2:5])


# Sequences

SEQUENCES = [([2, 7, 3], 3), ([2, 8, 9, 3, 7, 3], 4), ([2, 3], 2), ([2, 5, 3, 6, 3], 3)]
LABELS = {"label_ids": np.array([1, 0, 2, 1], np.int32)}


def test_a_batch_is_padded_and_in_the_requested_order():
    sequences = TokenSequences.pack(SEQUENCES, LABELS)
    assert (len(sequences), sequences.lengths.tolist()) == (4, [3, 6, 2, 5])
    batch = sequences.batch(np.array([3, 0]), 7)
    assert batch["input_ids"].tolist() == [[2, 5, 3, 6, 3, 0, 0], [2, 7, 3, 0, 0, 0, 0]]
    assert batch["input_mask"].tolist() == [[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0, 0]]
    assert batch["segment_ids"].tolist() == [[0, 0, 0, 1, 1, 0, 0], [0] * 7]
    assert batch["label_ids"].tolist() == [1, 1]
    assert {value.dtype.name for value in batch.values()} == {"int32"}


def test_options_of_a_question_are_stacked():
    missing = ([], 0)
    questions = TokenSequences.pack(
        [*SEQUENCES[:2], missing, SEQUENCES[3], SEQUENCES[0], SEQUENCES[2]],
        {"label_ids": np.array([0, 2], np.int32)},
        num_choices=3,
    )
    assert (len(questions), questions.lengths.tolist()) == (2, [6, 5])
    batch = questions.batch(np.array([0, 1]), 6)
    assert batch["input_ids"].shape == (2, 3, 6)
    assert batch["input_ids"][0].tolist() == [[2, 7, 3, 0, 0, 0], [2, 8, 9, 3, 7, 3], [0] * 6]
    assert batch["segment_ids"][1, 0].tolist() == [0, 0, 0, 1, 1, 0]
    # No question of this batch has a third option.
    assert questions.batch(np.array([0, 0]), 6)["input_mask"].shape == (2, 2, 6)


# Settings


def make_settings(**values):
    return FineTuningSettings(output_dir="out", **values)


def test_epochs_are_full_batches_and_replace_steps():
    def steps(**epochs):
        settings = make_settings(train_step=30, warmup_step=4, train_batch_size=5, **epochs)
        return task.training_steps(settings, 23)

    assert steps() == (30, 4)
    assert steps(num_train_epochs=2.5, warmup_proportion=0.3) == (11, 3)
    with pytest.raises(ValueError, match=r"0\.1 with 23 examples is less than one step"):
        steps(num_train_epochs=0.1)


def test_the_example_order_is_ours_or_googles():
    assert task.training_order(make_settings(seed=7)) == TrainingOrder(32, 7, None, 8)
    theirs = task.training_order(make_settings(seed=7, official_order=True))
    assert theirs == TrainingOrder(32, 7, 100, 1)


def test_batches_have_few_lengths_and_little_padding(monkeypatch):
    def multiple(num_batches=None, **values):
        strategy = tf.distribute.get_strategy()
        return task.padding_multiple(make_settings(**values), strategy, num_batches)

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    limits = (1, 5, 128, 129, 256, 384, 512)
    assert [multiple(max_seq_length=n) for n in limits] == [2, 2, 2, 4, 4, 6, 8]
    of_evaluation = [multiple(n, max_seq_length=128) for n in (0, 3, 27, 125, 5000)]
    assert of_evaluation == [128, 128, 26, 12, 2]
    assert multiple(27, max_seq_length=512, pad_to_multiple=1) == 1
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    assert multiple(max_seq_length=128) == 8
    monkeypatch.setattr(replicas, "is_tpu", lambda strategy: True)
    assert multiple(max_seq_length=128, pad_to_multiple=4) == 128
