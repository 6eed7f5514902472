"""Reads text compressed with Zstandard."""

from __future__ import annotations

import io
from typing import IO, Any

MAGIC = b"\x28\xb5\x2f\xfd"
_READ_BYTES = 1 << 17
_MAX_WINDOW_BYTES = 1 << 31  # of `zstd --long=31`


def open_stream(path: str, raw: IO[bytes]) -> io.BufferedReader:
    """Returns the text of a compressed file.

    Args:
        path: the file, for messages.
        raw: the file, at its start.

    Raises:
        ValueError: the package zstandard is not installed.
    """
    try:
        import zstandard
    except ImportError:
        raise ValueError(
            f"{path}: reading Zstandard files requires zstandard: pip install 'albert-tf2[zstd]'"
        ) from None
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
    return io.BufferedReader(_Stream(raw, decompressor), _READ_BYTES)


class _Stream(io.RawIOBase):
    """The content of all frames. Unlike zstandard's own stream, it notices a missing end."""

    def __init__(self, raw: IO[bytes], decompressor: Any) -> None:
        super().__init__()
        self._raw = raw
        self._decompressor = decompressor
        self._frame: Any = None  # None between two frames
        self._compressed = b""
        self._text = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._text:
            self._compressed = self._compressed or self._raw.read(_READ_BYTES)
            if not self._compressed:
                if self._frame is not None:
                    raise EOFError("the file ends early")
                return 0
            if self._frame is None:
                self._frame = self._decompressor.decompressobj()
            self._text = memoryview(self._decompress(self._compressed))
            self._compressed = b""
            if self._frame.eof:
                self._compressed = self._frame.unused_data
                self._frame = None
        return self._take(buffer)

    def _decompress(self, compressed: bytes) -> bytes:
        import zstandard

        try:
            text: bytes = self._frame.decompress(compressed)
        except zstandard.ZstdError as error:  # not an OSError
            raise OSError(str(error)) from None
        return text

    def _take(self, buffer: Any) -> int:
        """Moves text into a buffer, and returns the number of bytes."""
        count = min(len(buffer), len(self._text))
        buffer[:count] = self._text[:count]
        self._text = self._text[count:]
        return count
