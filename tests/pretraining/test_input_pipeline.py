"""The order of training records, and batches for several workers."""

from __future__ import annotations

import io
import itertools
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import files as file_access
from albert_tf.data import records
from albert_tf.data.tfrecord import HEADER_BYTES, frame_records
from albert_tf.pretraining import input_pipeline, record_files
from tests.pretraining.numbered_records import (
    FEATURES,
    example,
    write_damaged,
    write_files,
    write_numbers,
)


@pytest.fixture(name="files")
def make_files(tmp_path, monkeypatch):
    monkeypatch.setattr(input_pipeline, "SHUFFLE_BLOCK", 7)
    return write_files(tmp_path)


def take(files, count, seed=3, start=0, **kwargs):
    dataset = input_pipeline.training_dataset(files, FEATURES, 1, seed, start, **kwargs)
    return [int(batch["number"][0, 0]) for batch in itertools.islice(dataset, count)]


def test_an_epoch_has_every_record_once(files):
    numbers = take(files, 3 * 47)
    for epoch in range(3):
        assert sorted(numbers[47 * epoch : 47 * (epoch + 1)]) == list(range(47))
    assert numbers[:47] != numbers[47:94]
    assert numbers[:47] != sorted(numbers[:47])


def test_resuming_at_any_record_continues_the_same_order(files):
    through = take(files, 150)
    for start in [0, 3, 8, 25, 46, 47, 58, 101]:
        assert take(files, 9, start=start) == through[start : start + 9], start


def test_the_seed_determines_the_order(files):
    assert take(files, 47, seed=3) == take(files, 47, seed=3)
    assert take(files, 47, seed=3) != take(files, 47, seed=4)


def test_iterators_are_deleted_without_delay(files):
    training = input_pipeline.training_dataset(files, FEATURES, 2, seed=3)
    evaluation = input_pipeline.evaluation_dataset(files, FEATURES, 2)
    for dataset in (training, evaluation):  # see `datasets.prefetch`
        assert dataset.options().autotune.enabled is False


def test_files_are_read_from_each():
    for lengths in ([4], [2, 5, 1], [3, 3, 3, 3], [1, 9]):
        turns = itertools.zip_longest(*([i] * n for i, n in enumerate(lengths)))
        order = [i for turn in turns for i in turn if i is not None]
        for count in range(len(order)):
            taken, first = input_pipeline._read_from_each(lengths, count)
            assert taken == [order[:count].count(i) for i in range(len(lengths))]
            rotated = [i % len(lengths) for i in range(first, first + len(lengths))]
            assert next(i for i in rotated if taken[i] < lengths[i]) == order[count]


def test_evaluation_reads_every_record_once_in_order(files):
    batches = list(input_pipeline.evaluation_dataset(files, FEATURES, 10))
    assert [len(batch["number"]) for batch in batches] == [10, 10, 10, 10, 7]
    numbers = np.concatenate([batch["number"][:, 0] for batch in batches])
    assert numbers.tolist() == list(range(47))
    assert numbers.dtype == np.int32


def test_the_first_batch_is_read_alone(files):
    batch = input_pipeline.first_batch(files[1], FEATURES, 10)
    assert batch["number"].dtype == tf.int32
    numbers = input_pipeline.first_batch(files[1], FEATURES, 1000)["number"][:, 0].numpy().tolist()
    assert len(numbers) == files[1].num_records > 10
    assert batch["number"][:, 0].numpy().tolist() == numbers[:10]


def test_damage_in_the_first_batch_is_found(tmp_path):
    for number, damage in enumerate(("content", "other")):
        path = tmp_path / f"{number}.tfrecord"
        write_numbers(path, range(9))
        files = record_files.find_record_files([str(path)])
        write_damaged(path, range(9), {5: damage})
        message = ", record 6: its content is damaged", ": a record is not a tf.train.Example"
        with pytest.raises(ValueError, match=rf"{number}\.tfrecord{message[number]}"):
            input_pipeline.first_batch(files[0], FEATURES, 9)


def test_a_damaged_record_is_found(tmp_path):
    path = tmp_path / "a.tfrecord"
    write_numbers(path, range(9))
    files = record_files.find_record_files([str(path)])
    content = bytearray(path.read_bytes())
    content[5 * len(content) // 9 + 20] ^= 1
    path.write_bytes(content)
    dataset = input_pipeline.evaluation_dataset(files, FEATURES, 2)
    with pytest.raises(ValueError, match=r"a\.tfrecord, record 6: its content is damaged"):
        list(input_pipeline.batches(dataset, files))


def test_a_record_with_other_features_is_found(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(frame_records([example(3), example(4), b"something else"])))
    files = record_files.find_record_files([str(path)])
    dataset = input_pipeline.evaluation_dataset(files, FEATURES, 2)
    with pytest.raises(ValueError, match=r"a\.tfrecord: a record is not a tf\.train"):
        list(input_pipeline.batches(dataset, files))


def test_the_rows_of_all_workers_form_the_batches_of_one(files):
    def batches(rows=None):
        dataset = input_pipeline.training_dataset(files, FEATURES, 6, 3, 9, rows=rows)
        batches = itertools.islice(dataset, 12)
        return np.stack([batch["number"][:, 0] for batch in batches])  # [12, B]

    through = batches()
    assert through.shape == (12, 6)
    for workers in (2, 3):
        share = 6 // workers
        slices = [slice(share * i, share * (i + 1)) for i in range(workers)]
        parts = [batches(rows) for rows in slices]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), through)


def test_the_rows_of_a_worker_have_a_known_shape(files):
    dataset = input_pipeline.training_dataset(files, FEATURES, 6, 3, rows=slice(2, 4))
    assert dataset.element_spec["number"].shape == (2, 1)


def read_rows(files, workers, batch_size, steps, start=0):
    """Returns the numbers of the records that each worker reads."""
    share, found = batch_size // workers, []
    for first in range(0, batch_size, share):
        rows = slice(first, first + share) if workers > 1 else None
        dataset = input_pipeline.training_dataset(files, FEATURES, batch_size, 3, start, rows)
        batches = itertools.islice(dataset, steps)
        found.append([number for batch in batches for number in batch["number"][:, 0].numpy()])
    return found


@pytest.fixture(name="long_files")
def make_long_files(tmp_path):
    paths = [str(tmp_path / f"{i}.tfrecord") for i in range(3)]
    for i, path in enumerate(paths):
        write_numbers(path, range(2000 * i, 2000 * (i + 1)))
    return record_files.find_record_files(paths)


@pytest.mark.ci
def test_a_worker_reads_only_its_own_records(long_files):
    """The content of all others is damaged, which reading them would detect."""
    batch_size, steps = 60, 100  # an epoch, in which no record occurs twice
    expected = [int(number) for number in read_rows(long_files, 4, batch_size, steps)[1]]
    own = set(expected)
    for i, file in enumerate(long_files):
        frames = []
        for number in range(2000 * i, 2000 * (i + 1)):
            frame = bytearray(frame_records([example(number)])[0])
            frame[15] ^= number not in own
            frames.append(bytes(frame))
        Path(file.path).write_bytes(b"".join(frames))
    rows = slice(15, 30)
    dataset = input_pipeline.training_dataset(long_files, FEATURES, batch_size, 3, rows=rows)
    batches = itertools.islice(dataset, steps)
    assert [int(n) for batch in batches for n in batch["number"][:, 0]] == expected
    everything = iter(input_pipeline.training_dataset(long_files, FEATURES, batch_size, 3))
    with pytest.raises(tf.errors.OpError):
        next(everything)


@pytest.mark.ci
def test_workers_together_read_each_record_once(long_files, monkeypatch):
    sizes = []

    class Counted(io.FileIO):
        def read(self, size=-1):
            content = super().read(size)
            sizes.append(len(content))
            return content

    monkeypatch.setattr(file_access, "open_unbuffered", lambda path: Counted(path, "rb"))
    total = sum(os.path.getsize(file.path) for file in long_files)
    for workers in (2, 4):
        sizes.clear()
        found = read_rows(long_files, workers, 60, 100)  # an epoch
        assert sorted(itertools.chain.from_iterable(found)) == list(range(6000))
        contents = sum(size for size in sizes if size != HEADER_BYTES)
        # More than an epoch, because the next block is read in advance.
        assert 0.99 * total < contents < 1.5 * total, workers


@pytest.mark.ci
def test_the_next_workers_continue_with_the_same_records(long_files):
    """As after 4, 2, 1 and 4 workers have trained for 5 steps each."""
    through = np.reshape(read_rows(long_files, 1, 8, 20)[0], (20, 8))
    for number, workers in enumerate((4, 2, 1, 4)):
        found = read_rows(long_files, workers, 8, 5, start=5 * 8 * number)
        rows = np.concatenate([np.reshape(part, (5, 8 // workers)) for part in found], axis=1)
        np.testing.assert_array_equal(rows, through[5 * number : 5 * (number + 1)])


INDEXED_RECORDS = 6000


def write_indexed(folder):
    """Writes three files with indexes, local or remote; returns the files and their total size."""
    paths = [f"{folder}/{i}.tfrecord" for i in range(3)]
    for number, path in enumerate(paths):
        with records.open_output(path, "") as write:
            write(frame_records([example(n) for n in range(number, INDEXED_RECORDS, 3)]))
    return record_files.find_record_files(paths), sum(map(file_access.file_size, paths))


def count_ranges(monkeypatch):
    """Returns a list that grows by the sizes of all parts of record files that are read."""
    sizes = []
    read_ranges = file_access.read_ranges

    def count(path, ranges):
        if path.endswith(".tfrecord") and "records.index" not in path:
            sizes.extend(end - begin for begin, end in ranges)
        return read_ranges(path, ranges)

    monkeypatch.setattr(file_access, "read_ranges", count)
    return sizes


@pytest.mark.ci
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_workers_read_each_record_once_with_an_index(tmp_path, monkeypatch, scheme):
    found, total = write_indexed(f"{scheme}{tmp_path}")
    through = np.reshape(read_rows(found, 1, 60, 90)[0], (90, 60))
    sizes = count_ranges(monkeypatch)
    for workers in (2, 4):
        sizes.clear()
        rows = read_rows(found, workers, 60, 90)
        rows = np.concatenate([np.reshape(part, (90, 60 // workers)) for part in rows], axis=1)
        np.testing.assert_array_equal(rows, through)
        # At most an epoch: the last batches are read as the next blocks are.
        assert 0.85 * total < sum(sizes) <= total, workers
    np.testing.assert_array_equal(
        np.reshape(read_rows(found, 2, 60, 30, start=60 * 60)[0], (30, 30)), through[60:, :30]
    )


def test_resuming_reads_nothing_before_the_position(tmp_path, monkeypatch):
    found, total = write_indexed(f"file://{tmp_path}")
    expected = read_rows(found, 2, 60, 90)[1][-30:]
    sizes = count_ranges(monkeypatch)
    assert read_rows(found, 2, 60, 1, start=60 * 89)[1] == expected
    assert sum(sizes) < total / 3  # the last shuffled block of one epoch and the first of the next
