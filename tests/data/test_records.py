"""TFRecord files: bytes as TensorFlow's, names, counts, damage and metadata."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import save

from albert_tf.data.create import RecordOutputs
from albert_tf.data.record_metadata import METADATA_SUFFIX, read_metadata, write_metadata
from albert_tf.data.records import (
    START_BYTES,
    count_records,
    read_first_record,
    read_records,
)
from albert_tf.data.tf_example import decode_example, encode_examples
from albert_tf.record_frames import frame_records
from tests.data.conftest import flip, write

CONTENTS = [b"x" * size for size in (5, 700, 31, 31, 97)]


def random_features(rng, rows=5, seq_length=11, slots=7, largest=97):
    return {
        "input_ids": rng.integers(0, largest, (rows, seq_length)).astype(
            np.int32 if largest < 1 << 31 else np.int64
        ),
        "input_mask": rng.integers(0, 2, (rows, seq_length)).astype(np.uint8),
        "masked_lm_ids": rng.integers(0, largest, (rows, slots)).astype(np.int64),
        "masked_lm_weights": rng.random((rows, slots)).astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, (rows, 1)).astype(np.uint8),
    }


def tensorflow_bytes(features, row):
    def feature(values):
        if np.issubdtype(values.dtype, np.floating):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    content = {name: feature(values[row]) for name, values in features.items()}
    example = tf.train.Example(features=tf.train.Features(feature=content))
    return example.SerializeToString(deterministic=True)


# Values around each change in the size of a varint; the lists are longer than 128 bytes, too.
@pytest.mark.parametrize(
    "largest",
    [
        *(97, 128, 129, 30_000, 1 << 14, (1 << 14) + 1, 1 << 16, (1 << 16) + 1),
        *(1 << 21, (1 << 21) + 1, 1 << 28, (1 << 28) + 1, 1 << 35, (1 << 35) + 1, 1 << 56),
    ],
)
@pytest.mark.parametrize("seq_length", [1, 11, 127, 128, 509])
def test_records_are_identical_to_those_of_tensorflow(largest, seq_length):
    rng = np.random.default_rng(5)
    features = random_features(rng, rows=3, seq_length=seq_length, largest=largest)
    features["input_ids"][0, 0] = largest - 1
    encoded = encode_examples(features)
    assert encoded == [tensorflow_bytes(features, row) for row in range(3)]
    for row, record in enumerate(encoded):
        decoded = decode_example(record)
        assert set(decoded) == set(features)
        for name, values in decoded.items():
            np.testing.assert_array_equal(values, features[name][row])


@pytest.mark.parametrize("largest", [128, 300, 70_000, 1 << 40])
def test_zeros_anywhere_in_a_row_are_kept(largest):
    rows = [
        [0, 0, 0, 0, 0],
        [largest, 0, 0, 0, 0],
        [0, largest, 0, 0, 7],
        [0, 0, 0, 0, 7],
        [1, largest, 0, 256, 0],
        [1, 2, 3, 4, largest],
    ]
    features = {"input_ids": np.array(rows), "masked_lm_weights": np.zeros((6, 2), np.float32)}
    assert encode_examples(features) == [tensorflow_bytes(features, row) for row in range(6)]


def test_no_records_are_encoded_as_none():
    assert encode_examples(random_features(np.random.default_rng(5), rows=0)) == []
    assert frame_records([]) == []


@pytest.mark.parametrize("value", [-1, 1 << 56])
def test_integers_out_of_range_are_refused(value):
    with pytest.raises(ValueError, match="integers in"):
        encode_examples({"input_ids": np.array([[3, value]])})


def test_files_are_identical_to_those_of_tensorflow(tmp_path):
    contents = encode_examples(random_features(np.random.default_rng(5), seq_length=211))
    contents += [b"", b"123456789", contents[0][:40]]
    path = str(tmp_path / "train")
    with tf.io.TFRecordWriter(path) as writer:
        for content in contents:
            writer.write(content)
    assert Path(path).read_bytes() == b"".join(frame_records(contents))
    assert list(read_records(path)) == contents
    assert count_records(path) == 8


FRAMES = frame_records(CONTENTS)
FILE = b"".join(FRAMES)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (FILE[:-1], "bad, record 5: the file ends early"),
        (FILE[:-112], "bad, record 5: the file ends early"),
        (FILE[:-115], "bad, record 4: the file ends early"),
        (flip(FRAMES, 2, 0), "bad, record 3: the checksum of its length"),
        (flip(FRAMES, 2, -1), "bad, record 3: its content is damaged"),
        (b"\0\1\2" * 9, "bad, record 1: .* not a TFRecord file"),
    ],
)
def test_a_damaged_record_is_named(tmp_path, content, said):
    with pytest.raises(ValueError, match=said):
        list(read_records(write(tmp_path / "bad", content)))


CREATE = r"expected TFRecords. Create them: albert create-pretraining-data --input_file=\S+/other"


@pytest.mark.parametrize("read", [read_first_record, count_records])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a word, 字字字字\n".encode() * 2000, rf"this is text, {CREATE} --output_file=…$"),
        (b"short", f"this is text, {CREATE}"),
        (b' {"text": "a"}\n', f"this is JSON, {CREATE} --output_file=… --input_format=jsonl$"),
        (b"PAR1\0\0", f"this is rows of Parquet .* {CREATE} .*--input_format=jsonl$"),
        (gzip.compress(FILE), "this is compressed, .* Unpack them, or, if this is text: Create"),
        (save({"a": np.zeros(3)}), "this is weights of safetensors, expected TFRecords"),
        (b"\x89HDF\r\n\x1a\n1234", "this is a file of HDF5, expected TFRecords"),
        (b"\n\x0e\n\x05<unk>\x15", "this is a SentencePiece model, expected TFRecords"),
    ],
)
def test_a_file_of_another_kind_is_named_with_what_makes_records(tmp_path, read, content, said):
    with pytest.raises(ValueError, match=said):
        read(write(tmp_path / "other", content))


@pytest.mark.parametrize(
    ("pattern", "paths", "stem"),
    [
        ("out/a.tfrecord", ("out/a.tfrecord",), "out/a.tfrecord"),
        (" a, b,", ("a", "b"), "a"),
        ("out/a@1", ("out/a-00000-of-00001",), "out/a"),
        ("out/a@2", ("out/a-00000-of-00002", "out/a-00001-of-00002"), "out/a"),
    ],
)
def test_outputs_are_names_or_a_number_of_shards(pattern, paths, stem):
    outputs = RecordOutputs.parse(pattern)
    assert (outputs.paths, outputs.metadata_file) == (paths, f"{stem}.records.json")


@pytest.mark.parametrize(
    "size", [0, 5, START_BYTES - 17, START_BYTES - 16, START_BYTES - 15, 99_999]
)
def test_the_first_record_is_read_without_the_others(tmp_path, size):
    first = b"x" * size
    path = write(tmp_path / "a", b"".join(frame_records([first, b"more"])) + b"damaged")
    assert read_first_record(path) == first


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (flip(frame_records([b"x" * 99_999]), 0, 50_000), "its content is damaged"),
        (frame_records([b"x" * 99_999])[0][:-1], "the file ends early"),
        (b"\x1e" * 99_999, "the checksum of its length is wrong"),
    ],
)
def test_a_first_record_that_is_damaged_is_named(tmp_path, content, said):
    with pytest.raises(ValueError, match=f"a, record 1: {said}"):
        read_first_record(write(tmp_path / "a", content))
    assert read_first_record(write(tmp_path / "empty", b"")) is None


@pytest.fixture
def record_file(tmp_path):
    return write(tmp_path / "train", FILE)


def describe(**settings):
    return {
        "settings": {"max_seq_length": 11, "字": 1, **settings},
        "vocabulary": {"file": "toy.model", "size": 97, "checksum": "c0ffee"},
        "mask_id": 4,
        "files": [{"name": "train", "instances": 5, "bytes": len(FILE)}],
    }


def test_metadata_are_found_for_the_files_that_they_name(tmp_path, record_file, monkeypatch):
    metadata_file = record_file + METADATA_SUFFIX
    write_metadata(metadata_file, describe())
    assert "\n" in (tmp_path / "train.records.json").read_text("utf-8").partition("字")[2]
    found = read_metadata([record_file, write(tmp_path / "other", b"")])
    assert set(found) == {record_file}
    info = found[record_file]
    assert (info.instances, info.mask_id, info.metadata_file) == (5, 4, metadata_file)
    assert info.settings == {"max_seq_length": 11, "字": 1}
    assert info.vocabulary["checksum"] == "c0ffee"
    monkeypatch.chdir(tmp_path)
    assert read_metadata(["train"])["train"].instances == 5


def test_a_file_of_another_size_than_its_metadata_say_is_refused(record_file):
    write_metadata(record_file + METADATA_SUFFIX, describe())
    content = FILE + FRAMES[0]
    write(Path(record_file), content)
    sizes = f"{len(content)} bytes, but {len(FILE)} in .*train.records.json"
    with pytest.raises(ValueError, match=rf"train has {sizes}: it was overwritten, exchanged"):
        read_metadata([record_file])
    entry = {"name": "train", "instances": 6, "bytes": len(content)}
    write_metadata(f"{record_file}-again{METADATA_SUFFIX}", describe() | {"files": [entry]})
    assert read_metadata([record_file])[record_file].instances == 6


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("files", [{"name": "train", "instances": "5", "bytes": 5}]),
        ("files", ["train"]),
        ("settings", 1),
        ("vocabulary", {"file": "v", "checksum": "c0ffee", "size": "9"}),
        ("mask_id", "4"),
    ],
)
def test_a_json_file_that_is_not_metadata_is_named(record_file, name, value):
    write_metadata(record_file + METADATA_SUFFIX, describe() | {name: value})
    with pytest.raises(ValueError, match=r"train\.records\.json: not a metadata file"):
        read_metadata([record_file])
