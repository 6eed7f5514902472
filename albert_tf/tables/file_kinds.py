"""Tells by the first bytes of a file what it is, where another kind of file is expected."""

from __future__ import annotations

import codecs
import re

from albert_tf.record_frames import HEADER_BYTES, begins_frame

MAGIC_BYTES = HEADER_BYTES  # which tell the kind of any file
_UNPACK = "Unpack it, or write its rows as CSV, JSON lines or Parquet"
_EXTRACT = "Write its text to a text file"
_WEIGHTS = "The weights of a model belong to --init_checkpoint or --model_dir"
# First bytes → what a file is that has neither text nor rows, and what to do.
_WITHOUT_TEXT = {
    b"7z\xbc\xaf'\x1c": ("an archive of 7-Zip", _UNPACK),
    b"Rar!\x1a\x07": ("an archive of RAR", _UNPACK),
    b"\x04\x22\x4d\x18": ("compressed with LZ4", _UNPACK),
    b"\x1f\x9d": ("compressed with compress", _UNPACK),
    b"\xd0\xcf\x11\xe0": ("an old file of Office", _UNPACK),
    b"SQLite f": ("a database of SQLite", _UNPACK),
    b"\x89HDF\r\n\x1a\n": ("a file of HDF5", _UNPACK),
    b"\x93NUMPY": ("an array of NumPy", _UNPACK),
    b"%PDF-": ("a PDF", _EXTRACT),
    b"\x89PNG": ("an image", _EXTRACT),
    b"\xff\xd8\xff": ("an image", _EXTRACT),
    b"\x80\x02": ("an object of pickle or PyTorch", _WEIGHTS),
}
_RECORDS = (
    "TFRecords",
    "Train on them with run_pretraining.py, or print them: albert inspect-records --input_file={}",
)
_SAFETENSORS = ("weights of safetensors", _WEIGHTS)
_SENTENCEPIECE = ("a SentencePiece model", "Pass it as --spm_model_file")
_BEGINS_PIECES = re.compile(rb"\n.\n.[<\xe2]", re.DOTALL)  # the first one, such as "<pad>" or "▁"
_CONTROLS = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")
_SAFETENSORS_LIMIT = 100_000_000  # bytes of a header, as its library says


def without_text(start: bytes) -> tuple[str, str] | None:
    """Returns what a file is that has neither text nor rows, and what to do; None for others.

    Args:
        start: its first `MAGIC_BYTES` bytes, or more. In what to do, "{}" stands for its path.
    """
    if begins_frame(start):
        return _RECORDS
    if int.from_bytes(start[:8], "little") <= _SAFETENSORS_LIMIT and start[8:9] == b"{":
        return _SAFETENSORS
    if _BEGINS_PIECES.match(start):
        return _SENTENCEPIECE
    return next((kind for first, kind in _WITHOUT_TEXT.items() if start.startswith(first)), None)


def is_text(start: bytes) -> bool:
    """Returns whether the first bytes of a file, but for a letter cut off, are text in UTF-8."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False
    return bool(text.strip()) and not _CONTROLS.search(start)
