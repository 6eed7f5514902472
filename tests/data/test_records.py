"""Record files: names, counts, corruption and metadata."""

from __future__ import annotations

import gzip
import io
import json
import os
import resource

import numpy as np
import pytest

from albert_tf import files
from albert_tf.data import records
from albert_tf.data.records import (
    FEATURES,
    METADATA_SUFFIX,
    Outputs,
    count_records,
    read_metadata,
    read_records,
    write_metadata,
)
from albert_tf.data.tfrecord import HEADER_BYTES, frame_header, frame_records

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


def frame_of_length(length):
    """Returns a frame whose length is wrong but matches its checksum."""
    (frame,) = frame_records([b"some content"])
    return frame_header(length) + frame[HEADER_BYTES:]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize(
    ("length", "reason"),
    [
        (
            2**64 - 1,
            "its length is 18446744073709551615 bytes, but a record has at most 2147483647",
        ),
        (10**12, "its length is 1000000000000 bytes"),
        (2**31 - 1, "the file ends early"),
        (13, "the file ends early"),
    ],
)
def test_a_length_beyond_the_file_allocates_no_memory(tmp_path, compress, length, reason):
    frames = b"".join(frame_records(CONTENTS)) + frame_of_length(length)
    path = write(tmp_path / "giant", compress(frames))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=rf"giant, record 6: {reason}"):
        count_records(path)
    found = []
    with pytest.raises(ValueError, match="record 6"):
        found.extend(read_records(path))
    assert found == CONTENTS
    kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert kibibytes < 100_000


def test_a_record_larger_than_a_read_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_PIECE_BYTES", 7)
    frames = b"".join(frame_records(CONTENTS))
    for name, content in (("plain", frames), ("packed", gzip.compress(frames))):
        assert list(read_records(write(tmp_path / name, content))) == CONTENTS


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


def test_cached_lengths_are_still_checked_against_the_end(tmp_path):
    rng = np.random.default_rng(5)
    frames = b"".join(frame_records([rng.bytes(40) for _ in range(9)]))
    path = write(tmp_path / "cut", frames[:-56])
    with open(path, "ab") as stream:
        stream.write(frames[:20])
    with pytest.raises(ValueError, match="record 9: the file ends early"):
        count_records(path)


def count_bytes(monkeypatch):
    """Returns a list that grows by the size of every read of an unbuffered file."""
    sizes = []

    class Counted(io.FileIO):
        def read(self, size=-1):
            content = super().read(size)
            sizes.append(len(content))
            return content

    monkeypatch.setattr(files, "open_unbuffered", lambda path: Counted(path, "rb"))
    return sizes


def test_records_are_found_by_their_headers_alone(tmp_path, monkeypatch):
    path, contents = tmp_path / "a.tfrecord", [bytes([i]) * (100 + i) for i in range(20)]
    path.write_bytes(b"".join(frame_records(contents)))
    sizes = count_bytes(monkeypatch)
    places = list(records.find_places(str(path)))
    assert sizes == [HEADER_BYTES] * 20
    assert [place.number for place in places] == list(range(20))
    assert places[-1].end == path.stat().st_size
    chosen = [places[i] for i in (4, 5, 6, 11)]
    assert records.read_places(str(path), chosen) == [contents[i] for i in (4, 5, 6, 11)]
    assert len(sizes) == 20 + 2  # neighbors are read at once


def test_a_place_with_damaged_content_names_the_record(tmp_path):
    path = tmp_path / "a.tfrecord"
    content = bytearray(b"".join(frame_records([b"a" * 50, b"b" * 50])))
    content[80] ^= 1
    path.write_bytes(content)
    first, second = records.find_places(str(path))
    assert records.read_places(str(path), [first]) == [b"a" * 50]
    with pytest.raises(ValueError, match=r"a\.tfrecord, record 2: its content is damaged"):
        records.read_places(str(path), [second])


@pytest.mark.parametrize("kind", ["cut", "length"])
def test_a_record_that_cannot_be_found_is_named(tmp_path, kind):
    path = tmp_path / "a.tfrecord"
    frames = [bytearray(frame) for frame in frame_records([b"a" * 50, b"b" * 50])]
    if kind == "cut":
        del frames[1][-1:]
    else:
        frames[1][2] ^= 1
    path.write_bytes(b"".join(frames))
    places = records.find_places(str(path))
    assert next(places).number == 0
    with pytest.raises(ValueError, match=r"a\.tfrecord, record 2: .*Create it again"):
        next(places)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("start", [0, 1, 4, 5, 9])
def test_reading_starts_at_any_record(tmp_path, compress, start):
    path, contents = tmp_path / "a.tfrecord", [bytes([i]) * (i + 1) for i in range(6)]
    path.write_bytes(compress(b"".join(frame_records(contents))))
    assert list(records.read_records(str(path), start)) == contents[start:]


def test_an_error_after_the_start_names_the_record(tmp_path):
    path = tmp_path / "a.tfrecord"
    content = bytearray(b"".join(frame_records([b"a" * 50] * 4)))
    content[-9] ^= 1
    path.write_bytes(content)
    following = records.read_records(str(path), start=2)
    assert next(following) == b"a" * 50
    with pytest.raises(ValueError, match=r"a\.tfrecord, record 4: its content is damaged"):
        next(following)
