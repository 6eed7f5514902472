"""Record files: names, counts, corruption and metadata."""

from __future__ import annotations

import gzip
import json
import os

import pytest

from albert_tf.data.records import (
    FEATURES,
    METADATA_SUFFIX,
    Outputs,
    count_records,
    read_metadata,
    read_records,
    write_metadata,
)
from albert_tf.data.tfrecord import frame_records

CONTENTS = [b"x" * size for size in (5, 700, 31, 31, 97)]


def write(path, data):
    path.write_bytes(data)
    return str(path)


@pytest.fixture
def record_file(tmp_path):
    return write(tmp_path / "train.tfrecord", b"".join(frame_records(CONTENTS)))


def describe(path, instances=5, size=None, **settings):
    entry = {
        "name": os.path.basename(path),
        "instances": instances,
        "bytes": os.path.getsize(path) if size is None else size,
    }
    return {
        "settings": {"max_seq_length": 11, **settings},
        "vocabulary": {"file": "toy.model", "size": 97, "checksum": "c0ffee"},
        "mask_id": 4,
        "counts": {"instances": instances},
        "files": [entry],
    }


def test_features_have_the_names_of_the_official_records():
    assert set(FEATURES) == set(
        [
            "input_ids",
            "input_mask",
            "segment_ids",
            "token_boundary",
            "masked_lm_positions",
            "masked_lm_ids",
            "masked_lm_weights",
            "next_sentence_labels",
        ]
    )
    assert [name for name, (dtype, _) in FEATURES.items() if dtype == "float32"] == [
        "masked_lm_weights"
    ]


def test_records_are_counted(tmp_path, record_file):
    assert count_records(record_file) == 5
    assert count_records(write(tmp_path / "empty", b"")) == 0


def test_compressed_records_are_counted(tmp_path, record_file):
    with open(record_file, "rb") as stream:
        packed = write(tmp_path / "train.gz", gzip.compress(stream.read()))
    assert count_records(packed) == 5
    assert list(read_records(packed)) == CONTENTS


def test_a_record_whose_length_looks_like_gzip_is_read(tmp_path):
    content = b"x" * int.from_bytes(b"\x1f\x8b\x08\x00", "little")
    path = write(tmp_path / "train.tfrecord", b"".join(frame_records([content])))
    assert count_records(path) == 1


def test_records_written_by_tensorflow_are_read(tmp_path):
    import tensorflow as tf

    for compression in ("", "GZIP"):
        path = str(tmp_path / f"train{compression}")
        with tf.io.TFRecordWriter(path, compression) as writer:
            for content in CONTENTS:
                writer.write(content)
        assert list(read_records(path)) == CONTENTS


@pytest.mark.parametrize("missing", [1, 4, 5, 100, 112, 115])
def test_an_error_names_the_truncated_file_and_record(tmp_path, record_file, missing):
    with open(record_file, "rb") as stream:
        path = write(tmp_path / "cut.tfrecord", stream.read()[:-missing])
    number = 5 if missing < 113 else 4
    with pytest.raises(ValueError, match=rf"cut\.tfrecord, record {number}: the file ends early"):
        count_records(path)


def test_an_error_names_the_truncated_compressed_file(tmp_path, record_file):
    with open(record_file, "rb") as stream:
        path = write(tmp_path / "cut.gz", gzip.compress(stream.read())[:-15])
    with pytest.raises(ValueError, match=r"cut\.gz, record \d: the file ends early"):
        count_records(path)


def test_an_error_names_the_record_with_a_wrong_length(tmp_path):
    frames = [bytearray(frame) for frame in frame_records(CONTENTS)]
    frames[2][0] ^= 1
    path = write(tmp_path / "bad.tfrecord", b"".join(frames))
    with pytest.raises(ValueError, match=r"bad\.tfrecord, record 3: the checksum of its length"):
        count_records(path)


def test_a_corrupt_record_is_reported(tmp_path):
    frames = [bytearray(frame) for frame in frame_records(CONTENTS)]
    frames[2][20] ^= 1
    path = write(tmp_path / "bad", b"".join(frames))
    with pytest.raises(ValueError, match="bad, record 3: its content is damaged"):
        list(read_records(path))


def test_text_is_not_a_record_file(tmp_path):
    path = write(tmp_path / "text.txt", b"one sentence a line\n" * 9)
    with pytest.raises(ValueError, match=r"record 1: .* not a TFRecord file"):
        count_records(path)


def test_an_error_names_the_missing_file():
    with pytest.raises(FileNotFoundError, match=r"nowhere\.tfrecord"):
        count_records("nowhere.tfrecord")


def test_one_output():
    outputs = Outputs.parse("out/train.tfrecord")
    assert outputs == Outputs(("out/train.tfrecord",), ("out/train.tfrecord",), "")
    assert outputs.metadata_file == "out/train.tfrecord.records.json"


def test_a_list_of_outputs_is_named_after_the_first():
    outputs = Outputs.parse(" a.tfrecord, b.tfrecord,", "gzip")
    assert outputs == Outputs(("a.tfrecord", "b.tfrecord"), ("a.tfrecord", "b.tfrecord"), "gzip")


def test_a_number_of_shards():
    outputs = Outputs.parse("out/train@3")
    assert outputs.stem == "out/train"
    assert outputs.paths == (
        "out/train-00000-of-00003",
        "out/train-00001-of-00003",
        "out/train-00002-of-00003",
    )
    assert len(Outputs.parse("train@100000").paths[-1]) == len("train-99999-of-100000")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("", "at least one"),
        (" , ", "at least one"),
        ("a,b,a", "same file is named twice"),
        ("a@0", "expected 1 to 100000 after the @"),
        ("a@-1", "expected 1 to 100000"),
        ("a@99999999", "expected 1 to 100000"),
    ],
)
def test_invalid_outputs_are_rejected(pattern, reason):
    with pytest.raises(ValueError, match=reason):
        Outputs.parse(pattern)


def test_metadata_is_found_for_the_files_it_names(tmp_path, record_file):
    other = write(tmp_path / "other.tfrecord", b"")
    metadata_file = record_file + METADATA_SUFFIX
    write_metadata(metadata_file, describe(record_file, max_predictions_per_seq=7))
    found = read_metadata([record_file, other])
    assert set(found) == {record_file}
    info = found[record_file]
    assert info.instances == 5
    assert info.settings == {"max_seq_length": 11, "max_predictions_per_seq": 7}
    assert info.vocabulary["checksum"] == "c0ffee"
    assert info.metadata_file == metadata_file


def test_metadata_is_found_in_the_current_folder(monkeypatch, record_file):
    monkeypatch.chdir(os.path.dirname(record_file))
    write_metadata("train.records.json", describe("train.tfrecord"))
    assert read_metadata(["train.tfrecord"])["train.tfrecord"].instances == 5


def test_metadata_of_an_overwritten_file_is_ignored(record_file):
    write_metadata(record_file + METADATA_SUFFIX, describe(record_file, size=7))
    assert read_metadata([record_file]) == {}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"files": [{}]}',
        '{"files": [], "settings": 1, "vocabulary": {}}',
        '{"files": [], "settings": {}, "vocabulary": {"file": "v", "checksum": "c0ffee"}}',
        '{"files": [], "settings": {}, "vocabulary": {"file": "v", "checksum": "c", "size": "9"}}',
    ],
)
def test_an_error_names_a_json_file_that_is_not_metadata(record_file, content):
    path = record_file + METADATA_SUFFIX
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(content)
    with pytest.raises(ValueError, match=r"train\.tfrecord\.records\.json: not a metadata file"):
        read_metadata([record_file])


def test_metadata_is_readable_json(tmp_path):
    path = str(tmp_path / "a.records.json")
    content = {"files": [], "settings": {"字": 1}, "vocabulary": {}}
    write_metadata(path, content)
    with open(path, encoding="utf-8") as stream:
        text = stream.read()
    assert json.loads(text) == content
    assert "字" in text
    assert text.endswith("}\n")
