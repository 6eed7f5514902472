"""Reads text files as a stream of chunks, each a set of whole documents.

By default, files have the format of Google's programs: one sentence per line and a blank line
between documents. With `input_format="documents"` each file is a document, and with "jsonl" each
line is a JSON object; `text_formats` parses these. Files of any size are streamed, with at most two
chunks in memory. Chunk boundaries depend only on the files and the chunk size.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, cast

from absl import logging

from albert_tf import files

SENTENCES, DOCUMENTS, JSONL = INPUT_FORMATS = ("sentences", "documents", "jsonl")

READ_BYTES = 1 << 20
MAX_SENTENCE_CHARS = 1_000_000  # a longer line cannot be a sentence and is an error
MIN_DOCUMENT_LIMIT = 16 << 20  # documents of up to this many bytes are never split

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOWHERE = re.compile(rb"(?!)")
_END_OF_DOCUMENT = {
    SENTENCES: re.compile(rb"\n[ \t]*\n"),
    DOCUMENTS: _NOWHERE,  # only the end of the file
    JSONL: re.compile(rb"\n"),
}
# The end of one document and the start of the next.
_TWO_DOCUMENTS = {
    SENTENCES: re.compile(rb"\S[ \t]*\n(?:[ \t]*\n)+[ \t]*\S"),
    DOCUMENTS: _NOWHERE,
    JSONL: re.compile(rb"\S[ \t]*\n\s*\S"),
}
_EXPECTED = {
    SENTENCES: "Expected one sentence per line and a blank line between documents; split the text "
    "into sentences first.",
    DOCUMENTS: "Expected lines of text.",
    JSONL: "Expected one JSON object per line.",
}


@dataclasses.dataclass(frozen=True)
class Part:
    r"""Consecutive lines of one file.

    Attributes:
        path: the file.
        first_line: line number of the first line, starting at 1.
        data: the lines in UTF-8, separated by "\n".
    """

    path: str
    first_line: int
    data: bytes

    def lines(self) -> list[str]:
        """Returns the lines, decoded.

        Raises:
            ValueError: the text is not UTF-8; the message names the file and the line.
        """
        return files.decode_utf8(self.data, self.path, self.first_line).split("\n")


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Some whole documents, the unit of work of one process.

    Attributes:
        index: index of the chunk, starting at 0.
        parts: the text, in order.
        read_bytes: number of input bytes read for this chunk, as stored on disk.
    """

    index: int
    parts: tuple[Part, ...]
    read_bytes: int

    @property
    def checksum(self) -> str:
        """Checksum of the text in hexadecimal; independent of file names and line numbers."""
        digest = hashlib.blake2b(digest_size=16)
        for part in self.parts:
            digest.update(len(part.data).to_bytes(8, "little"))
            digest.update(part.data)
        return digest.hexdigest()

    def lines(self) -> Iterator[list[str]]:
        """Yields the lines of each part. A part starts and ends at a document boundary.

        Raises:
            ValueError: the text is not UTF-8, or a line is too long for a sentence; the message
                names the file and the line.
        """
        for part in self.parts:
            lines = part.lines()
            for number, line in enumerate(lines, part.first_line):
                check_sentence(line, part.path, number)
            yield lines


def check_sentence(sentence: str, path: str, line: int) -> None:
    """Raises a ValueError that names the file and the line if a sentence is too long."""
    if len(sentence) > MAX_SENTENCE_CHARS:
        raise _line_too_long(path, line)


def _line_too_long(path: str, line: int, input_format: str = SENTENCES) -> ValueError:
    return ValueError(
        f"{path}, line {line}: longer than {MAX_SENTENCE_CHARS:,} characters. "
        f"{_EXPECTED[input_format]}"
    )


def _unix_line_ends(stream: IO[bytes]) -> Iterator[bytes]:
    r"""Yields the content in blocks without a BOM; "\r\n", "\r\r\n" and a lone "\r" become "\n"."""
    block = stream.read(READ_BYTES).removeprefix(_BYTE_ORDER_MARK)
    while block:
        while block.endswith(b"\r") and (more := stream.read(1)):
            block += more
        if b"\r" in block:
            block = re.sub(rb"\r+\n", b"\n", block).replace(b"\r", b"\n")
        yield block
        block = stream.read(READ_BYTES)


class _Reader:
    """Splits a file at document boundaries into parts of at least `part_bytes`.

    Args:
        path: the file, plain or gzip-compressed.
        part_bytes: minimum size of a part in bytes; the last one may be smaller.
        input_format: one of INPUT_FORMATS.
    """

    def __init__(self, path: str, part_bytes: int, input_format: str):
        self.path = path
        self.input_format = input_format
        self.part_bytes = part_bytes
        self.document_limit = max(MIN_DOCUMENT_LIMIT, 4 * part_bytes)

    def parts(self) -> Iterator[tuple[Part, int]]:
        """Yields each part and the number of bytes of the file (on disk) read so far."""
        with files.open_binary(self.path) as raw:
            is_compressed = raw.read(len(files.GZIP_MAGIC)) == files.GZIP_MAGIC
            raw.seek(0)
            stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if is_compressed else raw
            line = 1
            pending = b""
            for block in _unix_line_ends(stream):
                # The minimum size of a part, or the last line break read so far if that is later:
                # the blank line after it may continue in this block.
                searched = max(self.part_bytes - 2, pending.rfind(b"\n"))
                pending += block
                while end := self._end_of_part(pending, line, searched):
                    yield Part(self.path, line, pending[:end]), raw.tell()
                    line += pending.count(b"\n", 0, end)
                    pending = pending[end:]
                    searched = self.part_bytes - 2
            if pending:
                yield Part(self.path, line, pending), raw.tell()

    def _end_of_part(self, pending: bytes, line: int, searched: int) -> int:
        """Returns the offset at which to split `pending`, or 0 if more text has to be read first.

        Args:
            pending: text that has been read but not yielded.
            line: line number at which it starts.
            searched: offset at which to start looking for the end of a document.
        """
        found = _END_OF_DOCUMENT[self.input_format].search(pending, max(0, searched))
        if found and found.end() <= self.document_limit:
            return found.end()
        if len(pending) < self.document_limit:
            return 0
        end = pending.rfind(b"\n", 0, self.document_limit) + 1
        if not end:
            raise _line_too_long(self.path, line, self.input_format)
        if self.input_format == JSONL:
            return end
        logging.warning(
            "%s, line %d: no document boundary within %d MiB; the document is split here.",
            self.path,
            line + pending.count(b"\n", 0, end) - 1,
            end >> 20,
        )
        return end


def read_chunks(
    paths: list[str], chunk_bytes: int, input_format: str = SENTENCES
) -> Iterator[Chunk]:
    """Yields the content of text files as chunks of about `chunk_bytes`.

    Each chunk has at least two documents, because an instance may need text from another document,
    and at least half of `chunk_bytes`, unless the whole text has less. The end of a file ends a
    document.

    Args:
        paths: text files, plain or gzip-compressed.
        chunk_bytes: target size of a chunk, in bytes of text.
        input_format: one of INPUT_FORMATS.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a line is far too long, or a gzip file is corrupt; the message names the file.
    """
    parts: list[Part] = []
    read_bytes = 0
    held: Chunk | None = None  # held back: too small a remainder is appended to the last chunk
    for part, consumed in _all_parts(paths, chunk_bytes, input_format):
        parts.append(part)
        read_bytes += consumed
        if _size(parts) >= chunk_bytes and _holds_two_documents(parts, input_format):
            if held:
                yield held
            held = Chunk(held.index + 1 if held else 0, tuple(parts), read_bytes)
            parts, read_bytes = [], 0
    if held and (_size(parts) < chunk_bytes / 2 or not _holds_two_documents(parts, input_format)):
        yield Chunk(held.index, (*held.parts, *parts), held.read_bytes + read_bytes)
        return
    if held:
        yield held
    if parts:
        yield Chunk(held.index + 1 if held else 0, tuple(parts), read_bytes)


def _all_parts(paths: list[str], part_bytes: int, input_format: str) -> Iterator[tuple[Part, int]]:
    """Yields the parts of all files, each with the number of bytes read since the previous part."""
    for path in paths:
        before = 0
        try:
            for part, read_bytes in _Reader(path, part_bytes, input_format).parts():
                yield part, read_bytes - before
                before = read_bytes
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}: corrupt gzip file: {error}") from None


def _size(parts: list[Part]) -> int:
    return sum(len(part.data) for part in parts)


def _holds_two_documents(parts: list[Part], input_format: str) -> bool:
    with_text = [part.data for part in parts if not part.data.isspace()]
    return len(with_text) > 1 or any(map(_TWO_DOCUMENTS[input_format].search, with_text))


def text_checksum(chunk_checksums: Iterable[str]) -> str:
    """Returns the checksum of a text, given those of its chunks in order, in hexadecimal.

    It is computed from the content, because sizes and modification times are unreliable: a copy of
    the same text has a new time, and `rsync -t` can give a different text of the same size the same
    time. It costs nothing where the text is read anyway, and about one percent of a full run where
    it is only compared.
    """
    digest = hashlib.blake2b(digest_size=16)
    for checksum in chunk_checksums:
        digest.update(bytes.fromhex(checksum))
    return digest.hexdigest()
