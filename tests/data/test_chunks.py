"""Chunks of text files: where files are split, and errors in them."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import random
import re
import types

import pytest

from albert_tf import files
from albert_tf.data import text_window
from albert_tf.data.chunks import pack_files, text_checksum
from albert_tf.data.chunks import read_chunks as read_sources
from albert_tf.data.sources import TextSource, find_sources
from albert_tf.data.text_formats import FORMATS, INPUT_FORMATS, SENTENCES
from tests.data.conftest import split_documents, write


def read_chunks(paths, chunk_bytes, input_format=SENTENCES):
    return read_sources(find_sources(paths), chunk_bytes, input_format)


def documents_of(chunks):
    """Documents as lists of lines, of which none extends over parts."""
    parts = [part.lines() for chunk in chunks for part in chunk.parts]
    return split_documents(line for lines in parts for line in [*lines, ""])


def test_small_files_share_a_chunk_and_the_end_of_a_file_ends_a_document(tmp_path):
    paths = [write(tmp_path / f"{name}.txt", f"text {name}\n\nmore") for name in range(9)]
    (chunk,) = read_chunks(paths, 1 << 20)
    assert len(documents_of([chunk])) == 18
    assert chunk.read_bytes == 9 * 12
    chunks = list(read_chunks(paths, 30))
    assert [len(chunk.parts) for chunk in chunks] == [3, 3, 3]
    assert [chunk.position for chunk in chunks] == [(0, 0), (3, 0), (6, 0)]


def source(number, size, **kind):
    return TextSource(number, f"{number}.txt", size, **kind)


def test_every_file_with_text_is_in_one_pack_and_small_files_are_packed_up_to_a_chunk():
    rng = random.Random(5)
    sizes = [rng.choice([0, 1, 7, 40, 99, 100, 1234]) for _ in range(200)]
    packs = pack_files([source(*pair) for pair in enumerate(sizes)], 100, SENTENCES)
    found = sorted(file.number for pack in packs for file in pack)
    assert found == [number for number, size in enumerate(sizes) if size]
    assert [pack[0].number for pack in packs] == sorted(pack[0].number for pack in packs)
    for pack in packs:
        assert [file.number for file in pack] == sorted(file.number for file in pack)
        total = sum(file.size for file in pack)
        assert len(pack) == 1 if pack[0].size >= 100 else 50 <= total < 250


@pytest.mark.parametrize(
    ("sizes", "packs"),
    [
        ([99, 1, 99], [2, 1]),  # full with 100 bytes
        ([99, 2, 98], [2, 1]),
        ([99, 1, 50], [2, 1]),  # the last pack has half a chunk
        ([99, 1, 49], [3]),
        ([49], [1]),
        ([100, 49, 100, 60], [1, 2, 1]),  # also if there is a large file between them
        ([0, 0], []),
    ],
)
def test_the_last_small_files_join_the_others_if_they_are_less_than_half_a_chunk(sizes, packs):
    found = pack_files([source(*pair) for pair in enumerate(sizes)], 100, SENTENCES)
    assert [len(pack) for pack in found] == packs


def test_compressed_files_are_taken_for_four_times_their_size():
    sources = [source(number, 100, is_compressed=True) for number in range(4)]
    assert [len(pack) for pack in pack_files(sources, 400, SENTENCES)] == [1, 1, 1, 1]
    assert [len(pack) for pack in pack_files(sources, 401, SENTENCES)] == [2, 2]


@pytest.mark.parametrize(
    ("input_format", "size", "starts"),
    [
        ("jsonl", 149, [0]),
        ("jsonl", 150, [0, 100]),
        ("jsonl", 249, [0, 100]),
        ("jsonl", 250, [0, 100, 200]),
        ("documents", 501, [0]),  # the line at byte 500 ends there
        ("documents", 502, [0, 500]),
    ],
)
def test_the_last_chunk_of_a_file_has_at_least_half_of_the_others(
    tmp_path, monkeypatch, input_format, size, starts
):
    monkeypatch.setattr(text_window, "MIN_DOCUMENT_LIMIT", 500)
    path = write(tmp_path / "text", "x" + "\n" * (size - 1))
    chunks = list(read_chunks([path], 100, input_format))
    assert [chunk.position for chunk in chunks] == [(0, start) for start in starts]


def test_a_file_is_read_little_by_little(tmp_path, monkeypatch):
    monkeypatch.setattr(text_window, "READ_BYTES", 5)
    path = write(tmp_path / "text", "line\n\n" * 1000)
    read_bytes = 0
    for chunk in read_chunks([path], 100):
        read_bytes += chunk.read_bytes
        assert read_bytes < chunk.position[1] + 200
    assert read_bytes == 6000


@pytest.mark.parametrize("input_format", INPUT_FORMATS)
@pytest.mark.parametrize("chunk_bytes", [1, 29])
def test_the_chunks_hold_every_line_once(tmp_path, monkeypatch, input_format, chunk_bytes):
    """Random text with every kind of line end, cut at every possible place."""
    monkeypatch.setattr(text_window, "READ_BYTES", 5)
    monkeypatch.setattr(text_window, "MIN_DOCUMENT_LIMIT", 100)
    rng = random.Random(chunk_bytes)
    pieces = ["\n", "\n", "\r\n", "\r", " ", "\t", "a", "bc", "字", "\n\n", "\r\n\r\n"]
    texts = ["".join(rng.choices(pieces, k=rng.randint(1, 150))) for _ in range(3)]
    paths = [write(tmp_path / f"{name}.txt", text) for name, text in enumerate(texts)]
    chunks = list(read_chunks(paths, chunk_bytes, input_format))
    positions = [chunk.position for chunk in chunks]
    assert positions == sorted(set(positions))
    found = {path: b"" for path in paths}
    for part in (part for chunk in chunks for part in chunk.parts):
        assert part.first_line == found[part.path].count(b"\n") + 1
        found[part.path] += part.data
    expected = [re.sub("\r+\n|\r", "\n", text).encode() for text in texts]
    assert list(found.values()) == expected
    # A compressed file is cut in the same places.
    for path, text in zip(paths, texts, strict=True):
        packed = write(tmp_path / "text.gz", gzip.compress(text.encode()))
        both = [list(read_chunks([name], chunk_bytes, input_format)) for name in (path, packed)]
        plain, packed = ([(chunk.position, chunk.checksum) for chunk in some] for some in both)
        assert plain == packed


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ("one\r\r\ntwo\r\r\n\r\r\nthree", [["one", "two"], ["three"]]),
        ("one\rtwo\r\rthree\r", [["one", "two"], ["three"]]),
        ("\ufeffone\n\ntwo\n", [["one"], ["two"]]),
        ("one\0two\x0b\x1c\u2028three\n\nfour\n", [["one\0two\x0b\x1c\u2028three"], ["four"]]),
    ],
    ids=["twice windows", "mac", "byte order mark", "controls"],
)
def test_lines_end_as_on_any_system_and_hold_any_character(tmp_path, text, documents):
    path = write(tmp_path / "text.txt", text)
    assert documents_of(read_chunks([path], 1 << 20)) == documents


@pytest.mark.parametrize("input_format", [SENTENCES, "jsonl"])
@pytest.mark.parametrize("end", ["\n", ""])
def test_each_of_many_carriage_returns_is_looked_at_a_few_times(tmp_path, input_format, end):
    path = write(tmp_path / "text.txt", "one" + "\r" * 300_000 + end + "two")
    documents = documents_of(read_chunks([path], 100_000, input_format))
    assert [document for document in documents if document] == [["one"], ["two"]]


def test_errors_name_the_line_that_is_not_utf_8(tmp_path):
    good = b"a sentence\n" * 40 + b"\n"
    path = write(tmp_path / "text.txt", good * 3 + b"in Latin-1: \xe9\nmore\n")
    with pytest.raises(ValueError, match=r"text\.txt, line 124: not UTF-8 \(byte 0xe9"):
        documents_of(read_chunks([path], 100))


@pytest.mark.parametrize(
    ("input_format", "start", "line"),
    [("sentences", "short\n\n", 3), ("jsonl", '{"text": "short"}\n{"text": "', 2)],
)
def test_an_endless_line_is_refused_before_it_is_read(
    tmp_path, monkeypatch, input_format, start, line
):
    monkeypatch.setattr(text_window, "MIN_DOCUMENT_LIMIT", 5000)
    monkeypatch.setattr(text_window, "READ_BYTES", 1000)
    path = write(tmp_path / "text.txt", start + "x" * 60_000)
    with pytest.raises(ValueError, match=rf"text\.txt, line {line}: longer than .* Expected one"):
        list(read_chunks([path], 1000, input_format))


def test_a_small_file_that_unpacks_to_far_more_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_WHOLE", 2000)
    monkeypatch.setattr(text_window, "MIN_DOCUMENT_LIMIT", 500)
    paths = [write(tmp_path / f"{n}.gz", gzip.compress(b"a line\n" * 20 * n)) for n in (1, 9, 90)]
    assert len(list(read_chunks(paths[:2], 1000))) == 1
    with pytest.raises(ValueError, match=r"90\.gz: its text is larger than .* Unpack it"):
        list(read_chunks(paths, 1000))


@pytest.mark.parametrize("input_format", ["sentences", "documents"])
def test_a_document_that_is_too_long_is_split_between_lines_with_a_warning(
    tmp_path, monkeypatch, caplog, input_format
):
    monkeypatch.setattr(text_window, "MIN_DOCUMENT_LIMIT", 500)
    lines = [f"sentence {number}" for number in range(1000)]
    path = write(tmp_path / "text.txt", "\n".join(lines) + "\n")
    chunks = list(read_chunks([path], 100, input_format))
    assert [line for document in documents_of(chunks) for line in document] == lines
    assert max(len(part.data) for chunk in chunks for part in chunk.parts) <= 1100
    assert len(chunks) > 5
    assert [f"{path}: no document boundary within" in text for text in caplog.messages] == [True]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_text_without_blank_lines_is_searched_for_them_about_once(tmp_path, monkeypatch, line_end):
    monkeypatch.setattr(text_window, "MIN_DOCUMENT_LIMIT", 4000)
    monkeypatch.setattr(text_window, "READ_BYTES", 100)
    text = f"a line of 24 characters{line_end}" * 2000
    searched = []

    def count(pattern):
        def search(data, begin):
            match = pattern.search(data, begin)
            searched.append((match.end() if match else len(data)) - begin)
            return match

        return types.SimpleNamespace(search=search)

    ends = FORMATS[SENTENCES]
    counted = dataclasses.replace(ends, end=count(ends.end), unix_end=count(ends.unix_end))
    monkeypatch.setitem(FORMATS, SENTENCES, counted)
    path = write(tmp_path / "text.txt", text)
    chunks = list(read_chunks([path], 100))
    assert len(chunks) > 400
    assert sum(searched) < 2 * len(text)


@pytest.mark.parametrize("chunk_bytes", [40, 150])
def test_chunks_end_where_the_whole_text_says(tmp_path, monkeypatch, chunk_bytes):
    """The law of the ends, on the whole text: a blank line within the limit, or else a line."""
    monkeypatch.setattr(text_window, "MIN_DOCUMENT_LIMIT", 200)
    monkeypatch.setattr(text_window, "READ_BYTES", 7)
    limit = max(200, 4 * chunk_bytes)
    rng = random.Random(chunk_bytes)
    for number in range(9):
        blank = rng.choice([0, 1, 3])  # so much of twenty lines is blank
        lines = ["" if rng.random() < blank / 20 else "x" * rng.randint(1, 30) for _ in range(150)]
        text = "\n".join([*lines, "end"])
        path = write(tmp_path / f"{number}.txt", text)
        ends = []
        for start in range(chunk_bytes, len(text) - chunk_bytes // 2 + 1, chunk_bytes):
            found = text.find("\n\n", start)
            end = found + 2 if found >= 0 else len(text)
            is_whole = end <= start + limit
            ends.append(end if is_whole else text.rfind("\n", start, start + limit) + 1)
        chunks = list(read_chunks([path], chunk_bytes))
        lengths = [len(chunk.parts[0].data) for chunk in chunks]
        assert list(itertools.accumulate(lengths)) == sorted({*ends, len(text)}), number


@pytest.mark.parametrize(("size", "is_split"), [(600, False), (601, True)])
def test_a_document_up_to_the_limit_after_its_place_in_the_file_is_whole(
    tmp_path, monkeypatch, caplog, size, is_split
):
    monkeypatch.setattr(text_window, "MIN_DOCUMENT_LIMIT", 500)
    document = "a line\n" * 70 + "x" * (size - 492) + "\n\n"
    path = write(tmp_path / "text.txt", document + "more\n" * 99)
    first, *_ = read_chunks([path], 100)
    assert len(first.parts[0].data) == 600
    assert (f"{path}: no document boundary within" in caplog.text) == is_split


def test_checksums_depend_on_the_text_its_files_and_the_order_of_chunks(tmp_path):
    def checksum(*texts):
        paths = [write(tmp_path / f"{index}.txt", text) for index, text in enumerate(texts)]
        (chunk,) = read_chunks(paths, 1 << 20)
        return chunk.checksum

    assert checksum("one\n", "two\n") == checksum("one\n", "two\n")
    assert len({checksum("one\n", "two\n"), checksum("one\ntwo\n"), checksum("one\ntwo \n")}) == 3
    texts = [["0a", "0b"], ["0b", "0a"], ["0a"], ["0a", "0b", "0b"], []]
    assert len(set(map(text_checksum, texts))) == 5
