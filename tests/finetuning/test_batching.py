import itertools

import numpy as np
import pytest

from albert_tf.finetuning import batching
from albert_tf.finetuning.batching import Padding, TrainingOrder
from albert_tf.finetuning.sequences import TokenSequences

NUM_EXAMPLES = 23
PADDING = Padding(max_seq_length=20, multiple=4)


@pytest.fixture
def features():
    """Returns features where example i has the label i and a length between 2 and 18."""
    lengths = np.random.default_rng(5).integers(2, 19, NUM_EXAMPLES)
    return TokenSequences.pack(
        [([7] * length, length) for length in lengths],
        {"label_ids": np.arange(NUM_EXAMPLES, dtype=np.int32)},
    )


def take(order, count, start=0):
    return list(itertools.islice(batching.example_order(NUM_EXAMPLES, order, start), count))


ORDERS = [
    TrainingOrder(5, seed=3),
    TrainingOrder(5, seed=3, shuffle_buffer=7),
    TrainingOrder(5, seed=3, shuffle_buffer=100),
    TrainingOrder(5, seed=3, shuffle_buffer=1),
    TrainingOrder(5, seed=3, batches_to_sort=6),
    TrainingOrder(5, seed=3, shuffle_buffer=7, batches_to_sort=6),
]


@pytest.mark.parametrize("order", ORDERS)
def test_resuming_continues_the_same_order(features, order):
    def steps(start, stop):
        batches = batching.training_batches(features, order, PADDING, start)
        return [batch["label_ids"].tolist() for batch in itertools.islice(batches, stop - start)]

    through = steps(0, 40)
    for start in (1, 5, 6, 13, 39):
        assert steps(start, 40) == through[start:]


@pytest.mark.parametrize("order", ORDERS)
def test_all_examples_occur_about_equally_often(features, order):
    batches = batching.training_batches(features, order, PADDING)
    seen = np.concatenate([batch["label_ids"] for batch in itertools.islice(batches, 138)])
    counts = np.bincount(seen, minlength=NUM_EXAMPLES)  # 690 = 30 epochs
    assert counts.min() >= 20
    assert counts.max() <= 40


def test_an_epoch_has_every_example_once_in_a_new_order():
    order = TrainingOrder(5, seed=3)
    epochs = [take(order, NUM_EXAMPLES, epoch * NUM_EXAMPLES) for epoch in range(3)]
    assert all(sorted(epoch) == list(range(NUM_EXAMPLES)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert take(TrainingOrder(5, seed=4), NUM_EXAMPLES) != epochs[0]


def test_a_buffer_of_one_keeps_the_order_of_the_file():
    order = TrainingOrder(5, seed=3, shuffle_buffer=1)
    assert take(order, 50) == [number % NUM_EXAMPLES for number in range(50)]


def test_a_buffer_never_runs_ahead_of_its_size():
    """As in Google's `repeat().shuffle(7)`, position t holds an example up to t + 6 only."""
    size = 7
    order = take(TrainingOrder(5, seed=3, shuffle_buffer=size), 23)
    assert all(number < place + size for place, number in enumerate(order[:17]))
    assert any(number != place for place, number in enumerate(order))
    # An example leaves the buffer with probability 1/7 per draw: the mean delay is 6 draws.
    numbers = batching.example_order(5000, TrainingOrder(5, shuffle_buffer=size))
    late = np.arange(4900) - np.array(list(itertools.islice(numbers, 4900)))
    assert late.min() == 1 - size
    assert np.mean(late == 1 - size) == pytest.approx(1 / size, abs=0.02)
    assert np.mean(late) == pytest.approx(0.0, abs=0.3)


def test_a_batch_is_as_long_as_its_longest_row_rounded_up(features):
    batches = batching.training_batches(features, TrainingOrder(5, seed=3), PADDING)
    lengths = set()
    for batch in itertools.islice(batches, 20):
        longest = batch["input_mask"].sum(axis=1).max()
        assert batch["input_ids"].shape == (5, -(-longest // 4) * 4)
        lengths.add(batch["input_ids"].shape[1])
    assert len(lengths) > 1


def test_padding_never_passes_the_maximum_and_may_be_full():
    assert [Padding(20, 8).length(n) for n in (1, 8, 9, 16, 17, 20)] == [8, 8, 16, 16, 20, 20]
    assert {Padding(20, 20).length(n) for n in range(1, 21)} == {20}


def test_sorting_batches_saves_padding_and_keeps_the_examples(features):
    def positions(order):
        batches = itertools.islice(batching.training_batches(features, order, PADDING), 138)
        return sum(batch["input_ids"].size for batch in batches)

    plain, by_length = (TrainingOrder(5, seed=3, batches_to_sort=n) for n in (1, 23))
    assert positions(by_length) < 0.8 * positions(plain)
    # 23 batches are 5 epochs: each example occurs 5 times.
    batches = itertools.islice(batching.training_batches(features, by_length, PADDING), 23)
    counts = np.bincount(np.concatenate([batch["label_ids"] for batch in batches]))
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


def test_training_without_examples_is_rejected():
    with pytest.raises(ValueError, match="no examples"):
        batching.example_order(0, TrainingOrder(5))
