"""Record files: counts, damaged records, and features that do not match."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import files
from albert_tf.checkpoints.run_record import TrainedWith
from albert_tf.data import record_checksums, record_index, records
from albert_tf.data.tfrecord import encode_examples, frame_records
from albert_tf.pretraining import input_pipeline, record_files
from albert_tf.pretraining.record_files import (
    Feature,
    RecordFile,
    parse,
)
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
    (tmp_path / "a.tfrecord").write_bytes(b"".join(frame_records(contents)))
    file = RecordFile(str(tmp_path / "a.tfrecord"), 5)
    assert len(input_pipeline.first_batch(file, LIMITED, 3)["ids"]) == 3
    with pytest.raises(
        ValueError, match=r"a\.tfrecord: (a record .* has no tokens|(ids|mask) contains)"
    ):
        input_pipeline.first_batch(file, LIMITED, 5)


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
        record_files.find_record_files([str(path)])
    write_numbers(path, range(9))
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match=r"a\.tfrecord, record 9"):
        record_files.find_record_files([str(path)])


def test_the_first_record_is_checked_against_the_features(tmp_path):
    path = str(tmp_path / "a.tfrecord")
    write_numbers(path, [7])
    record_files.check_first_record(path, FEATURES, {})
    wide = {"number": Feature((128,), tf.int64)}
    with pytest.raises(ValueError, match=r"number has 1 values, but --max_seq_length=128"):
        record_files.check_first_record(path, wide, {"number": "max_seq_length"})
    with pytest.raises(ValueError, match="no feature 'other', only number"):
        record_files.check_first_record(path, {"other": FEATURES["number"]}, {})


def test_a_first_record_of_another_kind_or_damaged_is_named(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(frame_records([b"\xf5\xff" * 9])))
    with pytest.raises(ValueError, match=r"a\.tfrecord: its records are not tf\.train\.Examples"):
        record_files.check_first_record(str(path), FEATURES, {})
    damaged = write_damaged(tmp_path / "b.tfrecord", range(5), {0: "content"})
    with pytest.raises(ValueError, match=r"b\.tfrecord, record 1: its content is damaged"):
        record_files.check_first_record(damaged, FEATURES, {})


def write_metadata(path, checksum):
    """Writes metadata that names the vocabulary of a file's records."""
    entry = {"name": path.name, "instances": 4, "bytes": path.stat().st_size}
    vocabulary = {"size": 97, "checksum": checksum, "file": "x.model", "do_lower_case": False}
    metadata = {"files": [entry], "settings": {}, "vocabulary": vocabulary, "mask_id": 4}
    path.with_suffix(".records.json").write_text(json.dumps(metadata))


def test_the_vocabulary_of_records_is_that_of_their_metadata(tmp_path):
    paths = [tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"]
    for path in paths:
        write_numbers(str(path), range(4))
    record_files_of = [RecordFile(str(path), 4) for path in paths]
    assert record_files.find_vocabulary(record_files_of) == TrainedWith({})
    write_metadata(paths[0], "a" * 64)
    found = record_files.find_vocabulary(record_files_of)
    text = "97 entries, sha256 aaaaaaaaaaaaaaaa"
    assert found.identity == {"vocabulary": text, "do_lower_case": "False"}
    assert found.paths == {"vocabulary": f"x.model (according to {tmp_path}/a.records.json)"}
    write_metadata(paths[1], "b" * 64)
    with pytest.raises(ValueError, match=r"different vocabularies: x.*a\.records.*b\.records"):
        record_files.find_vocabulary(record_files_of)


def test_the_vocabulary_beside_records_is_copied_to_the_run(tmp_path):
    path, vocabulary, run = tmp_path / "a.tfrecord", tmp_path / "x.model", tmp_path / "run"
    write_numbers(str(path), range(4))
    run.mkdir()
    files_of = [RecordFile(str(path), 4)]
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
    for folder in (model, run):
        folder.mkdir()
    (model / "30k.model").write_bytes(b"other pieces")
    record_files.keep_vocabulary([RecordFile(str(path), 4)], str(run), str(model))
    assert not list(run.iterdir())
    (model / "30k.model").write_bytes(b"pieces")
    record_files.keep_vocabulary([RecordFile(str(path), 4)], str(run), str(model))
    assert (run / "spiece.model").read_bytes() == b"pieces"


def test_the_checksum_of_records_is_independent_of_their_folder(tmp_path):
    first, moved, other = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    write_numbers(str(first), range(4))
    moved.write_bytes(first.read_bytes())
    write_numbers(str(other), range(1, 5))
    assert other.stat().st_size == first.stat().st_size
    checksums = record_files.Checksums(str(tmp_path))
    a, b, c = (checksums.of([RecordFile(str(path), 4)]) for path in (first, moved, other))
    assert a == b != c


def test_the_checksum_of_records_covers_every_byte_and_is_computed_once(tmp_path, monkeypatch):
    paths, output_dir = [str(tmp_path / name) for name in "ab"], str(tmp_path)
    found = [RecordFile(path, 4) for path in paths]
    (tmp_path / "a").write_bytes(bytes(400_000))
    with records.open_output(paths[1], "") as write:  # stores the checksum
        write(frame_records([b"the boat"]))
    read, compute = [], record_checksums.compute
    monkeypatch.setattr(
        record_checksums, "compute", lambda path: read.append(path) or compute(path)
    )

    def checksum():
        checksums = record_files.Checksums(output_dir)
        value = checksums.of(found)
        assert checksums.of(found) == value
        checksums.keep()
        return value

    before = checksum()
    assert checksum() == before
    assert read == paths[:1]
    with open(paths[0], "r+b") as stream:
        stream.seek(200_000)
        stream.write(b"x")
    after = checksum()
    assert after != before
    assert read == paths[:1] * 2
    assert checksum() == after
    assert len(read) == 2
    (tmp_path / "record_checksums.json").write_text('{"files": 3}')
    with pytest.raises(ValueError, match=r"record_checksums\.json: "):
        record_files.Checksums(output_dir)


def test_files_that_every_process_reads_whole_are_named(tmp_path, caplog):
    paths = [f"file://{tmp_path}/a", f"{tmp_path}/b", f"{tmp_path}/c.gz", f"file://{tmp_path}/d"]
    frames = frame_records([integers_example({"number": [number]}) for number in range(3)])
    for path, compression in zip(paths, ("", "", "gzip", ""), strict=True):
        with records.open_output(path, compression) as write:
            write(frames)
    found = record_files.find_record_files(paths)
    record_files.warn_of_repeated_reading([found[0], found[1], found[3]])
    assert not caplog.text
    for path in (paths[0], paths[3]):
        files.remove(record_index.path_of(path))
    record_files.warn_of_repeated_reading(found)
    packed, remote = (record.getMessage() for record in caplog.records)
    assert packed.startswith(f"{tmp_path}/c.gz: compressed with gzip, so every process reads and")
    assert "`gzip -dc FILE > NEW_FILE`" in packed
    index = f"file://{tmp_path}/records.index"
    assert remote.startswith(f"{paths[0]} and 1 more: remote and without an index in {index}, so")
