"""Chunks of text files: where files are split, and errors in them."""

from __future__ import annotations

import gzip
import random

import pytest

from albert_tf.data import corpus
from albert_tf.data.corpus import read_chunks


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8"))
    return str(path)


def lines_of(chunks):
    return [line for chunk in chunks for lines in chunk.lines() for line in lines]


def documents_of(chunks):
    """Returns lists of lines, split at blank lines and at the ends of parts."""
    found = [[]]
    for chunk in chunks:
        for lines in chunk.lines():
            for line in [*lines, ""]:
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
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert sum(chunk.read_bytes for chunk in chunks) == len(text.encode())
    assert len(chunks) > 1 or chunk_bytes > 800


@pytest.mark.parametrize("read_bytes", [1, 2, 3, 13, 211])
def test_chunk_boundaries_do_not_depend_on_the_read_size(tmp_path, monkeypatch, read_bytes):
    text = random_text(random.Random(7)).replace("\n", "\r\n")
    path = write(tmp_path / "text.txt", text)
    expected = [chunk.parts for chunk in read_chunks([path], 300)]
    monkeypatch.setattr(corpus, "READ_BYTES", read_bytes)
    assert [chunk.parts for chunk in read_chunks([path], 300)] == expected
    assert len(expected) > 5


def test_every_chunk_has_two_documents_and_at_least_half_of_the_size(tmp_path):
    path = write(tmp_path / "text.txt", random_text(random.Random(5)))
    chunks = list(read_chunks([path], 300))
    assert len(chunks) > 5
    for chunk in chunks:
        assert len(documents_of([chunk])) >= 2
        assert sum(len(part.data) for part in chunk.parts) >= 150


def test_a_long_document_shares_its_chunk_with_another(tmp_path):
    path = write(tmp_path / "text.txt", "a long sentence\n" * 50 + "\nshort\n\nnext\n")
    chunks = list(read_chunks([path], 20))
    assert len(documents_of(chunks[:1])) >= 2


def test_the_end_of_a_file_ends_a_document(tmp_path):
    paths = [write(tmp_path / "one.txt", "first"), write(tmp_path / "other.txt", "second\n")]
    assert documents_of(read_chunks(paths, 1 << 20)) == [["first"], ["second"]]


def test_small_files_share_a_chunk(tmp_path):
    paths = [write(tmp_path / f"{name}.txt", f"text {name}\n\nmore\n") for name in range(9)]
    assert len(list(read_chunks(paths, 1 << 20))) == 1


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


def test_an_error_names_the_line_that_is_too_long_for_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "MAX_SENTENCE_CHARS", 50)
    path = write(tmp_path / "text.txt", "short\n\n" + "long " * 11 + "\n")
    with pytest.raises(ValueError, match=r"text\.txt, line 3: longer than 50 characters"):
        lines_of(read_chunks([path], 1 << 20))


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
    assert max(len(part.data) for chunk in chunks for part in chunk.parts) <= 500
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
