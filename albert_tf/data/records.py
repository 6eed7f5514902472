"""Reads and writes files of pre-training records, without TensorFlow.

A record is a serialized `tf.train.Example` (`tf_example`). Feature names are Google's. Note that
`next_sentence_labels` is BERT's name, but holds the label of any sentence objective
(`model/objectives.py`), by default ALBERT's: 0 if the segments are in order, 1 if they are swapped.

`record_frames.py` has the frames, of which a TFRecord file consists.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Generator, Iterable, Iterator
from typing import IO

from albert_tf import files
from albert_tf.record_frames import (
    FOOTER_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    begins_frame,
    checksum,
    frame_header,
)
from albert_tf.tables import arrow, compression, file_kinds

# Feature → (dtype on disk, width), where the width is the name of a setting or a number.
FEATURES: dict[str, tuple[str, str | int]] = {
    "input_ids": ("int64", "max_seq_length"),
    "input_mask": ("int64", "max_seq_length"),
    "segment_ids": ("int64", "max_seq_length"),
    "token_boundary": ("int64", "max_seq_length"),
    "masked_lm_positions": ("int64", "max_predictions_per_seq"),
    "masked_lm_ids": ("int64", "max_predictions_per_seq"),
    "masked_lm_weights": ("float32", "max_predictions_per_seq"),
    "next_sentence_labels": ("int64", 1),
}

RECORDS_AT_ONCE = 1000  # records per write
START_BYTES = 1 << 14  # of a file, which contain the first record unless it is unusually long


def write_records(path: str, frames: Iterable[bytes]) -> Iterator[int]:
    """Writes a record file, which appears at `path` only when it is complete.

    Args:
        path: the file.
        frames: the frames of the records.

    Yields:
        Numbers of records, whenever some have been written.
    """
    iterator = iter(frames)
    with files.write_atomically(path, "wb") as stream:
        while some := list(itertools.islice(iterator, RECORDS_AT_ONCE)):
            stream.writelines(some)
            yield len(some)


def read_records(path: str) -> Generator[bytes, None, None]:
    """Yields the records of a TFRecord file.

    Raises:
        ValueError: the file is truncated or corrupt. The message names it and the number of the
            record, starting at 1.
    """
    with files.open_binary(path) as stream, files.naming_file(path):
        yield from _read_stream(path, stream)


def _read_stream(path: str, stream: IO[bytes]) -> Iterator[bytes]:
    for number in itertools.count(1):
        try:
            content = _read_content(stream)
        except (EOFError, ValueError) as error:
            if number == 1:
                refuse_other_kinds(path)
            reason = "the file ends early" if isinstance(error, EOFError) else error
            raise ValueError(f"{path}, record {number}: {reason}. Create it again.") from None
        if content is None:
            return
        yield content


def refuse_other_kinds(path: str) -> None:
    """Raises ValueError if a file has no records, but text, or is of another known kind.

    The message says what it is, and how to get records.
    """
    start = files.read_start(path, START_BYTES)
    create = f"Create them: albert create-pretraining-data --input_file={path} --output_file=…"
    if begins_frame(start):  # and the record is damaged
        return
    if start.startswith(compression.MAGICS):
        kind, advice = "compressed", f"Unpack them, or, if this is text: {create}"
    elif start.startswith(arrow.MAGICS):
        kind, advice = "rows of Parquet or Arrow", f"{create} --input_format=jsonl"
    elif other := file_kinds.without_text(start):
        kind, advice = other[0], "albert create-pretraining-data writes them"
    elif start.lstrip().startswith((b"{", b"[")) and file_kinds.is_text(start):
        kind, advice = "JSON", f"{create} --input_format=jsonl"
    elif file_kinds.is_text(start):
        kind, advice = "text", create
    else:
        return
    raise ValueError(f"{path}: this is {kind}, expected TFRecords. {advice}")


def read_first_record(path: str) -> bytes | None:
    """Returns the first record of a TFRecord file, of which little more is read; None if empty.

    Raises:
        ValueError: see `read_records`.
    """
    start = files.read_start(path, START_BYTES)
    size = HEADER_BYTES + int.from_bytes(start[:8], "little") + FOOTER_BYTES
    if len(start) == START_BYTES < size and start.startswith(frame_header(size - FRAME_BYTES)):
        start = files.read_start(path, size)
    with io.BytesIO(start) as stream:
        return next(_read_stream(path, stream), None)


def _read_content(stream: IO[bytes]) -> bytes | None:
    """Returns the content of the next record; None at the end.

    Raises:
        EOFError: the record extends past the end of the file.
        ValueError: the record is corrupt.
    """
    header = stream.read(HEADER_BYTES)
    if not header:
        return None
    if len(header) < HEADER_BYTES:
        raise EOFError
    size = int.from_bytes(header[:8], "little")
    if header != frame_header(size):
        raise ValueError(
            "the checksum of its length is wrong: the file is corrupt or not a TFRecord file"
        )
    data = stream.read(size + FOOTER_BYTES)
    if len(data) < size + FOOTER_BYTES:
        raise EOFError
    content = data[:size]
    if checksum(content) != data[size:]:
        raise ValueError("its content is damaged")
    return content


def count_records(path: str) -> int:
    """Returns the number of records in a TFRecord file; errors as in `read_records`."""
    return sum(1 for _ in read_records(path))
