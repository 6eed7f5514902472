"""Reads text files as a stream of chunks, cut between documents.

The input has the format of Google's programs, one sentence a line and a blank line between
documents; or, depending on `input_format`, a document a file ("documents") or a JSON object a line
("jsonl"), which `text_formats` parses. A file of any size is read once, front to back, with one or
two chunks in memory. Where it is cut depends on the files and the chunk size alone.
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
MAX_SENTENCE_CHARS = 1_000_000  # a longer line is an error: it cannot be a sentence
MIN_DOCUMENT_LIMIT = 16 << 20  # documents up to this size are never cut

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOWHERE = re.compile(rb"(?!)")
_END_OF_DOCUMENT = {
    SENTENCES: re.compile(rb"\n[ \t]*\n"),
    DOCUMENTS: _NOWHERE,  # only the end of the file
    JSONL: re.compile(rb"\n"),
}
# The end of one document and the beginning of the next.
_TWO_DOCUMENTS = {
    SENTENCES: re.compile(rb"\S[ \t]*\n(?:[ \t]*\n)+[ \t]*\S"),
    DOCUMENTS: _NOWHERE,
    JSONL: re.compile(rb"\S[ \t]*\n\s*\S"),
}
_EXPECTED = {
    SENTENCES: "One sentence a line was expected, with a blank line between documents; split the "
    "text into sentences first.",
    DOCUMENTS: "Lines of text were expected.",
    JSONL: "One JSON object a line was expected.",
}


@dataclasses.dataclass(frozen=True)
class Part:
    r"""Consecutive lines of one file.

    Attributes:
        path: the file.
        first_line: number of the first line, counted from 1.
        data: the lines in UTF-8, ended by "\n".
    """

    path: str
    first_line: int
    data: bytes

    def lines(self) -> list[str]:
        """The lines.

        Raises:
            ValueError: not UTF-8; names the file and the line.
        """
        return files.decode_utf8(self.data, self.path, self.first_line).split("\n")


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Some whole documents: the unit of work.

    Attributes:
        index: number of the chunk, counted from 0.
        parts: its text, in order.
        read_bytes: bytes of the input files that were read for it, as they are on disk.
    """

    index: int
    parts: tuple[Part, ...]
    read_bytes: int

    @property
    def checksum(self) -> str:
        """Checksum of the text, hexadecimal; independent of file names and line numbers."""
        digest = hashlib.blake2b(digest_size=16)
        for part in self.parts:
            digest.update(len(part.data).to_bytes(8, "little"))
            digest.update(part.data)
        return digest.hexdigest()

    def lines(self) -> Iterator[list[str]]:
        """The lines of each part. A part begins and ends with a document.

        Raises:
            ValueError: not UTF-8, or a line too long for a sentence; names the file and the line.
        """
        for part in self.parts:
            lines = part.lines()
            for number, line in enumerate(lines, part.first_line):
                check_sentence(line, part.path, number)
            yield lines


def check_sentence(sentence: str, path: str, line: int) -> None:
    """Raises ValueError with the file and the line if a sentence is too long."""
    if len(sentence) > MAX_SENTENCE_CHARS:
        raise _line_too_long(path, line)


def _line_too_long(path: str, line: int, input_format: str = SENTENCES) -> ValueError:
    return ValueError(
        f"{path}, line {line}: longer than {MAX_SENTENCE_CHARS:,} characters. "
        f"{_EXPECTED[input_format]}"
    )


def _unix_line_ends(stream: IO[bytes]) -> Iterator[bytes]:
    r"""The content in blocks, with "\r\n", "\r\r\n" and a lone "\r" made "\n"; without BOM."""
    block = stream.read(READ_BYTES).removeprefix(_BYTE_ORDER_MARK)
    while block:
        while block.endswith(b"\r") and (more := stream.read(1)):
            block += more
        if b"\r" in block:
            block = re.sub(rb"\r+\n", b"\n", block).replace(b"\r", b"\n")
        yield block
        block = stream.read(READ_BYTES)


class _Reader:
    """Cuts one file into parts of at least `part_bytes` that end with a document.

    Args:
        path: the file, plain or compressed with gzip.
        part_bytes: minimum size of a part, except for the last one.
        input_format: one of INPUT_FORMATS.
    """

    def __init__(self, path: str, part_bytes: int, input_format: str):
        self.path = path
        self.input_format = input_format
        self.part_bytes = part_bytes
        self.document_limit = max(MIN_DOCUMENT_LIMIT, 4 * part_bytes)

    def parts(self) -> Iterator[tuple[Part, int]]:
        """The parts, each with how much of the file has been read by then, in bytes on disk."""
        with files.open_binary(self.path) as raw:
            is_compressed = raw.read(len(files.GZIP_MAGIC)) == files.GZIP_MAGIC
            raw.seek(0)
            stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if is_compressed else raw
            line = 1
            pending = b""
            for block in _unix_line_ends(stream):
                # Up to here no document ends; a blank line at the end may be incomplete.
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
        """Where to cut `pending`, or 0 for not yet; no end lies before `searched`."""
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
            "%s, line %d: %d MiB without the end of a document. Cut there, as if it ended.",
            self.path,
            line + pending.count(b"\n", 0, end) - 1,
            end >> 20,
        )
        return end


def read_chunks(
    paths: list[str], chunk_bytes: int, input_format: str = SENTENCES
) -> Iterator[Chunk]:
    """Reads text files as chunks of about `chunk_bytes`.

    Every chunk has two documents or more, because an instance may need text from another document,
    and at least half of `chunk_bytes`, unless all the text has less. The end of a file ends a
    document.

    Args:
        paths: text files, plain or compressed with gzip.
        chunk_bytes: size of a chunk in bytes of text.
        input_format: one of INPUT_FORMATS.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a line much too long, or a damaged gzip file; names the file.
    """
    parts: list[Part] = []
    read_bytes = 0
    held: Chunk | None = None  # yielded later: the last chunk may have to take the remaining parts
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
    """The parts of all files, each with the bytes read since the one before."""
    for path in paths:
        before = 0
        try:
            for part, read_bytes in _Reader(path, part_bytes, input_format).parts():
                yield part, read_bytes - before
                before = read_bytes
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}: a damaged gzip file: {error}") from None


def _size(parts: list[Part]) -> int:
    return sum(len(part.data) for part in parts)


def _holds_two_documents(parts: list[Part], input_format: str) -> bool:
    with_text = [part.data for part in parts if not part.data.isspace()]
    return len(with_text) > 1 or any(map(_TWO_DOCUMENTS[input_format].search, with_text))


def text_checksum(chunk_checksums: Iterable[str]) -> str:
    """Checksum of a text by those of its chunks, in order: hexadecimal.

    Of the content and not of sizes and times: a copy has another time and is the same text, and
    `rsync -t` gives another text of the same size the same time. It costs nothing where the text is
    read anyway, and about a hundredth of the work where it is only compared.
    """
    digest = hashlib.blake2b(digest_size=16)
    for checksum in chunk_checksums:
        digest.update(bytes.fromhex(checksum))
    return digest.hexdigest()
