"""Finds the ends of documents in a file, of which a part is in memory, and the numbers of lines."""

from __future__ import annotations

import re

from absl import logging

from albert_tf.data.sources import ByteStream, open_source
from albert_tf.data.text_formats import DOCUMENTS, FORMATS, RETURNS

READ_BYTES = 1 << 16
MAX_SENTENCE_CHARS = 1_000_000  # a longer line cannot be a sentence and is an error
MIN_DOCUMENT_LIMIT = 16 << 20  # documents of up to this many bytes are never split


def document_limit(chunk_bytes: int) -> int:
    """Returns the size in bytes up to which documents are never split."""
    return max(MIN_DOCUMENT_LIMIT, 4 * chunk_bytes)


def unix_line_ends(data: bytes) -> bytes:
    r"""Returns the text with "\r\n", "\r\r\n" and a lone "\r" replaced by "\n"."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")  # leaves little to the pattern, which is slower
    if b"\r" in data:
        data = re.sub(RETURNS + rb"\n", b"\n", data).replace(b"\r", b"\n")
    return data


class TextWindow:
    """The part of a file that is in memory, which moves forward.

    Args:
        path: the file.
        stream: the stream of its text, at its start, where the window starts as well.
        chunk_bytes: target size of a chunk, which determines how long documents may be.
        input_format: one of INPUT_FORMATS.
    """

    def __init__(self, path: str, stream: ByteStream, chunk_bytes: int, input_format: str):
        self._path = path
        self._stream = stream
        self._input_format = input_format
        self._limit = document_limit(chunk_bytes)
        self._start = 0
        self._data = b""
        self._has_ended = False
        # No end of a document begins between these offsets. They are remembered, because an end is
        # looked for far beyond a chunk, where the search for the next one would repeat it.
        self._searched_from = self._searched_to = 0
        self._has_warned = False

    @property
    def _end(self) -> int:
        return self._start + len(self._data)

    def reaches(self, offset: int) -> bool:
        """Reads up to an offset; returns whether the file has as many bytes."""
        while self._end < offset and not self._has_ended:
            # The end of the window is not in the middle of a line end.
            blocks = [self._stream.read(max(READ_BYTES, offset - self._end))]
            while blocks[-1].endswith(b"\r") and len(blocks) * READ_BYTES < self._limit:
                blocks.append(self._stream.read(READ_BYTES))
            self._has_ended = not blocks[0]
            self._data = b"".join([self._data, *blocks])
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

    def end_of_document(self, offset: int) -> int:
        """Returns the first end of a document at or after an offset, or the end of the file.

        A document that is too long ends after one of its lines, which is logged as a warning, once
        for a file: one without blank lines is split after each chunk.

        Raises:
            ValueError: a line is far too long; the message names the file and the line.
        """
        is_document = self._input_format == DOCUMENTS
        limit = offset + self._limit
        if not self._searched_from <= offset <= self._searched_to:
            self._searched_from = self._searched_to = offset
        self.reaches(offset + READ_BYTES)
        while True:
            match = self._find_end(self._searched_to)
            end = self._start + match.end() if match else self._end
            # The end of a document may begin with the last line end, but not before.
            last = match.start() if match else self._last_line_end()
            self._searched_to = max(self._searched_to, self._start + last)
            if end > limit:
                return self._split(offset, limit)
            if match or self._has_ended:
                if match and is_document:
                    self._warn_of_split(end)
                return end
            self.reaches(self._end + max(READ_BYTES, self._end - offset))

    def _find_end(self, offset: int) -> re.Match[bytes] | None:
        """Returns the match of the first end of a document that begins at or after an offset."""
        text_format = FORMATS[self._input_format]
        begin = offset - self._start
        is_unix = self._data.find(b"\r", begin) < 0
        pattern = text_format.unix_end if is_unix else text_format.end
        return pattern.search(self._data, begin)

    def _last_line_end(self) -> int:
        """Returns the place of the last line end in the window; -1 if there is none."""
        return max(self._data.rfind(b"\n"), self._data.rfind(b"\r"))

    def _split(self, offset: int, limit: int) -> int:
        """Returns the end of a line at which to split a document that is too long."""
        begin = offset - self._start
        end = limit - self._start
        line_end = self._data.rfind(b"\n", begin, end)
        if line_end < 0:
            line_end = self._data.rfind(b"\r", begin, end - 1)
        if line_end < 0:
            raise line_too_long(self._path, line_number(self._path, offset), self._input_format)
        self._warn_of_split(self._start + line_end + 1)
        return self._start + line_end + 1

    def _warn_of_split(self, offset: int) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        logging.warning(
            "%s: no document boundary within %d MiB; the document is split after byte %d, and "
            "wherever this happens again, without a further warning.",
            self._path,
            self._limit >> 20,
            offset,
        )


def line_number(path: str, offset: int) -> int:
    """Returns the number of the line that contains an offset, starting at 1.

    Reads the file up to there, which only an error message is worth.
    """
    line = 1
    with open_source(path) as (stream, _):
        while offset > 0 and (block := stream.read(min(offset, 16 * READ_BYTES))):
            blocks = [block]
            offset -= len(block)
            while blocks[-1].endswith(b"\r") and offset > 0:
                blocks.append(stream.read(min(offset, READ_BYTES)))
                offset -= len(blocks[-1])
            line += unix_line_ends(b"".join(blocks)).count(b"\n")
    return line


def line_too_long(path: str, line: int, input_format: str) -> ValueError:
    """Returns an error that says what was expected instead of a line, starting at 1."""
    return ValueError(
        f"{path}, line {line}: longer than {MAX_SENTENCE_CHARS:,} characters. "
        f"{FORMATS[input_format].expected}"
    )
