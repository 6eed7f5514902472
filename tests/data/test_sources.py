"""Sizes and kinds of text files, and their streams."""

from __future__ import annotations

import bz2
import gzip

import pytest

from albert_tf.data import sources
from albert_tf.data.sources import Source, find_sources, open_source

TEXT = "one\ntwo 字\n\n".encode() * 40


def test_files_are_found_with_their_number_size_and_kind(tmp_path):
    contents = [TEXT, b"", gzip.compress(TEXT), b"\x1f"]
    paths = [tmp_path / str(number) for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    assert find_sources(list(map(str, paths))) == [
        Source(number, str(path), len(content), is_splittable=number != 2)
        for number, (path, content) in enumerate(zip(paths, contents, strict=True))
    ]


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere: no such file"):
        find_sources([str(tmp_path / "nowhere")])


@pytest.mark.parametrize("store", [lambda data: data, gzip.compress])
def test_the_text_and_the_progress_are_read(tmp_path, store):
    path = tmp_path / "text"
    path.write_bytes(store(TEXT))
    with open_source(str(path)) as (stream, raw):
        assert stream.read(3) == b"one"
        assert stream.read() == TEXT[3:]
        assert raw.tell() == len(store(TEXT))


def test_bzip2_is_recognized(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(bz2.compress(TEXT) * 2)
    assert not find_sources([str(path)])[0].is_splittable
    with open_source(str(path)) as (stream, _):
        assert stream.read() == TEXT * 2


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:20] + b"x" * 50])
def test_a_damaged_bzip2_file_is_named(tmp_path, damage):
    path = tmp_path / "text"
    path.write_bytes(damage(bz2.compress(TEXT)))
    with (
        pytest.raises(ValueError, match="text: corrupt bzip2 file: "),
        open_source(str(path)) as (stream, _),
    ):
        stream.read()


def test_zstandard_is_recognized_with_any_number_of_frames_and_any_window(tmp_path):
    zstd = pytest.importorskip("backports.zstd")
    longest = {
        zstd.CompressionParameter.window_log: 31,
        zstd.CompressionParameter.enable_long_distance_matching: 1,
    }
    compressor = zstd.ZstdCompressor(options=longest)  # without the size in the header
    content = compressor.compress(TEXT) + compressor.flush() + zstd.compress(TEXT)
    path = tmp_path / "text"
    path.write_bytes(content)
    assert not find_sources([str(path)])[0].is_splittable
    with open_source(str(path)) as (stream, _):
        assert stream.read(3) == b"one"
        assert stream.read() == TEXT[3:] + TEXT


@pytest.mark.parametrize("damage", [lambda data: data[:-5], lambda data: data + b"text"])
def test_a_damaged_zstandard_file_is_named(tmp_path, damage):
    zstd = pytest.importorskip("backports.zstd")
    path = tmp_path / "text"
    path.write_bytes(damage(zstd.compress(TEXT)))
    with (
        pytest.raises(ValueError, match="text: corrupt Zstandard file: "),
        open_source(str(path)) as (stream, _),
    ):
        stream.read()


def test_zstandard_without_its_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "zstd", None)
    path = tmp_path / "text"
    path.write_bytes(b"\x28\xb5\x2f\xfd")
    with (
        pytest.raises(ValueError, match=r"text: .*albert-tf2\[zstd\]"),
        open_source(str(path)),
    ):
        pass
