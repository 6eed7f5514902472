"""The order of records in many files: its law, workers that share it, and resumed runs."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.record_metadata import find_records
from albert_tf.pretraining import input_pipeline, record_files, record_streams
from albert_tf.pretraining.features import Feature
from albert_tf.pretraining.record_streams import StreamPlan, choose_streams, take_turns
from albert_tf.training.interruption import InterruptedRunError
from tests.pretraining.conftest import write_numbers

FEATURES = {"number": Feature((1,), tf.int64)}
LENGTHS = (5, 19, 1, 11, 3, 8, 13, 2, 7)  # 69 records
STREAMS, BATCH, BLOCK, SEED = 4, 12, 6, 3


@pytest.fixture(name="numbered")
def make_numbered(tmp_path, monkeypatch):
    """Files of different lengths, with consecutively numbered records."""
    monkeypatch.setattr(record_streams, "SHUFFLE_BLOCK", BLOCK * STREAMS + 1)
    numbers = iter(range(sum(LENGTHS)))
    for i, length in enumerate(LENGTHS):
        write_numbers(tmp_path / f"{i}", itertools.islice(numbers, length))
    return record_files.check_files(find_records(f"{tmp_path}/*", ""), FEATURES)


def take(numbered, count, step=0, rows=None):
    """Returns some batches, int32 [count, rows], and the paths of the files that were opened."""
    plan = StreamPlan(numbered, STREAMS, SEED, step * BATCH // STREAMS)
    dataset = input_pipeline.training_dataset(
        numbered, FEATURES, BATCH, SEED, step * BATCH, rows, plan=plan
    )
    assert dataset.element_spec["number"].shape == (rows.stop - rows.start if rows else BATCH, 1)
    batches = [batch["number"][:, 0].numpy() for batch in itertools.islice(dataset, count)]
    return np.stack(batches), plan.opened


def batches_by_hand(count):
    """The law, record by record: streams that take files when they have none, then blocks."""
    first = np.cumsum([0, *LENGTHS])
    queue = itertools.chain.from_iterable(
        np.random.default_rng([SEED, 1, epoch]).permutation(len(LENGTHS)) for epoch in range(99)
    )
    unread = [[] for _ in range(STREAMS)]
    streams = [[] for _ in range(STREAMS)]
    for _ in range(BLOCK * 20):
        for stream in range(STREAMS):
            if not unread[stream]:
                file = next(queue)
                unread[stream] = list(range(first[file], first[file + 1]))
            streams[stream].append(unread[stream].pop(0))
    for number, stream in enumerate(streams):
        for block in range(20):
            begin = block * BLOCK
            seed = tf.random.fold_in(
                tf.constant([SEED, number], tf.int64), tf.constant(block, tf.int64)
            )
            some = tf.constant(stream[begin : begin + BLOCK])
            shuffled = tf.random.experimental.stateless_shuffle(some, seed)
            stream[begin : begin + BLOCK] = shuffled.numpy().tolist()
    each = BATCH // STREAMS
    return np.array(
        [
            [record for stream in streams for record in stream[step * each : (step + 1) * each]]
            for step in range(count)
        ]
    )


def test_batches_follow_the_law(numbered):
    batches, _ = take(numbered, 40)
    np.testing.assert_array_equal(batches, batches_by_hand(40))
    assert set(Counter(batches.ravel().tolist()).values()) <= {5, 6, 7, 8, 9}  # 480 / 69 = 7


@pytest.mark.parametrize(
    "workers", [pytest.param(2, marks=pytest.mark.ci), 3, pytest.param(4, marks=pytest.mark.ci)]
)
def test_the_rows_of_all_workers_form_the_batches_of_one(numbered, workers):
    size = BATCH // workers
    parts = [
        take(numbered, 9, 5, slice(size * worker, size * (worker + 1)))[0]
        for worker in range(workers)
    ]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), batches_by_hand(14)[5:])


@pytest.mark.parametrize(
    "step", [pytest.param(1, marks=pytest.mark.ci), 23, pytest.param(37, marks=pytest.mark.ci)]
)
def test_a_resumed_run_continues_the_same_order(numbered, step):
    through = batches_by_hand(40)
    batches, _ = take(numbered, 3, step)
    np.testing.assert_array_equal(batches, through[step : step + 3])


def test_a_worker_opens_only_the_files_of_its_streams_and_of_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr(record_streams, "SHUFFLE_BLOCK", BLOCK * STREAMS)
    paths = [str(tmp_path / f"{i}") for i in range(16)]
    for number, path in enumerate(paths):
        write_numbers(path, range(number * 1000, number * 1000 + 1000))
    numbered = record_files.check_files(find_records(f"{tmp_path}/*", ""), FEATURES)
    # Each stream has 4 files an epoch; step 833 is before the middle of the third ones.
    opened = [take(numbered, 1, 833, slice(3 * i, 3 * i + 3))[1] for i in (1, 3)]
    assert [len(files) for files in opened] == [1, 1]
    order = np.random.default_rng([SEED, 1, 0]).permutation(16)
    assert [files[0].path for files in opened] == [sorted(paths)[order[i]] for i in (9, 11)]


@pytest.mark.parametrize("streams", [1, 5, 9])
def test_every_file_is_taken_once_before_any_is_taken_again(streams):
    turns = list(itertools.islice(take_turns(LENGTHS, streams, SEED), 9 * 7))
    for epoch in range(7):
        assert sorted(turn.file for turn in turns[9 * epoch : 9 * epoch + 9]) == list(range(9))
    for stream in range(streams):  # without a gap
        mine = [turn for turn in turns if turn.stream == stream]
        ends = itertools.accumulate(LENGTHS[turn.file] for turn in mine)
        assert [turn.begin for turn in mine] == [0, *ends][: len(mine)]
    assert len({tuple(turn.file for turn in turns[9 * epoch :][:9]) for epoch in range(7)}) == 7


@pytest.mark.parametrize(
    ("given", "files", "batch_size", "expected"),
    [
        (None, 63, 4096, 1),
        (None, 64, 4096, 64),
        (None, 9999, 96, 32),
        (None, 9999, 12, 4),
        (None, 9999, 14, 1),  # two streams mix fewer files than the order for few files
        (None, 9999, 33, 1),
        (1, 9999, 4096, 1),
        (128, 128, 4096, 128),
        (3, 3, 12, 3),
        (64, 63, 4096, "only 63 record files.*=32, or .*NAME@64"),
        (8, 99, 12, "a divisor of --train_batch_size=12.*=6"),
    ],
)
def test_the_number_of_streams_divides_the_batch_and_needs_as_many_files(
    given, files, batch_size, expected
):
    if isinstance(expected, int):
        assert choose_streams(given, files, batch_size) == expected
    else:
        with pytest.raises(ValueError, match=f"--record_streams={given}: .*{expected}"):
            choose_streams(given, files, batch_size)


def test_a_file_that_disappears_meanwhile_is_named(numbered, tmp_path):
    plan = StreamPlan(numbered, STREAMS, SEED)
    dataset = input_pipeline.training_dataset(numbered, FEATURES, BATCH, SEED, plan=plan)
    (tmp_path / "6").unlink()
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}/6: .*removed.* Put it back"):
        list(input_pipeline.batches(dataset, plan.opened))


def test_a_store_that_does_not_answer_interrupts_the_run(numbered):
    with (
        pytest.raises(InterruptedRunError, match=r"8 more: the store .* \(Unavailable.*: busy"),
        record_files.damage_named(numbered),
    ):
        raise tf.errors.UnavailableError(None, None, "busy\nsomewhere")
