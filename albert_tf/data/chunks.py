"""Reads text files as chunks: some whole documents each, which one process encodes.

* A large file is cut every `chunk_bytes` bytes of its text, each time at the first end of a
  document at or after that place. It makes no difference whether the file is compressed.
* Small files are packed together, and are one chunk.

One process reads all chunks, which is many times as fast as encoding them. A chunk is identified by
the number of its file and the place in its text, from which its random seeds are derived: they do
not depend on the process that encodes it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from albert_tf import files
from albert_tf.data import text_window
from albert_tf.data.sources import TABLE_ROWS, TextSource, open_source
from albert_tf.data.text_formats import DOCUMENTS, JSONL, SENTENCES
from albert_tf.data.text_window import TextWindow

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ADVICE_FOR_ROWS = "Pass --input_format=jsonl, and --text_field for the column"
_ADVICE_FOR_TABLES = (
    "Write its texts as JSON lines or Parquet, for --input_format=jsonl; lines of text are read "
    "from a file with another ending, such as .txt"
)

# Number of the file and offset in its text.
Position = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class ChunkPart:
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
        return text_window.line_number(self.path, self.offset)

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
        if len(sentence) > text_window.MAX_SENTENCE_CHARS:
            raise text_window.line_too_long(self.path, self.first_line + line, SENTENCES)


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Some whole documents, the unit of work of one process.

    Attributes:
        position: identifies the chunk; chunks of a text are sorted by it.
        parts: the text, in order.
        read_bytes: number of input bytes read for this chunk, as stored on disk.
    """

    position: Position
    parts: tuple[ChunkPart, ...]
    read_bytes: int

    @property
    def checksum(self) -> str:
        """Checksum of the text in hexadecimal; independent of file names."""
        digest = hashlib.blake2b(digest_size=16)
        for part in self.parts:
            digest.update(len(part.data).to_bytes(8, "little"))
            digest.update(part.data)
        return digest.hexdigest()


# A large file, or several small ones that are one chunk.
Pack = tuple[TextSource, ...]


def read_chunks(
    sources: Sequence[TextSource], chunk_bytes: int, input_format: str = SENTENCES
) -> Iterator[Chunk]:
    """Yields the content of text files as chunks of about `chunk_bytes`, sorted by position.

    About two chunks are in memory, besides those that the caller keeps.

    Args:
        sources: the text files, of any kind.
        chunk_bytes: target size of a chunk, in bytes of text. The last chunk of a large file has
            between half and one and a half of it.
        input_format: one of INPUT_FORMATS.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: see `pack_files` and `read_pack`.
    """
    for pack in pack_files(sources, chunk_bytes, input_format):
        yield from read_pack(pack, chunk_bytes, input_format)


def pack_files(sources: Iterable[TextSource], chunk_bytes: int, input_format: str) -> list[Pack]:
    """Returns the files that are not empty, the small ones packed together, in order.

    Args:
        sources: the files; only their sizes and kinds are used.
        chunk_bytes: target size of a chunk, in bytes of text; smaller files are packed.
        input_format: one of INPUT_FORMATS.

    Raises:
        ValueError: a file has rows, which are read with the format "jsonl" or not at all.
    """
    large: list[Pack] = []
    small: list[list[TextSource]] = []
    packed_bytes = chunk_bytes  # of the last pack of small files
    for source in sources:
        if source.rows and input_format != JSONL:
            advice = _ADVICE_FOR_TABLES if source.rows == TABLE_ROWS else _ADVICE_FOR_ROWS
            raise ValueError(
                f"{source.path} is {source.rows}, but the input format is {input_format}. {advice}"
            )
        if source.text_bytes >= chunk_bytes:
            large.append((source,))
        elif source.size:
            if packed_bytes >= chunk_bytes:
                small.append([])
                packed_bytes = 0
            small[-1].append(source)
            packed_bytes += source.text_bytes
    if len(small) > 1 and packed_bytes < chunk_bytes / 2:
        last = small.pop()
        small[-1] += last
    return sorted([*large, *map(tuple, small)], key=lambda pack: pack[0].number)


def read_pack(pack: Pack, chunk_bytes: int, input_format: str) -> Iterator[Chunk]:
    """Yields the chunks of a pack: those of a file, one of several files, or none without text.

    Args:
        pack: made by `pack_files` with the same arguments.
        chunk_bytes: target size of a chunk, in bytes of text.
        input_format: one of INPUT_FORMATS.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a line is far too long, or a file is damaged; the message names the file.
    """
    first = pack[0]
    if len(pack) == 1:
        yield from _read_file(first, chunk_bytes, input_format)
        return
    limit = max(files.MAX_WHOLE, text_window.document_limit(chunk_bytes))
    parts = []
    for source in pack:
        with open_source(source.path) as (stream, _):
            data = stream.read(limit + 1)
        if len(data) > limit:
            raise ValueError(
                f"{source.path}: its text is larger than {limit >> 20} MiB, but the file has only "
                f"{source.size:,} bytes. Unpack it"
            )
        parts.append(_make_part(source.path, 0, data))
    yield Chunk((first.number, 0), tuple(parts), sum(source.size for source in pack))


def _read_file(source: TextSource, chunk_bytes: int, input_format: str) -> Iterator[Chunk]:
    """Yields the chunks of one file."""
    with open_source(source.path) as (stream, raw):
        window = TextWindow(source.path, stream, chunk_bytes, input_format)
        begin = read_bytes = 0
        for start, end in _cuts(window.reaches, chunk_bytes, input_format):
            stop = window.end_of_file() if end is None else window.end_of_document(end)
            if data := window.text(begin, stop):
                part = _make_part(source.path, begin, data)
                consumed = raw.tell()
                yield Chunk((source.number, start), (part,), consumed - read_bytes)
                read_bytes = consumed
            begin = stop
            window.drop(stop if end is None else min(stop, end))


def _cuts(
    reaches: Callable[[int], bool], chunk_bytes: int, input_format: str
) -> Iterator[tuple[int, int | None]]:
    """Yields the start and the end of each chunk of a file; the end is None at the end of the file.

    Args:
        reaches: returns whether the text of the file has so many bytes.
        chunk_bytes: target size of a chunk, in bytes of text.
        input_format: one of INPUT_FORMATS.
    """
    step, smallest = chunk_bytes, max(1, chunk_bytes // 2)  # the smallest remainder that is a chunk
    if input_format == DOCUMENTS:
        step, smallest = text_window.document_limit(chunk_bytes), 1
    start = 0
    while reaches(start + step + smallest):
        yield start, start + step
        start += step
    yield start, None


def _make_part(path: str, offset: int, data: bytes) -> ChunkPart:
    """Returns a part with Unix line ends and without the byte order mark of the file."""
    data = data if offset else data.removeprefix(_BYTE_ORDER_MARK)
    return ChunkPart(path, offset, text_window.unix_line_ends(data))


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
