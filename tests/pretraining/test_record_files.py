"""Record files: counts, damaged records, and features that do not match."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import files
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.data.tfrecord import encode_examples, frame_records
from albert_tf.pretraining import input_pipeline, record_files
from albert_tf.pretraining.record_files import Feature, parse
from tests.pretraining.numbered_records import (
    FEATURES,
    write_damaged,
    write_files,
    write_numbers,
)

SHAPES = {
    "ids": Feature((7,), tf.int64),
    "weights": Feature((3,), tf.float32),
}


def integers_example(features):
    """Returns a serialized Example of int64 lists, with arbitrary integers."""
    lists = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        for name, values in features.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=lists)).SerializeToString()


@pytest.fixture(name="files")
def make_files(tmp_path):
    return write_files(tmp_path)


@pytest.fixture(name="contents")
def make_contents():
    rng = np.random.default_rng(5)
    arrays = {"ids": rng.integers(0, 97, (5, 7)), "weights": rng.random((5, 3), np.float32)}
    return encode_examples(arrays)


def test_integers_are_cast_to_int32_and_floats_are_kept(contents):
    batch = parse(tf.constant(contents), SHAPES)
    assert {name: (value.shape, value.dtype) for name, value in batch.items()} == {
        "ids": ((5, 7), tf.int32),
        "weights": ((5, 3), tf.float32),
    }


LIMITED = {
    "ids": Feature((7,), tf.int64, 97, "the model has vocab_size=97"),
    "mask": Feature((7,), tf.int64, 2, is_mask=True),
}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ids", [5, 96, -3, 0, 0, 0, 0]),
        ("ids", [5, 97, 0, 0, 0, 0, 0]),
        ("ids", [5, 2**32 + 5, 0, 0, 0, 0, 0]),
        ("mask", [1, 1, 2, 0, 0, 0, 0]),
        ("mask", [0] * 7),
    ],
)
def test_a_record_with_values_out_of_range_ends_reading(tmp_path, name, values):
    rows = [{"ids": [5, 96, 7, 0, 0, 0, 0], "mask": [0, 1, 1, 0, 0, 0, 0]} for _ in range(5)]
    rows[3][name] = values
    contents = [integers_example(row) for row in rows]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(frame_records(contents)))
    files = record_files.find_record_files([str(path)], LIMITED)
    dataset = input_pipeline.evaluation_dataset(files, LIMITED, 3)
    batches = input_pipeline.batches(dataset, files)
    assert len(next(batches)["ids"]) == 3
    with pytest.raises(ValueError, match=r"a\.tfrecord: a record .* has no tokens"):
        next(batches)
    path.write_bytes(b"".join(frame_records(contents[3:])))
    if any(values):
        with pytest.raises(ValueError, match=rf"a\.tfrecord: {name} contains .*, expected 0 to "):
            record_files.find_record_files([str(path)], LIMITED)


def test_the_numbers_of_records_are_found(files):
    assert [file.num_records for file in files] == [5, 19, 1, 11, 3, 8]
    assert [file.is_gzip for file in files] == [False, True, False, False, False, False]


def test_a_batch_larger_than_the_data_is_rejected(files):
    with pytest.raises(ValueError, match=r"--train_batch_size=48 .* 47 records in 6 file"):
        record_files.check_batch_size(files, 48)


def test_empty_and_truncated_files_are_rejected(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="contains no record"):
        record_files.find_record_files([str(path)], FEATURES)
    write_numbers(path, range(9))
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match=r"a\.tfrecord, record 9"):
        record_files.find_record_files([str(path)], FEATURES)


def test_the_first_record_is_checked_against_the_features(tmp_path):
    path = str(tmp_path / "a.tfrecord")
    write_numbers(path, [7])
    wide = {"input_ids": Feature((128,), tf.int64)}
    with pytest.raises(ValueError, match="no feature 'input_ids', only number"):
        record_files.find_record_files([path], wide)
    content = integers_example({"input_ids": [7]})
    (tmp_path / "a.tfrecord").write_bytes(b"".join(frame_records([content])))
    with pytest.raises(ValueError, match=r"input_ids has 1 values, but --max_seq_length=128"):
        record_files.find_record_files([path], wide)


def test_a_first_record_of_another_kind_or_damaged_is_named(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(frame_records([b"\xf5\xff" * 9])))
    with pytest.raises(ValueError, match=r"a\.tfrecord: its records are not tf\.train\.Examples"):
        record_files.find_record_files([str(path)], FEATURES)
    damaged = write_damaged(tmp_path / "b.tfrecord", range(5), {0: "content"})
    with pytest.raises(ValueError, match=r"b\.tfrecord, record 1: its content is damaged"):
        record_files.find_record_files([damaged], FEATURES)


def test_records_in_a_store_that_tensorflow_cannot_read_are_refused(monkeypatch):
    monkeypatch.setattr(files, "expand_patterns", lambda patterns, what: [patterns])
    assert record_files.list_paths("gs://bucket/a", "input_file") == ["gs://bucket/a"]
    with pytest.raises(ValueError, match=r"--input_file: s3://bucket/a: .*Copy these"):
        record_files.list_paths("s3://bucket/a", "input_file")


def write_metadata(path, checksum, settings=None):
    """Writes metadata that names the vocabulary of a file's records."""
    entry = {"name": path.name, "instances": 4, "bytes": path.stat().st_size}
    vocabulary = {"size": 97, "checksum": checksum, "file": "x.model", "do_lower_case": False}
    metadata = {"files": [entry], "settings": settings or {}, "vocabulary": vocabulary}
    metadata["mask_id"] = 4
    path.with_suffix(".records.json").write_text(json.dumps(metadata))


def test_the_vocabulary_of_records_is_that_of_their_metadata(tmp_path):
    paths = [tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"]
    for path in paths:
        write_numbers(str(path), range(4))
    record_files_of = record_files.find_record_files(map(str, paths), FEATURES)
    assert record_files.find_vocabulary(record_files_of) == RunRecord()
    write_metadata(paths[0], "a" * 64)
    found = record_files.find_vocabulary(record_files_of)
    text = "97 entries, sha256 aaaaaaaaaaaaaaaa"
    path = f"x.model (according to {tmp_path}/a.records.json)"
    assert found.files == {"vocabulary": FileRecord(text, path)}
    assert found.settings == {"do_lower_case": False}
    write_metadata(paths[1], "b" * 64)
    with pytest.raises(ValueError, match=r"different vocabularies: x.*a\.records.*b\.records"):
        record_files.find_vocabulary(record_files_of)


def test_the_vocabulary_beside_records_is_copied_to_the_run(tmp_path):
    path, vocabulary, run = tmp_path / "a.tfrecord", tmp_path / "x.model", tmp_path / "run"
    write_numbers(str(path), range(4))
    run.mkdir()
    files_of = record_files.find_record_files([str(path)], FEATURES)
    record_files.keep_vocabulary(files_of, str(run))  # no metadata
    vocabulary.write_bytes(b"another one")
    write_metadata(path, hashlib.sha256(b"pieces").hexdigest())
    record_files.keep_vocabulary(files_of, str(run))
    assert not list(run.iterdir())
    vocabulary.write_bytes(b"pieces")
    record_files.keep_vocabulary(files_of, str(run))
    assert [(file.name, file.read_bytes()) for file in run.iterdir()] == [
        ("spiece.model", b"pieces")
    ]


def test_the_vocabulary_of_the_initial_weights_is_copied_if_it_is_that_of_the_records(tmp_path):
    path, model, run = tmp_path / "a.tfrecord", tmp_path / "model", tmp_path / "run"
    write_numbers(str(path), range(4))
    write_metadata(path, hashlib.sha256(b"pieces").hexdigest())
    files_of = record_files.find_record_files([str(path)], FEATURES)
    for folder in (model, run):
        folder.mkdir()
    (model / "30k.model").write_bytes(b"other pieces")
    record_files.keep_vocabulary(files_of, str(run), str(model))
    assert not list(run.iterdir())
    (model / "30k.model").write_bytes(b"pieces")
    record_files.keep_vocabulary(files_of, str(run), str(model))
    assert (run / "spiece.model").read_bytes() == b"pieces"


def test_the_checksum_of_records_is_that_of_their_content(tmp_path):
    paths = [tmp_path / "a", tmp_path / "moved" / "a", tmp_path / "c"]
    for path, numbers in zip(paths, (range(4), range(4), (0, 1, 5, 3)), strict=True):
        path.parent.mkdir(exist_ok=True)
        write_numbers(str(path), numbers)
    assert checksums_of(paths)[0] == checksums_of(paths)[1] != checksums_of(paths)[2]
    for path in paths[:2]:
        write_metadata(path, "a" * 64)
    first, moved, _ = described = checksums_of(paths)
    assert first == moved
    write_metadata(paths[0], "a" * 64, {"random_seed": 5})
    assert checksums_of(paths)[0] != first
    write_numbers(str(paths[1]), range(1, 5))  # with the same size and the old metadata
    assert checksums_of(paths)[1:] != described[1:]


def checksums_of(paths):
    return [
        record_files.checksum_of(record_files.find_record_files([str(path)], FEATURES))
        for path in paths
    ]
