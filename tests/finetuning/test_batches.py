"""The order of training examples, and the padding of batches."""

import itertools

import numpy as np
import pytest

from albert_tf.finetuning import batching
from albert_tf.finetuning.batching import Padding, TrainingOrder
from albert_tf.finetuning.engine import training_dataset
from albert_tf.finetuning.token_sequences import TokenSequences

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


@pytest.mark.parametrize(
    ("count", "batch_size"), [(10, 32), (100, 32), (240, 32), (23, 5), (64, 8)]
)
@pytest.mark.parametrize("batches_to_sort", [1, 3, 32])
def test_batches_of_similar_lengths_have_each_example_once_an_epoch(
    count, batch_size, batches_to_sort
):
    lengths = np.random.default_rng(5).integers(2, 19, count)
    of_length = TokenSequences.pack(
        [([7] * n, n) for n in lengths], {"label_ids": np.arange(count)}
    )
    order = TrainingOrder(batch_size, seed=3, batches_to_sort=batches_to_sort)
    steps = 3 * count // batch_size + 1
    batches = training_batches(of_length, order, steps)
    examples = np.concatenate([batch["label_ids"] for batch in batches])
    for epoch in range(1, 4):
        so_far = examples[: epoch * count // batch_size * batch_size]
        times = np.bincount(so_far, minlength=count)
        assert times.max() <= epoch
        assert times.sum() > epoch * count - batch_size  # no other is missing


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


def test_the_seed_orders_sorted_batches_of_examples_in_the_order_of_the_file(features):
    def labels(seed):
        order = TrainingOrder(5, seed, shuffle_buffer=1, batches_to_sort=23)
        return [tuple(batch["label_ids"]) for batch in training_batches(features, order, 23)]

    assert labels(3) == labels(3) != labels(4)
    assert sorted(labels(3)) == sorted(labels(4))


def test_evaluation_sees_every_example_once_longest_first(features):
    batches = list(batching.evaluation_batches(features, 5, PADDING))
    rows = np.concatenate([rows for rows, _ in batches])
    assert sorted(rows.tolist()) == list(range(NUM_EXAMPLES))
    assert [len(rows) for rows, _ in batches] == [5, 5, 5, 5, 3]
    for rows, batch in batches:
        assert batch["label_ids"].tolist() == rows.tolist()
    lengths = [batch["input_ids"].shape[1] for _, batch in batches]
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize(
    ("batch_size", "sizes"), [(23, [23]), (24, [23]), (22, [22, 1]), (1, [1] * 23)]
)
def test_the_last_evaluation_batch_is_full_or_has_the_remaining_examples(
    features, batch_size, sizes
):
    batches = batching.evaluation_batches(features, batch_size, PADDING)
    assert [len(rows) for rows, _ in batches] == sizes


def test_a_training_dataset_starts_at_any_step_and_has_the_rows_of_its_process(features):
    order = TrainingOrder(5, seed=3, batches_to_sort=3)
    through = [batch["label_ids"] for batch in training_batches(features, order, 9)]
    dataset = training_dataset(features, order, PADDING, 4, slice(2, 5))
    assert dataset.options().autotune.enabled is False  # see `training.task.prefetch`
    for batch, whole in zip(dataset, through[4:], strict=False):
        np.testing.assert_array_equal(batch["label_ids"], whole[2:5])
