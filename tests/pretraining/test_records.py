"""Pre-training records: their order, what is wrong with others, and their vocabulary."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import files, pretraining
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.data import record_metadata
from albert_tf.data.record_metadata import find_records
from albert_tf.pretraining import input_pipeline, record_files
from albert_tf.pretraining.features import Feature
from albert_tf.pretraining.records import find_vocabulary, keep_vocabulary
from albert_tf.record_frames import frame_records
from tests.data.conftest import flip
from tests.pretraining.conftest import example, write_metadata, write_numbers, write_records

FEATURES = {"number": Feature((1,), tf.int64)}
LENGTHS = (5, 19, 1, 11, 3, 8)


def find_record_files(paths, features):
    return record_files.check_files(find_records(",".join(paths), "--input_file"), features)


@pytest.fixture(name="numbered")
def make_numbered(tmp_path, monkeypatch):
    """Six files of different lengths, with consecutively numbered records."""
    monkeypatch.setattr(input_pipeline, "SHUFFLE_BLOCK", 7)
    numbers = iter(range(sum(LENGTHS)))
    paths = [
        write_numbers(tmp_path / f"{i}", itertools.islice(numbers, length))
        for i, length in enumerate(LENGTHS)
    ]
    return find_record_files(paths, FEATURES)


def take(numbered, count, seed=3, start=0, **kwargs):
    dataset = input_pipeline.training_dataset(numbered, FEATURES, 1, seed, start, **kwargs)
    return [int(batch["number"][0, 0]) for batch in itertools.islice(dataset, count)]


def test_an_epoch_has_every_record_once_in_an_order_of_the_seed(numbered):
    numbers = take(numbered, 3 * 47)
    epochs = [numbers[47 * epoch :][:47] for epoch in range(3)]
    assert all(sorted(epoch) == list(range(47)) for epoch in epochs)
    assert len({*map(tuple, epochs), tuple(range(47)), tuple(take(numbered, 47, seed=4))}) == 5
    tf.random.set_seed(0)
    assert take(numbered, 47) == epochs[0]


def test_resuming_at_any_record_continues_the_same_order(numbered):
    through = take(numbered, 110)
    for start in [8, 46, 101]:
        assert take(numbered, 9, start=start) == through[start : start + 9], start


def test_the_rows_of_all_workers_form_the_batches_of_one(numbered):
    def batches(rows=None):
        dataset = input_pipeline.training_dataset(numbered, FEATURES, 6, 3, 9, rows=rows)
        size = rows.stop - rows.start if rows else 6
        assert dataset.element_spec["number"].shape == (size, 1)
        return np.stack([batch["number"][:, 0] for batch in itertools.islice(dataset, 12)])

    parts = [batches(slice(2 * worker, 2 * worker + 2)) for worker in range(3)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), batches())


def test_evaluation_reads_every_record_once_in_order(numbered):
    batches = list(input_pipeline.evaluation_dataset(numbered, FEATURES, 10))
    assert [len(batch["number"]) for batch in batches] == [10, 10, 10, 10, 7]
    numbers = np.concatenate([batch["number"][:, 0] for batch in batches])
    assert numbers.tolist() == list(range(47))
    assert numbers.dtype == np.int32


FRAMES = frame_records([example(number=[number]) for number in range(9)])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (flip(FRAMES, 5, 15), "a, record 6: its content is damaged"),
        (flip(FRAMES, 5, 3), "a, record 6: the checksum of its length is wrong"),
        (b"".join(FRAMES)[:-3], "a, record 9: the file ends early"),
        (FRAMES[0] + frame_records([b"something else"])[0], "a: a record is not a tf.train"),
    ],
    ids=["content", "length", "end", "features"],
)
def test_a_record_that_is_damaged_meanwhile_is_named(tmp_path, content, said):
    path = tmp_path / "a"
    found = find_record_files([write_numbers(path, range(9))], FEATURES)
    path.write_bytes(content)
    for dataset in (
        input_pipeline.evaluation_dataset(found, FEATURES, 2),
        input_pipeline.training_dataset(found, FEATURES, 2, seed=3),
    ):
        with pytest.raises(ValueError, match=said):
            list(input_pipeline.batches(dataset, found))


LIMITED = {
    "ids": Feature((7,), tf.int64, 97, "the model has vocab_size=97"),
    "mask": Feature((7,), tf.int64, 2),
    "weights": Feature((3,), tf.float32),
}
GOOD = {"ids": [5, 96, 0, 0, 0, 0, 0], "mask": [1, 1, 0, 0, 0, 0, 0], "weights": [1.0, 0.5, 0.0]}


def test_integers_are_parsed_as_int32_and_floats_as_they_are():
    batch = record_files.parse(tf.constant([example(**GOOD)] * 2), LIMITED)
    assert [batch[name].dtype for name in GOOD] == [tf.int32, tf.int32, tf.float32]
    assert {name: values[1].numpy().tolist() for name, values in batch.items()} == GOOD


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("ids", [5, 96, -1, 0, 0, 0, 0], "ids contains -1, expected 0 to 96 .*vocab_size=97"),
        ("ids", [5, 97, 0, 0, 0, 0, 0], "ids contains 97, expected 0 to 96"),
        ("ids", [5, 2**32 + 5, 0, 0, 0, 0, 0], "ids contains 4294967301, expected 0 to 96"),
        ("mask", [1, 1, 2, 0, 0, 0, 0], "mask contains 2, expected 0 to 1"),
    ],
)
def test_values_out_of_range_are_refused_in_the_first_record(tmp_path, name, values, said):
    path = write_records(tmp_path / "b", [example(**GOOD | {name: values})])
    with pytest.raises(ValueError, match=f"b: {said}"):
        find_record_files([path], LIMITED)


WIDE = {"input_ids": Feature((128,), tf.int64)}


@pytest.mark.parametrize(
    ("content", "features", "said"),
    [
        (b"", FEATURES, "a: contains no record"),
        (flip(FRAMES, 0, 15), FEATURES, "a, record 1: its content is damaged"),
        (frame_records([b"\xf5\xff"])[0], FEATURES, r"a: its records are not tf\.train\.Examples"),
        (FRAMES[0], WIDE, "a: its records have no feature 'input_ids', only number"),
    ],
)
def test_files_that_cannot_be_used_are_refused(tmp_path, content, features, said):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        find_record_files([str(tmp_path / "a")], features)


def test_files_without_records_are_left_out_with_a_warning(tmp_path, caplog):
    paths = [tmp_path / name for name in ("_SUCCESS", "a", "b", "c")]
    for path in paths:
        path.write_bytes(b"")
    write_numbers(paths[1], range(4))
    write_metadata(paths[2], 0)
    write_numbers(paths[3], range(5))
    write_metadata(paths[3], 5)
    found = find_record_files(list(map(str, paths)), FEATURES)
    assert [(file.path[-1], file.num_records) for file in found] == [("a", 4), ("c", 5)]
    assert f"{tmp_path}/_SUCCESS and 1 more: contains no record" in caplog.text


def test_records_in_a_store_that_tensorflow_cannot_read_are_refused(monkeypatch):
    monkeypatch.setattr(files, "expand_patterns", lambda patterns, what: [patterns])
    monkeypatch.setattr(record_metadata, "read_metadata", lambda paths: {})
    assert pretraining.find_record_files("gs://bucket/a", "--input_file") == {"gs://bucket/a": None}
    with pytest.raises(ValueError, match=r"--input_file: s3://bucket/a: .*Copy these"):
        pretraining.find_record_files("s3://bucket/a", "--input_file")


def test_the_vocabulary_of_records_is_that_of_their_metadata(tmp_path):
    paths = [tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"]
    names = [write_numbers(path, range(4)) for path in paths]
    found = find_record_files(names, FEATURES)
    assert find_vocabulary(found) == RunRecord()
    write_metadata(paths[0], 4)
    record = find_vocabulary(find_record_files(names, FEATURES))
    assert record.settings == {"do_lower_case": False}
    assert record.files["vocabulary"].digest == "97 entries, sha256 aaaaaaaaaaaaaaaa"
    write_metadata(paths[1], 4, checksum="b" * 64)
    found = find_record_files(names, FEATURES)
    with pytest.raises(ValueError, match=r"different vocabularies: x.*a\.records.*b\.records"):
        find_vocabulary(found)


@pytest.mark.parametrize("place", ["x.model", "model/30k.model"])
def test_the_vocabulary_is_copied_to_the_run_from_beside_the_records_or_the_initial_weights(
    tmp_path, place
):
    path, run, vocabulary = tmp_path / "a.tfrecord", tmp_path / "run", tmp_path / place
    found = find_record_files([write_numbers(path, range(4))], FEATURES)
    for folder in (tmp_path / "model", run):
        folder.mkdir()
    vocabulary.write_bytes(b"pieces")
    keep_vocabulary(found, str(run), str(tmp_path / "model"))  # no metadata
    write_metadata(path, 4, checksum=hashlib.sha256(b"pieces").hexdigest())
    found = find_record_files([str(path)], FEATURES)
    vocabulary.write_bytes(b"others")
    keep_vocabulary(found, str(run), str(tmp_path / "model"))
    assert not list(run.iterdir())
    vocabulary.write_bytes(b"pieces")
    keep_vocabulary(found, str(run), str(tmp_path / "model"))
    assert (run / "spiece.model").read_bytes() == b"pieces"


def test_the_vocabulary_beside_records_is_not_one_elsewhere(tmp_path):
    path, private = tmp_path / "records" / "a.tfrecord", tmp_path / "private.model"
    path.parent.mkdir()
    (tmp_path / "run").mkdir()
    private.write_bytes(b"mine")
    write_numbers(path, range(4))
    digest = hashlib.sha256(b"mine").hexdigest()
    for name in ("../private.model", str(private)):
        write_metadata(path, 4, checksum=digest, file=name)
        found = find_record_files([str(path)], FEATURES)
        with pytest.raises(ValueError, match=r"\.records\.json names '.*: expected a file in"):
            keep_vocabulary(found, str(tmp_path / "run"), str(tmp_path))
        assert not list((tmp_path / "run").iterdir())


def test_the_checksum_of_records_is_that_of_their_content(tmp_path):
    def checksum(path):
        return record_files.checksum_of(find_record_files([str(path)], FEATURES))

    one, moved = tmp_path / "a", tmp_path / "moved" / "a"
    moved.parent.mkdir()
    found = []
    for describe in (lambda path: None, lambda path: write_metadata(path, 4)):
        for path in (one, moved):
            write_numbers(path, range(4))
            describe(path)
        found.append(checksum(one))
        assert checksum(moved) == found[-1]
        write_numbers(moved, (0, 1, 5, 3) if len(found) == 1 else range(1, 5))
        found.append(checksum(moved))  # of the same size
    write_metadata(one, 4, random_seed=5)
    assert len({*found, checksum(one)}) == 5
