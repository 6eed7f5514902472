"""Chunks of text files: where files are split, and errors in them."""

from __future__ import annotations

import gzip
import random
import re
import tracemalloc
from pathlib import Path

import pytest

from albert_tf.data import corpus
from albert_tf.data.corpus import plan_jobs, read_chunks, read_job
from albert_tf.data.sources import Source, find_sources


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8"))
    return str(path)


def lines_of(chunks):
    return [line for chunk in chunks for part in chunk.parts for line in part.lines()]


def documents_of(chunks):
    """Returns lists of lines, split at blank lines and at the ends of parts."""
    found = [[]]
    for chunk in chunks:
        for part in chunk.parts:
            for line in [*part.lines(), ""]:
                if line.strip():
                    found[-1].append(line)
                else:
                    found.append([])
    return [document for document in found if document]


def random_documents(rng, count=60):
    def sentence():
        return f"{'字' * rng.randint(1, 9)} {rng.random()}"

    return [[sentence() for _ in range(rng.randint(1, 7))] for _ in range(count)]


def random_text(rng, documents=None):
    blank = ["\n", "  \n", "\t \n", "\n\n"]
    return "".join(
        "".join(line + "\n" for line in document) + rng.choice(blank)
        for document in documents or random_documents(rng)
    )


@pytest.mark.parametrize("chunk_bytes", [1, 97, 800, 1 << 20])
def test_chunks_hold_all_documents_in_order(tmp_path, chunk_bytes):
    documents = random_documents(random.Random(5))
    text = random_text(random.Random(6), documents)
    path = write(tmp_path / "text.txt", text)
    chunks = list(read_chunks([path], chunk_bytes))
    assert documents_of(chunks) == documents
    assert [chunk.position for chunk in chunks] == sorted({chunk.position for chunk in chunks})
    assert all(0 <= chunk.parts[0].offset - chunk.position[1] < 400 for chunk in chunks)
    assert len(chunks) > 1 or chunk_bytes > 800


@pytest.mark.parametrize("read_bytes", [1, 2, 3, 13, 211])
def test_chunk_boundaries_do_not_depend_on_the_read_size(tmp_path, monkeypatch, read_bytes):
    text = random_text(random.Random(7)).replace("\n", "\r\n")
    path = write(tmp_path / "text.txt", text)
    expected = [chunk.parts for chunk in read_chunks([path], 300)]
    monkeypatch.setattr(corpus, "READ_BYTES", read_bytes)
    assert [chunk.parts for chunk in read_chunks([path], 300)] == expected
    assert len(expected) > 5


@pytest.mark.parametrize("compress", [lambda data: data, gzip.compress])
def test_a_chunk_with_one_document_borrows_the_next_one(tmp_path, compress):
    long, short = "a long sentence\n" * 50, "short\n\nnext\nline\n"
    one = write(tmp_path / "one.txt", compress(f"{long}\n\n{short}\n{long}".encode()))
    other = write(tmp_path / "other.txt", "\n \n" + long + "\n" + short)
    chunks = list(read_chunks([one, other], 200))
    documents = [documents_of([chunk]) for chunk in chunks]
    assert list(map(len, documents)) == [1, 0, 3, 1, 2]  # the second is a blank line
    # From the same file, and none where a chunk has two documents.
    borrowed = [[(part.path, part.data.decode()) for part in chunk.borrowed] for chunk in chunks]
    assert borrowed == [[(one, "short\n\n")], [], [], [(other, "short\n\n")], []]


def test_the_last_document_borrows_from_the_next_file_and_the_last_file_from_the_first(tmp_path):
    long = "a long sentence\n" * 50
    paths = [write(tmp_path / f"{name}.txt", f"{name}\n" + long) for name in "ab"]
    first, second = read_chunks(paths, 300)
    assert [chunk.borrowed[0].path for chunk in (first, second)] == paths[::-1]
    assert first.borrowed[0].data == second.parts[0].data
    (alone,) = read_chunks(paths[:1], 300)
    assert not alone.borrowed  # there is no other document


def test_only_the_start_of_a_long_document_is_borrowed(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "BORROWED_BYTES", 50)
    paths = [write(tmp_path / f"{name}.txt", f"{name} sentence\n" * 50) for name in "ab"]
    chunks = list(read_chunks(paths, 300, corpus.DOCUMENTS))
    assert chunks[0].borrowed[0].data == b"b sentence\n" * 4


def test_an_error_in_borrowed_text_names_its_line(tmp_path):
    one = write(tmp_path / "one.txt", "a long sentence\n" * 50)
    other = write(tmp_path / "other.txt", b"\n\r\n\ngood\n\xe9\n" + b"good\n" * 200)
    chunk, _ = read_chunks([one, other], 300)
    with pytest.raises(ValueError, match=r"other\.txt, line 5: not UTF-8"):
        chunk.borrowed[0].lines()


def test_the_end_of_a_file_ends_a_document(tmp_path):
    paths = [write(tmp_path / "one.txt", "first"), write(tmp_path / "other.txt", "second\n")]
    assert documents_of(read_chunks(paths, 1 << 20)) == [["first"], ["second"]]


def test_small_files_share_a_chunk(tmp_path):
    paths = [write(tmp_path / f"{name}.txt", f"text {name}\n\nmore\n") for name in range(9)]
    (chunk,) = read_chunks(paths, 1 << 20)
    assert len(documents_of([chunk])) == 18
    assert chunk.read_bytes == 9 * 13
    chunks = list(read_chunks(paths, 30))
    assert [len(chunk.parts) for chunk in chunks] == [3, 3, 3]
    assert [chunk.position for chunk in chunks] == [(0, 0), (3, 0), (6, 0)]


def source(number, size, **kind):
    return Source(number, f"{number}.txt", size, **kind)


def test_the_plan_covers_every_byte_of_every_file_once():
    rng = random.Random(5)
    sizes = [rng.choice([0, 7, 40, 99, 100, 149, 150, 151, 1234, 10_000]) for _ in range(200)]
    found = [source(number, size) for number, size in enumerate(sizes)]
    jobs = plan_jobs(found, 100, corpus.SENTENCES)
    assert [job.position for job in jobs] == sorted(job.position for job in jobs)
    assert sum(job.size for job in jobs) == sum(sizes)
    spans = sorted(
        (span.source.number, span.start, span.source.size if span.end is None else span.end)
        for job in jobs
        for span in job.spans
    )
    for number, size in enumerate(sizes):
        ends = [0, *(end for its, _, end in spans if its == number)]
        assert [start for its, start, _ in spans if its == number] == ends[:-1]
        assert ends[-1] == size
    assert all(50 <= job.size < 250 for job in jobs)
    assert all(job.size < 200 or len(job.spans) > 1 for job in jobs)


def test_many_small_files_are_few_jobs_and_a_file_of_any_size_is_planned_unread():
    small = [source(number, 10_000) for number in range(10_000)]
    jobs = plan_jobs(small, 1 << 20, corpus.SENTENCES)
    assert len(jobs) == 95
    assert max(len(job.spans) for job in jobs) <= 158
    assert len(plan_jobs([source(0, 10**10)], 1 << 20, "sentences")) == round(10**10 / 2**20)
    assert len(plan_jobs([source(0, 10**11)], 1 << 20, "documents")) == -(-(10**11) // 2**24)


def test_a_job_in_a_file_of_100_gb_holds_and_reads_only_its_chunk(tmp_path, monkeypatch):
    """The file is sparse; its middle has 6 MB of text."""
    path, start, step = tmp_path / "text.txt", 50_000 << 20, 1 << 20
    try:
        with open(path, "wb") as stream:
            stream.truncate(10**11)
            stream.seek(start - 1000)
            stream.write(b"a sentence\n\n" * (6 * step // 12))
    except OSError as error:
        pytest.skip(f"no sparse files here: {error}")
    jobs = plan_jobs(find_sources([str(path)]), step, corpus.SENTENCES)
    (job,) = [job for job in jobs if job.position == (0, start + step)]
    opened = []
    real = corpus.sources.open_source
    monkeypatch.setattr(
        corpus.sources, "open_source", lambda path, part=None: opened.append(path) or real(path)
    )
    tracemalloc.start()
    (chunk,) = read_job(job, step, corpus.SENTENCES)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert opened == [str(path)]
    assert abs(len(chunk.parts[0].data) - step) < 100
    assert peak < 4 * step


def test_large_compressed_files_are_streams_and_small_ones_share_a_job():
    found = [source(number, 100 + number, is_splittable=False) for number in range(9)]
    assert {job.is_stream for job in plan_jobs(found, 400, corpus.SENTENCES)} == {True}
    (job,) = plan_jobs(found, 1 << 20, corpus.SENTENCES)
    assert not job.is_stream
    assert len(job.spans) == 9


@pytest.mark.ci
@pytest.mark.parametrize("input_format", corpus.INPUT_FORMATS)
@pytest.mark.parametrize("chunk_bytes", [1, 3, 29])
def test_jobs_read_in_any_order_hold_every_line_once(
    tmp_path, monkeypatch, input_format, chunk_bytes
):
    """Files of random bytes with every kind of line end, cut at every possible place."""
    monkeypatch.setattr(corpus, "READ_BYTES", 5)
    monkeypatch.setattr(corpus, "MIN_DOCUMENT_LIMIT", 100)
    rng = random.Random(chunk_bytes)
    pieces = ["\n", "\n", "\r\n", "\r", " ", "\t", "a", "bc", "字", "\n\n", "\r\n\r\n"]
    texts = ["".join(rng.choices(pieces, k=rng.randint(1, 150))) for _ in range(5)]
    paths = [write(tmp_path / f"{name}.txt", text.encode()) for name, text in enumerate(texts)]
    jobs = plan_jobs(find_sources(paths), chunk_bytes, input_format)
    rng.shuffle(jobs)
    chunks = [chunk for job in jobs for chunk in read_job(job, chunk_bytes, input_format)]
    chunks.sort(key=lambda chunk: chunk.position)
    assert len({chunk.position for chunk in chunks}) == len(chunks)
    found = {path: b"" for path in paths}
    for part in sorted((part for chunk in chunks for part in chunk.parts), key=lambda p: p.offset):
        line = found[part.path].count(b"\n") + 1
        assert part.first_line == line
        found[part.path] += part.data
    expected = [re.sub("\r+\n|\r", "\n", text).encode() for text in texts]
    assert list(found.values()) == expected
    # A compressed file is cut in the same places.
    for path in paths:
        packed = write(tmp_path / "text.gz", gzip.compress(Path(path).read_bytes()))
        both = [list(read_chunks([name], chunk_bytes, input_format)) for name in (path, packed)]
        cuts = [[(c.position, [p.data for p in c.parts]) for c in chunks] for chunks in both]
        assert cuts[0] == cuts[1]


@pytest.mark.parametrize("input_format", [corpus.SENTENCES, corpus.JSONL])
def test_documents_are_never_split(tmp_path, input_format):
    rng = random.Random(7)
    documents = random_documents(rng)
    if input_format == corpus.JSONL:
        documents = [[" ".join(document)] for document in documents]
        text = "".join(f"{document}\r\n" for (document,) in documents)
    else:
        text = random_text(rng, documents)
    path = write(tmp_path / "text.txt", text)
    for chunk_bytes in (1, 17, 100, 500):
        ends = [
            line
            for chunk in read_chunks([path], chunk_bytes, input_format)
            for line in list(filter(str.strip, chunk.parts[0].lines()))[-1:]
        ]
        assert len(ends) > 3
        assert {*ends} <= {document[-1] for document in documents}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r\r\n", "\r"])
def test_line_endings_of_all_systems_are_equivalent(tmp_path, end):
    text = "one\ntwo\n\nthree\n".replace("\n", end)
    path = write(tmp_path / "text.txt", text)
    assert documents_of(read_chunks([path], 1 << 20)) == [["one", "two"], ["three"]]


def test_a_byte_order_mark_is_dropped(tmp_path):
    path = write(tmp_path / "text.txt", b"\xef\xbb\xbfone\n\ntwo\n")
    assert documents_of(read_chunks([path], 1 << 20)) == [["one"], ["two"]]


def test_nul_bytes_and_other_controls_stay_in_their_line(tmp_path):
    text = "one\0two\x0b\x1c\u2028three\n\nfour\n"
    path = write(tmp_path / "text.txt", text)
    assert documents_of(read_chunks([path], 1 << 20)) == [[text.split("\n")[0]], ["four"]]


def test_gzip_files_are_decompressed(tmp_path):
    text = random_text(random.Random(5))
    plain = write(tmp_path / "text.txt", text)
    packed = write(tmp_path / "text.txt.gz", gzip.compress(text.encode()))
    chunks = list(read_chunks([packed], 300))
    assert lines_of(chunks) == lines_of(read_chunks([plain], 300))
    assert [chunk.checksum for chunk in chunks] == [
        chunk.checksum for chunk in read_chunks([plain], 300)
    ]
    assert sum(chunk.read_bytes for chunk in chunks) == len(gzip.compress(text.encode()))
    assert [chunk.position for chunk in chunks] == [
        chunk.position for chunk in read_chunks([plain], 300)
    ]


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data[:40] + b"x" * 90])
def test_an_error_names_the_corrupt_gzip_file(tmp_path, damage):
    data = gzip.compress(random_text(random.Random(5)).encode())
    path = write(tmp_path / "text.gz", damage(data))
    with pytest.raises(ValueError, match=r"text\.gz: corrupt gzip file"):
        list(read_chunks([path], 1 << 20))


def test_an_error_names_the_line_that_is_not_utf_8(tmp_path):
    good = "a sentence\n" * 40 + "\n"
    data = good.encode() * 3 + "in Latin-1: é".encode("latin-1") + b"\nmore\n"
    path = write(tmp_path / "text.txt", data)
    with pytest.raises(ValueError, match=r"text\.txt, line 124: not UTF-8 \(byte 0xe9"):
        lines_of(read_chunks([path], 100))


def test_an_endless_line_is_rejected_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "MIN_DOCUMENT_LIMIT", 5000)
    monkeypatch.setattr(corpus, "READ_BYTES", 1000)
    path = write(tmp_path / "text.txt", "short\n\n" + "x" * 60_000)
    with pytest.raises(ValueError, match=r"text\.txt, line 3: longer than"):
        list(read_chunks([path], 1))


def test_a_file_without_blank_lines_is_split_between_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "MIN_DOCUMENT_LIMIT", 500)
    text = "".join(f"sentence {number}\n" for number in range(1000))
    path = write(tmp_path / "text.txt", text)
    chunks = list(read_chunks([path], 100))
    assert "".join(line + "\n" for line in lines_of(chunks) if line) == text
    assert max(len(part.data) for chunk in chunks for part in chunk.parts) <= 600
    assert len(chunks) > 5


def test_the_checksum_depends_on_the_text_and_its_division_into_files(tmp_path):
    def checksum(*texts):
        paths = [write(tmp_path / f"{index}.txt", text) for index, text in enumerate(texts)]
        (chunk,) = read_chunks(paths, 1 << 20)
        return chunk.checksum

    assert checksum("one\n", "two\n") == checksum("one\n", "two\n")
    assert len({checksum("one\n", "two\n"), checksum("one\ntwo\n"), checksum("one\ntwo \n")}) == 3


def test_the_checksum_of_a_text_depends_on_all_chunks_and_their_order():
    one = corpus.text_checksum(["0a", "0b"])
    assert one == corpus.text_checksum(iter(["0a", "0b"]))
    assert (
        len({one, *map(corpus.text_checksum, (["0b", "0a"], ["0a"], ["0a", "0b", "0b"], []))}) == 5
    )
