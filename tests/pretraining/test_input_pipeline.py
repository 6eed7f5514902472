"""The order of training records, damaged ones, and batches for several workers."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.tfrecord import frame_records
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


def test_the_global_seed_does_not_change_the_order(files):
    expected = take(files, 47)
    for seed in (0, 5):
        tf.random.set_seed(seed)
        assert take(files, 47) == expected


def test_iterators_are_deleted_without_delay(files):
    training = input_pipeline.training_dataset(files, FEATURES, 2, seed=3)
    evaluation = input_pipeline.evaluation_dataset(files, FEATURES, 2)
    for dataset in (training, evaluation):  # see `datasets.prefetch`
        assert dataset.options().autotune.enabled is False


def test_evaluation_reads_every_record_once_in_order(files):
    batches = list(input_pipeline.evaluation_dataset(files, FEATURES, 10))
    assert [len(batch["number"]) for batch in batches] == [10, 10, 10, 10, 7]
    numbers = np.concatenate([batch["number"][:, 0] for batch in batches])
    assert numbers.tolist() == list(range(47))
    assert numbers.dtype == np.int32


@pytest.mark.parametrize("is_gzip", [False, True])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("content", "its content is damaged"),
        ("length", "the checksum of its length is wrong"),
        ("cut", "the file ends early"),
    ],
)
def test_a_damaged_record_is_found(tmp_path, damage, reason, is_gzip):
    path = tmp_path / "a.tfrecord"
    write_numbers(path, range(9))
    files = record_files.find_record_files([str(path)], FEATURES)
    place = 8 if damage == "cut" else 5
    write_damaged(path, range(9), {place: damage}, is_gzip)
    files = [dataclasses.replace(file, is_gzip=is_gzip) for file in files]
    message = rf"a\.tfrecord, record {place + 1}: {reason}"
    for dataset in (
        input_pipeline.evaluation_dataset(files, FEATURES, 2),
        input_pipeline.training_dataset(files, FEATURES, 2, seed=3),
    ):
        with pytest.raises(ValueError, match=message):
            list(input_pipeline.batches(dataset, files))


def test_a_compressed_file_that_ends_early_is_found(tmp_path):
    path = tmp_path / "a.tfrecord"
    write_numbers(path, range(900), "GZIP")
    files = record_files.find_record_files([str(path)], FEATURES)
    path.write_bytes(path.read_bytes()[:-700])
    dataset = input_pipeline.evaluation_dataset(files, FEATURES, 2)
    with pytest.raises(ValueError, match=r"a\.tfrecord, record \d+: the file ends early"):
        list(input_pipeline.batches(dataset, files))


def test_a_record_with_other_features_is_found(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(frame_records([example(3), example(4), b"something else"])))
    files = record_files.find_record_files([str(path)], FEATURES)
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
