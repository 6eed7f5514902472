"""The order of records: its law, streams of records that workers share, and resumed runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.record_metadata import find_records
from albert_tf.pretraining import input_pipeline, record_files, record_streams
from albert_tf.pretraining.features import Feature
from albert_tf.pretraining.record_files import RecordFile
from albert_tf.pretraining.record_streams import StreamPlan, choose_streams, divide_epoch
from albert_tf.training.interruption import InterruptedRunError
from tests.pretraining.conftest import write_numbers

FEATURES = {"number": Feature((1,), tf.int64)}
LENGTHS = (5, 19, 1, 11, 3, 8, 13, 2, 7)  # 69 records
STREAMS, BATCH, BLOCK, SEED = 4, 12, 6, 3


def write_files(folder, lengths):
    """Returns files of these lengths, with consecutively numbered records."""
    numbers = itertools.count()
    return [
        RecordFile(write_numbers(folder / f"{i}", itertools.islice(numbers, n)), n, f"{i}")
        for i, n in enumerate(lengths)
    ]


@pytest.fixture(name="numbered")
def make_numbered(tmp_path, monkeypatch):
    """Files of different lengths, with consecutively numbered records."""
    monkeypatch.setattr(record_streams, "SHUFFLE_BLOCK", BLOCK * STREAMS + 1)
    return write_files(tmp_path, LENGTHS)


def take(numbered, count, step=0, rows=None, streams=STREAMS, batch_size=BATCH):
    """Returns some batches, int32 [count, rows], and the paths of the files that were opened."""
    start, plan = step * batch_size, None
    if streams > 1:
        plan = StreamPlan(numbered, streams, batch_size, SEED, start)
    dataset = input_pipeline.training_dataset(
        numbered, FEATURES, batch_size, SEED, start, rows, plan=plan
    )
    width = rows.stop - rows.start if rows else batch_size
    assert dataset.element_spec["number"].shape == (width, 1)
    batches = [batch["number"][:, 0].numpy() for batch in itertools.islice(dataset, count)]
    return np.stack(batches), plan.opened if plan else numbered


def assert_each_once(batches, total):
    """The law: records e * N to (e + 1) * N of the order are all N records, for any epoch e."""
    order = batches.ravel()
    whole = len(order) // total * total
    assert whole >= 3 * total
    epochs = order[:whole].reshape(-1, total)
    np.testing.assert_array_equal(np.sort(epochs, axis=1), [np.arange(total)] * len(epochs))
    assert len(set(order[whole:].tolist())) == len(order) - whole
    # So among the whole batches of an epoch no record comes twice, and after any number of batches
    # each was read equally often or, if it is of the epoch that has begun, once more.
    assert len(set(map(bytes, epochs))) == len(epochs)  # in other orders


def lengths_of(kind, num_files):
    rng = np.random.default_rng(num_files)
    mean = 6 if num_files < 1000 else 2
    drawn = {
        "equal": np.full(num_files, mean),
        "uneven": rng.integers(1, 2 * mean, num_files),
        "lognormal": np.maximum(rng.lognormal(np.log(mean / 2), 1.2, num_files), 1),
    }
    lengths = drawn[kind].astype(int).tolist()
    return [300] if num_files == 1 else [40 * n for n in lengths] if num_files == 5 else lengths


@pytest.mark.ci
@pytest.mark.parametrize(
    ("num_files", "streams"),
    [*((n, None) for n in (1, 5, 63, 64, 100, 128, 1000)), (5, 4), (63, 8)],
)
@pytest.mark.parametrize(
    ("kind", "batch_size", "workers"),
    [("equal", 64, 2), ("uneven", 40, 4), ("lognormal", 48, 1)],
)
def test_an_epoch_has_every_record_once(
    tmp_path, monkeypatch, num_files, streams, kind, batch_size, workers
):
    for module in (record_streams, input_pipeline):
        monkeypatch.setattr(module, "SHUFFLE_BLOCK", 130)
    lengths = lengths_of(kind, num_files)
    files, total = write_files(tmp_path, lengths), sum(lengths)
    sizes = {
        "streams": choose_streams(streams, lengths, batch_size, SEED),
        "batch_size": batch_size,
    }
    count = -(-3 * total // batch_size)
    through, _ = take(files, count, **sizes)
    assert_each_once(through, total)
    # All workers resume in the first epoch, and read to the end.
    step, size = total // batch_size // 2, batch_size // workers
    parts = [
        take(files, count - step, step, slice(size * i, size * (i + 1)), **sizes)[0]
        for i in range(workers)
    ]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), through[step:])
    last = count - total // batch_size // 3 - 1  # in the third epoch
    np.testing.assert_array_equal(take(files, count - last, last, **sizes)[0], through[last:])


def batches_by_hand(count):
    """The order by its description, record by record."""
    total, each = sum(LENGTHS), BATCH // STREAMS
    streams = [[] for _ in range(STREAMS)]
    for epoch in range(count * BATCH // total + 1):
        rows = [i % BATCH // each for i in range(epoch * total, (epoch + 1) * total)]
        shares = [stream for stream in range(STREAMS) for _ in range(rows.count(stream))]
        read = [[] for _ in range(STREAMS)]
        for file in np.random.default_rng([SEED, 1, epoch]).permutation(len(LENGTHS)):
            mine, shares = shares[: LENGTHS[file]], shares[LENGTHS[file] :]
            numbers = iter(range(sum(LENGTHS[:file]), sum(LENGTHS[: file + 1])))
            for stream in sorted(dict.fromkeys(mine), key=mine.count):
                read[stream] += itertools.islice(numbers, mine.count(stream))
        for stream, records in enumerate(read):
            seed = tf.constant([SEED, stream], tf.int64)
            seed = tf.random.fold_in(seed, tf.constant(epoch, tf.int64))
            for block in range(-(-len(records) // BLOCK)):
                some = tf.constant(records[block * BLOCK : (block + 1) * BLOCK])
                at = tf.random.fold_in(seed, tf.constant(block, tf.int64))
                streams[stream] += (
                    tf.random.experimental.stateless_shuffle(some, at).numpy().tolist()
                )
    return np.array(
        [
            [record for stream in streams for record in stream[step * each : (step + 1) * each]]
            for step in range(count)
        ]
    )


def test_batches_have_the_order_that_is_described(numbered):
    batches, _ = take(numbered, 40)
    np.testing.assert_array_equal(batches, batches_by_hand(40))
    assert_each_once(batches, sum(LENGTHS))


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
    # Each stream has 4 files an epoch, but for 2 records; step 833 is in the third ones.
    opened = [take(numbered, 1, 833, slice(3 * i, 3 * i + 3))[1] for i in (1, 3)]
    assert [len(files) for files in opened] == [1, 1]
    order = np.random.default_rng([SEED, 1, 0]).permutation(16)
    assert [files[0].path for files in opened] == [sorted(paths)[order[i]] for i in (6, 14)]


def test_the_streams_of_an_epoch_divide_its_records():
    rng = np.random.default_rng(0)
    for _ in range(100):
        lengths = rng.integers(1, rng.integers(2, 50), rng.integers(1, 40)).tolist()
        streams, epoch = int(rng.integers(1, 20)), int(rng.integers(0, 1000))
        batch_size = streams * int(rng.integers(1, 30))
        parts = divide_epoch(lengths, batch_size, streams, SEED, epoch)
        first = np.cumsum(lengths) - lengths
        read = [
            first[file] + skipped + record
            for _, file, skipped, count in zip(*parts, strict=True)
            for record in range(count)
        ]
        assert sorted(read) == list(range(sum(lengths)))
        assert len(parts.files) < len(lengths) + streams  # each stream begins one more
        assert (np.diff(parts.streams) >= 0).all()
        each = [parts.of_stream(stream).counts.sum() for stream in range(streams)]
        assert max(each) - min(each) <= batch_size // streams


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
        assert choose_streams(given, [20] * files, batch_size, SEED) == expected
    else:
        with pytest.raises(ValueError, match=f"--record_streams={given}: .*{expected}"):
            choose_streams(given, [20] * files, batch_size, SEED)


@pytest.mark.parametrize(
    ("lengths", "streams"),
    [([100] * 64 + [1000] * 10, 32), ([100] * 63 + [60000], 1), ([100] * 999 + [1000] * 10, 64)],
    ids=["some", "one", "among many"],
)
def test_there_are_fewer_streams_if_many_of_them_would_share_large_files(lengths, streams):
    assert choose_streams(None, lengths, 64, SEED) == streams


def test_a_file_that_disappears_meanwhile_is_named(numbered, tmp_path):
    plan = StreamPlan(numbered, STREAMS, BATCH, SEED)
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
