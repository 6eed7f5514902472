r"""Divides text files into chunks of whole documents that processes read independently.

`plan_jobs` divides the files by their sizes alone, without reading them:

* A large file is cut every `chunk_bytes` bytes. A job holds the documents between the first
  document boundary at or after its start and the first one at or after its end. Both neighbors find
  the same boundary, so that every document is in exactly one job.
* Small files are packed together.
* A compressed, Parquet or Arrow file is one job. It is cut in the same places as the text it
  contains, one chunk after the other.

A chunk is identified by the number of its file and its offset there, from which its random seeds
are derived: they depend neither on the number of processes nor on the order of reading.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO

from absl import logging

from albert_tf import files
from albert_tf.data.sources import Source, find_sources, open_source
from albert_tf.data.text_formats import DOCUMENTS, FORMATS, JSONL, SENTENCES

READ_BYTES = 1 << 16
MAX_SENTENCE_CHARS = 1_000_000  # a longer line cannot be a sentence and is an error
MIN_DOCUMENT_LIMIT = 16 << 20  # documents of up to this many bytes are never split
COMPRESSION_RATIO = 4  # assumed for small compressed files
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# Number of the file and offset in its text.
Position = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Part:
    r"""Consecutive lines of one file.

    Attributes:
        path: the file.
        offset: offset of the first line in the text of the file, in bytes.
        data: the lines in UTF-8, separated by "\n".
    """

    path: str
    offset: int
    data: bytes

    @property
    def first_line(self) -> int:
        """Line number of the first line, starting at 1. Reads the file up to there."""
        return _line_number(self.path, self.offset)

    def lines(self) -> list[str]:
        """Returns the lines, decoded.

        Raises:
            ValueError: the text is not UTF-8; the message names the file and the line.
        """
        try:
            return self.data.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            return files.decode_utf8(self.data, self.path, self.first_line).split("\n")

    def check_sentence(self, sentence: str, line: int) -> None:
        """Checks the length of a sentence.

        Args:
            sentence: the sentence.
            line: index of its line in this part, starting at 0.

        Raises:
            ValueError: it is too long; the message names the file and the line.
        """
        if len(sentence) > MAX_SENTENCE_CHARS:
            raise _line_too_long(self.path, self.first_line + line, SENTENCES)


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Some whole documents, the unit of work of one process.

    Attributes:
        position: identifies the chunk; chunks of a text are sorted by it.
        parts: the text, in order.
        read_bytes: number of input bytes read for this chunk, as stored on disk.
    """

    position: Position
    parts: tuple[Part, ...]
    read_bytes: int

    @property
    def checksum(self) -> str:
        """Checksum of the text in hexadecimal; independent of file names."""
        digest = hashlib.blake2b(digest_size=16)
        for part in self.parts:
            digest.update(len(part.data).to_bytes(8, "little"))
            digest.update(part.data)
        return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Span:
    """A range of a file.

    Attributes:
        source: the file.
        start: offset at or after which the first document starts, in bytes.
        end: offset at or after which the last document ends; None for the end of the file.
    """

    source: Source
    start: int = 0
    end: int | None = None

    @property
    def size(self) -> int:
        """Size in bytes, as stored on disk."""
        return (self.source.size if self.end is None else self.end) - self.start


@dataclasses.dataclass(frozen=True)
class ReadJob:
    """What one process reads: a range of a file, or several small files.

    Attributes:
        spans: the ranges, of which several are whole files and one chunk.
        is_stream: whether this is a large compressed file: read by one process, encoded by all.
    """

    spans: tuple[Span, ...]
    is_stream: bool = False

    @property
    def position(self) -> Position:
        """The position of the first chunk."""
        return self.spans[0].source.number, self.spans[0].start

    @property
    def size(self) -> int:
        """Size in bytes, as stored on disk."""
        return sum(span.size for span in self.spans)


def plan_jobs(source_files: Sequence[Source], chunk_bytes: int, input_format: str) -> list[ReadJob]:
    """Divides files into jobs of about `chunk_bytes` bytes of text, sorted by position.

    Args:
        source_files: the files; only their sizes and kinds are used.
        chunk_bytes: target size of a chunk, in bytes of text. The last chunk of a large file has
            between half and one and a half of it.
        input_format: one of INPUTFORMATS.

    Raises:
        ValueError: a Parquet or Arrow file has another format than "jsonl".
    """
    for source in source_files:
        if source.has_rows and input_format != JSONL:
            raise ValueError(
                f"{source.path} is a Parquet or Arrow file, but the input format is "
                f"{input_format}. Pass --input_format=jsonl, and --text_field for the column"
            )
    source_files = [source for source in source_files if source.size]
    jobs: list[ReadJob] = []
    packs: list[list[Span]] = []
    packed = chunk_bytes  # size of the last pack
    for source in source_files:
        size = source.size if source.is_splittable else COMPRESSION_RATIO * source.size
        if size < chunk_bytes:
            if packed >= chunk_bytes:
                packs.append([])
                packed = 0
            packs[-1].append(Span(source))
            packed += size
        elif source.is_splittable:
            cuts = _cuts(0, source.reaches, chunk_bytes, input_format)
            jobs += [ReadJob((Span(source, start, end),)) for start, end in cuts]
        else:
            jobs.append(ReadJob((Span(source),), is_stream=True))
    if len(packs) > 1 and packed < chunk_bytes / 2:
        last = packs.pop()
        packs[-1] += last
    jobs += [ReadJob(tuple(spans)) for spans in packs]
    return sorted(jobs, key=lambda job: job.position)


def _cuts(
    start: int, reaches: Callable[[int], bool], chunk_bytes: int, input_format: str
) -> Iterator[tuple[int, int | None]]:
    """Yields the start and the end of each chunk of a file; the end is None at the end of the file.

    Args:
        start: offset at which the first chunk starts.
        reaches: returns whether the text of the file has so many bytes.
        chunk_bytes: target size of a chunk, in bytes of text.
        input_format: one of INPUTFORMATS.
    """
    step, smallest = chunk_bytes, max(1, chunk_bytes // 2)  # the smallest remainder that is a chunk
    if input_format == DOCUMENTS:
        step, smallest = _document_limit(chunk_bytes), 1
    while reaches(start + step + smallest):
        yield start, start + step
        start += step
    yield start, None


def _document_limit(chunk_bytes: int) -> int:
    """Returns the size in bytes up to which documents are never split."""
    return max(MIN_DOCUMENT_LIMIT, 4 * chunk_bytes)


def read_chunks(
    paths: Sequence[str], chunk_bytes: int, input_format: str = SENTENCES
) -> Iterator[Chunk]:
    """Yields the content of text files as chunks of about `chunk_bytes`.

    Args:
        paths: text files, plain or gzip-compressed.
        chunk_bytes: target size of a chunk, in bytes of text.
        input_format: one of INPUTFORMATS.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: see `read_job`.
    """
    for job in plan_jobs(find_sources(paths), chunk_bytes, input_format):
        yield from read_job(job, chunk_bytes, input_format)


def read_job(job: ReadJob, chunk_bytes: int, input_format: str) -> Iterator[Chunk]:
    """Yields the chunks of a job: one, several of a compressed file, or none without text.

    Args:
        job: planned with the same arguments.
        chunk_bytes: target size of a chunk, in bytes of text.
        input_format: one of INPUTFORMATS.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a line is far too long, or a gzip file is corrupt; the message names the file.
    """
    if len(job.spans) == 1:
        yield from _read_span(job, chunk_bytes, input_format)
        return
    parts = []
    for span in job.spans:
        with open_source(span.source.path) as (stream, _):
            parts.append(_make_part(span.source.path, 0, stream.read()))
    yield Chunk(job.position, tuple(parts), job.size)


def _read_span(job: ReadJob, chunk_bytes: int, input_format: str) -> Iterator[Chunk]:
    """Yields the chunks of a job with one span."""
    (span,) = job.spans
    source = span.source
    with open_source(source.path) as (stream, raw):
        if span.start:
            stream.seek(span.start)
        window = _Window(source.path, stream, span.start, chunk_bytes, input_format)
        begin = window.boundary(span.start)
        read_bytes = 0
        cuts: Iterable[tuple[int, int | None]] = [(span.start, span.end)]
        if span.end is None:  # the size of the text may be known only now
            cuts = _cuts(span.start, window.reaches, chunk_bytes, input_format)
        for start, end in cuts:
            stop = window.end_of_file() if end is None else window.boundary(end, warns=True)
            if data := window.text(begin, stop):
                part = _make_part(source.path, begin, data)
                consumed = job.size if source.is_splittable else raw.tell()
                yield Chunk((source.number, start), (part,), consumed - read_bytes)
                read_bytes = consumed
            begin = stop
            window.drop(stop if end is None else min(stop, end))


def _make_part(path: str, offset: int, data: bytes) -> Part:
    """Returns a part with Unix line ends and without the byte order mark of the file."""
    data = data if offset else data.removeprefix(_BYTE_ORDER_MARK)
    return Part(path, offset, _unix_line_ends(data))


def _unix_line_ends(data: bytes) -> bytes:
    r"""Returns the text with "\r\n", "\r\r\n" and a lone "\r" replaced by "\n"."""
    if b"\r" in data:
        return re.sub(rb"\r+\n", b"\n", data).replace(b"\r", b"\n")
    return data


class _Window:
    """The part of a file that is in memory, which moves forward.

    Args:
        path: the file.
        stream: the stream of its text, at `start`.
        start: offset at which the window starts.
        chunk_bytes: target size of a chunk, which determines how long documents may be.
        input_format: one of INPUTFORMATS.
    """

    def __init__(
        self, path: str, stream: IO[bytes], start: int, chunk_bytes: int, input_format: str
    ):
        self._path = path
        self._stream = stream
        self._input_format = input_format
        self._limit = _document_limit(chunk_bytes)
        self._start = start
        self._data = b""
        self._has_ended = False

    @property
    def _end(self) -> int:
        return self._start + len(self._data)

    def reaches(self, offset: int) -> bool:
        """Reads up to an offset; returns whether the file has as many bytes."""
        while self._end < offset and not self._has_ended:
            # The end of the window is never in the middle of a line end.
            block = self._stream.read(max(READ_BYTES, offset - self._end))
            while block.endswith(b"\r") and (more := self._stream.read(1)):
                block += more
            self._has_ended = not block
            self._data += block
        return self._end >= offset

    def end_of_file(self) -> int:
        """Reads the rest of the file and returns its size."""
        while self.reaches(self._end + READ_BYTES):
            pass
        return self._end

    def text(self, begin: int, end: int) -> bytes:
        """Returns the text between two offsets."""
        return self._data[begin - self._start : end - self._start]

    def drop(self, end: int) -> None:
        """Drops the text before an offset."""
        self._data = self._data[end - self._start :]
        self._start = end

    def boundary(self, offset: int, warns: bool = False) -> int:
        """Returns the first document boundary at or after an offset, or the end of the file.

        It depends only on the file and the offset, so that two processes find the same.

        Args:
            offset: at which to start looking.
            warns: whether to log a warning if a long document is split there.

        Raises:
            ValueError: a line is far too long; the message names the file and the line.
        """
        if not offset:
            return 0
        is_document = self._input_format == DOCUMENTS
        pattern = FORMATS[self._input_format].end
        limit = offset + self._limit
        searched = offset
        self.reaches(offset + READ_BYTES)
        while True:
            match = pattern.search(self._data, searched - self._start)
            end = self._start + match.end() if match else self._end
            if end > limit:
                return self._split(offset, limit, warns)
            if match or self._has_ended:
                if match and is_document and warns:
                    self._warn_of_split(end)
                return end
            # A boundary may begin with the last line end, but not before.
            last_line_end = max(self._data.rfind(b"\n"), self._data.rfind(b"\r"))
            searched = max(offset, self._start + last_line_end)
            self.reaches(self._end + max(READ_BYTES, self._end - offset))

    def _split(self, offset: int, limit: int, warns: bool) -> int:
        """Returns the end of a line at which to split a document that is too long."""
        begin = offset - self._start
        end = limit - self._start
        line_end = self._data.rfind(b"\n", begin, end)
        if line_end < 0:
            line_end = self._data.rfind(b"\r", begin, end - 1)
        if line_end < 0:
            raise _line_too_long(self._path, _line_number(self._path, offset), self._input_format)
        if warns:
            self._warn_of_split(self._start + line_end + 1)
        return self._start + line_end + 1

    def _warn_of_split(self, offset: int) -> None:
        logging.warning(
            "%s: no document boundary within %d MiB; the document is split after byte %d.",
            self._path,
            self._limit >> 20,
            offset,
        )


def _line_number(path: str, offset: int) -> int:
    """Returns the number of the line that contains an offset, starting at 1.

    Reads the file up to there, which only an error message is worth.
    """
    line = 1
    with open_source(path) as (stream, _):
        while offset > 0 and (block := stream.read(min(offset, 16 * READ_BYTES))):
            while block.endswith(b"\r") and len(block) < offset:
                block += stream.read(1)
            offset -= len(block)
            line += _unix_line_ends(block).count(b"\n")
    return line


def _line_too_long(path: str, line: int, input_format: str) -> ValueError:
    return ValueError(
        f"{path}, line {line}: longer than {MAX_SENTENCE_CHARS:,} characters. "
        f"{FORMATS[input_format].expected}"
    )


def text_checksum(chunk_checksums: Iterable[str]) -> str:
    """Returns the checksum of a text, given those of its chunks in order, in hexadecimal.

    It is computed from the content, because sizes and modification times are unreliable: a copy of
    the same text has a new time, and `rsync -t` can give a different text of the same size the same
    time. It costs nothing where the text is read anyway, and a second for each 150 megabytes where
    it is only compared.
    """
    digest = hashlib.blake2b(digest_size=16)
    for checksum in chunk_checksums:
        digest.update(bytes.fromhex(checksum))
    return digest.hexdigest()
