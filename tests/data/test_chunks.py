"""Chunks of text files: where files are split, and errors in them."""

from __future__ import annotations

import gzip
import random
import re

import pytest

from albert_tf.data import chunks as text_chunks
from albert_tf.data.chunks import plan_jobs, read_chunks, read_job, text_checksum
from albert_tf.data.sources import Source, find_sources
from albert_tf.data.text_formats import INPUT_FORMATS, SENTENCES
from tests.data.conftest import split_documents, write


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
    return Source(number, f"{number}.txt", size, **kind)


def test_the_plan_covers_every_byte_of_every_file_once():
    rng = random.Random(5)
    sizes = [rng.choice([0, 7, 40, 99, 100, 149, 150, 151, 1234, 10_000]) for _ in range(200)]
    jobs = plan_jobs([source(*pair) for pair in enumerate(sizes)], 100, SENTENCES)
    assert [job.position for job in jobs] == sorted(job.position for job in jobs)
    planned = [0] * len(sizes)
    for span in (span for job in jobs for span in job.spans):
        assert span.start == planned[span.source.number]
        planned[span.source.number] += span.size
    assert planned == sizes
    assert all(50 <= job.size < 250 for job in jobs)
    assert all(job.size < 200 or len(job.spans) > 1 for job in jobs)


def test_many_small_files_are_few_jobs_and_files_as_documents_are_rarely_split():
    jobs = plan_jobs([source(number, 10_000) for number in range(10_000)], 1 << 20, "sentences")
    assert len(jobs) == 95
    assert len(plan_jobs([source(0, 10**11)], 1 << 20, "documents")) == -(-(10**11) // 2**24)


def test_large_compressed_files_are_streams_and_small_ones_share_a_job():
    found = [source(number, 100 + number, is_splittable=False) for number in range(9)]
    assert {job.is_stream for job in plan_jobs(found, 400, SENTENCES)} == {True}
    (job,) = plan_jobs(found, 1 << 20, SENTENCES)
    assert not job.is_stream
    assert len(job.spans) == 9


@pytest.mark.parametrize("input_format", INPUT_FORMATS)
@pytest.mark.parametrize("chunk_bytes", [1, 29])
def test_jobs_read_in_any_order_hold_every_line_once(
    tmp_path, monkeypatch, input_format, chunk_bytes
):
    """Random text with every kind of line end, cut at every possible place."""
    monkeypatch.setattr(text_chunks, "READ_BYTES", 5)
    monkeypatch.setattr(text_chunks, "MIN_DOCUMENT_LIMIT", 100)
    rng = random.Random(chunk_bytes)
    pieces = ["\n", "\n", "\r\n", "\r", " ", "\t", "a", "bc", "字", "\n\n", "\r\n\r\n"]
    texts = ["".join(rng.choices(pieces, k=rng.randint(1, 150))) for _ in range(3)]
    paths = [write(tmp_path / f"{name}.txt", text) for name, text in enumerate(texts)]
    jobs = plan_jobs(find_sources(paths), chunk_bytes, input_format)
    rng.shuffle(jobs)
    chunks = [chunk for job in jobs for chunk in read_job(job, chunk_bytes, input_format)]
    chunks.sort(key=lambda chunk: chunk.position)
    assert len({chunk.position for chunk in chunks}) == len(chunks)
    found = {path: b"" for path in paths}
    for part in sorted((part for chunk in chunks for part in chunk.parts), key=lambda p: p.offset):
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
    monkeypatch.setattr(text_chunks, "MIN_DOCUMENT_LIMIT", 5000)
    monkeypatch.setattr(text_chunks, "READ_BYTES", 1000)
    path = write(tmp_path / "text.txt", start + "x" * 60_000)
    with pytest.raises(ValueError, match=rf"text\.txt, line {line}: longer than .* Expected one"):
        list(read_chunks([path], 1000, input_format))


@pytest.mark.parametrize("input_format", ["sentences", "documents"])
def test_a_document_that_is_too_long_is_split_between_lines_with_a_warning(
    tmp_path, monkeypatch, caplog, input_format
):
    monkeypatch.setattr(text_chunks, "MIN_DOCUMENT_LIMIT", 500)
    lines = [f"sentence {number}" for number in range(1000)]
    path = write(tmp_path / "text.txt", "\n".join(lines) + "\n")
    chunks = list(read_chunks([path], 100, input_format))
    assert [line for document in documents_of(chunks) for line in document] == lines
    assert max(len(part.data) for chunk in chunks for part in chunk.parts) <= 1100
    assert len(chunks) > 5
    assert f"{path}: no document boundary within" in caplog.text


def test_checksums_depend_on_the_text_its_files_and_the_order_of_chunks(tmp_path):
    def checksum(*texts):
        paths = [write(tmp_path / f"{index}.txt", text) for index, text in enumerate(texts)]
        (chunk,) = read_chunks(paths, 1 << 20)
        return chunk.checksum

    assert checksum("one\n", "two\n") == checksum("one\n", "two\n")
    assert len({checksum("one\n", "two\n"), checksum("one\ntwo\n"), checksum("one\ntwo \n")}) == 3
    texts = [["0a", "0b"], ["0b", "0a"], ["0a"], ["0a", "0b", "0b"], []]
    assert len(set(map(text_checksum, texts))) == 5
