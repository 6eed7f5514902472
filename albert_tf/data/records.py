"""Files of pre-training records, and the metadata files beside them.

create_pretraining_data.py writes them; run_pretraining.py reads their metadata. A record is a
serialized `tf.train.Example` (see `tfrecord`).

The names of the features are Google's. Note `next_sentence_labels`: the name is BERT's, the content
is ALBERT's sentence order label, 0 for segments in order, 1 for swapped ones.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import gzip
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import IO, Any, cast

from albert_tf import files
from albert_tf.data.tfrecord import (
    FOOTER_BYTES,
    HEADER_BYTES,
    checksum,
    frame_header,
    has_good_length,
)

# Feature → (dtype on disk, width); the width is the name of a setting, or a number.
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

BLOCK_SIZE = 256  # records that `read_checked_blocks` gives at a time
MAX_RECORD_BYTES = 2**31 - 1  # of a tf.train.Example, as of any protobuf message
COMPRESSION_LEVEL = 6
_PIECE_BYTES = 1 << 20  # that are read at once: a wrong length must not claim memory
METADATA_SUFFIX = ".records.json"
_SHARDED = re.compile(r"(?P<stem>.+)@(?P<count>\d+)")


@dataclasses.dataclass(frozen=True)
class RecordFileInfo:
    """What a metadata file says of one record file.

    Attributes:
        instances: number of records.
        settings: settings of the data program: max_seq_length, max_predictions_per_seq, …
        vocabulary: the vocabulary's `checksum` (SHA-256 of its file), `size` and `file`.
        metadata_file: where this was read.
    """

    instances: int
    settings: dict[str, Any]
    vocabulary: dict[str, Any]
    metadata_file: str


@dataclasses.dataclass(frozen=True)
class Outputs:
    """The files to write.

    Attributes:
        paths: their names.
        stems: what was given for them, without the number of shards. The first begins the name of
            the metadata file.
        compression: "" or "gzip".
    """

    paths: tuple[str, ...]
    stems: tuple[str, ...]
    compression: str = ""

    @property
    def stem(self) -> str:
        """Beginning of the names of the metadata file and the work directory."""
        return self.stems[0]

    @property
    def metadata_file(self) -> str:
        """Name of the file that describes them."""
        return self.stem + METADATA_SUFFIX

    @classmethod
    def parse(cls, pattern: str, compression: str = "") -> Outputs:
        """Reads an `--output_file`: a comma list of names, or `name@64` for 64 shards.

        Raises:
            ValueError: no name, a name twice, or no shards.
        """
        names = [name.strip() for name in pattern.split(",") if name.strip()]
        if not names:
            raise ValueError("--output_file: at least one file name was expected, none came")
        paths: list[str] = []
        stems: list[str] = []
        for name in names:
            sharded = _SHARDED.fullmatch(name)
            stems.append(sharded["stem"] if sharded else name)
            if not sharded:
                paths.append(name)
                continue
            count = int(sharded["count"])
            if count < 1:
                raise ValueError(f"--output_file={name}: expected one shard or more")
            paths += [f"{stems[-1]}-{shard:05d}-of-{count:05d}" for shard in range(count)]
        if len(set(paths)) < len(paths):
            raise ValueError(f"--output_file={pattern}: names the same file twice")
        return cls(tuple(paths), tuple(stems), compression)


@contextlib.contextmanager
def open_output(path: str, compression: str) -> Iterator[IO[bytes]]:
    """Opens a record file for writing; it gets its name once all is written.

    Args:
        path: the file.
        compression: "" or "gzip".
    """
    with files.write_atomically(path, "wb") as stream:
        if not compression:
            yield stream
            return
        # No name and no time in the header: the same records give the same bytes.
        with gzip.GzipFile("", "wb", COMPRESSION_LEVEL, stream, mtime=0) as packed:
            yield cast("IO[bytes]", packed)


def is_gzip(path: str) -> bool:
    """Whether a record file is compressed with gzip."""
    with files.open_binary(path) as stream:
        header = stream.read(HEADER_BYTES)
    # A first record of 560 kB has a length that looks like gzip's first bytes.
    return header.startswith(files.GZIP_MAGIC) and not has_good_length(header)


def read_records(path: str, skip: Collection[int] = ()) -> Iterator[bytes]:
    """The contents of a TFRecord file, compressed with gzip or not, in order.

    Args:
        path: the file.
        skip: numbers, from 0, of records to leave out, damaged or not.

    Raises:
        ValueError: truncated or corrupt; names the file and the record, counted from 1.
    """
    for number, content in enumerate(_read_contents(path)):
        if number in skip:
            continue
        if content is None:
            raise ValueError(f"{path}, record {number + 1}: its content is damaged")
        yield content


def _read_contents(path: str) -> Iterator[bytes | None]:
    """The contents of a TFRecord file; None for those that are not what their checksum says."""
    number = 0
    is_compressed = is_gzip(path)
    left = math.inf if is_compressed else files.file_size(path)  # bytes, from the next record on
    with files.open_binary(path) as raw:
        # `read1` gives what can be decompressed, even if what follows cannot.
        read = gzip.GzipFile(fileobj=raw).read1 if is_compressed else raw.read
        data, at = b"", 0  # a part of the file, and where the next record begins in it
        try:
            while True:
                if len(data) < at + HEADER_BYTES:
                    data, at = _extend(data[at:], HEADER_BYTES, read), 0
                    if not data:
                        return
                number += 1
                begin = at + HEADER_BYTES
                size = _content_size(data[at:begin], left)
                end, at = begin + size, begin + size + FOOTER_BYTES
                if len(data) < at:
                    data = _extend(data[begin:], size + FOOTER_BYTES, read)
                    begin, end, at = 0, size, size + FOOTER_BYTES
                    if len(data) < at:
                        raise EOFError
                left -= HEADER_BYTES + size + FOOTER_BYTES
                content = data[begin:end]
                yield content if checksum(content) == data[end:at] else None
        except (EOFError, ValueError, gzip.BadGzipFile, zlib.error) as error:
            reason = "the file ends early" if isinstance(error, EOFError) else str(error)
            raise ValueError(
                f"{path}, record {max(number, 1)}: {reason}. Create it again."
            ) from None


def _content_size(header: bytes, left: float) -> int:
    """Returns the number of bytes of a record's content.

    Args:
        header: the first HEADER_BYTES of the record.
        left: bytes of the file from the header on.

    Raises:
        EOFError: there are fewer.
        ValueError: the header is damaged.
    """
    if len(header) < HEADER_BYTES:
        raise EOFError
    size = int.from_bytes(header[:8], "little")
    if header != frame_header(size):
        raise ValueError(
            "the checksum of its length is wrong: the file is corrupt, or it is no TFRecord file"
        )
    if size > MAX_RECORD_BYTES:
        raise ValueError(f"its length is {size} bytes, a record has {MAX_RECORD_BYTES} at most")
    if HEADER_BYTES + size + FOOTER_BYTES > left:
        raise EOFError
    return size


def _extend(data: bytes, count: int, read: Callable[[int], bytes]) -> bytes:
    """Returns `data` with more behind it: `count` bytes or more, fewer at the end of the file."""
    pieces, length = [data], len(data)
    while length < count and (piece := read(_PIECE_BYTES)):
        pieces.append(piece)
        length += len(piece)
    return b"".join(pieces)


def read_checked_blocks(path: str) -> Iterator[list[bytes | None]]:
    """The contents of a TFRecord file in lists of up to BLOCK_SIZE; None for damaged ones.

    A record is damaged if its content is not what its checksum says.

    Raises:
        ValueError: as `count_records`, after all records before that one.
    """
    block: list[bytes | None] = []
    try:
        for content in _read_contents(path):
            if len(block) == BLOCK_SIZE:
                yield block
                block = []
            block.append(content)
    except ValueError:
        if block:
            yield block
        raise
    if block:
        yield block


def count_records(path: str) -> int:
    """The number of records in a TFRecord file, compressed with gzip or not, damaged ones included.

    Raises:
        ValueError: truncated, or a length is wrong; names the file and the record, counted from 1.
    """
    return sum(1 for _ in _read_contents(path))


def write_metadata(path: str, metadata: Mapping[str, Any]) -> None:
    """Writes a metadata file; `metadata["files"]` lists name, instances and bytes of each file."""
    with files.write_atomically(path) as stream:
        json.dump(metadata, stream, indent=1, ensure_ascii=False)
        stream.write("\n")


def read_metadata(record_files: Sequence[str]) -> dict[str, RecordFileInfo]:
    """Reads what the metadata files in the folders of `record_files` say of them.

    Files that no metadata names (made by another program), or that have another size than it says
    (written again since), are left out.

    Raises:
        ValueError: a metadata file is not what the data program writes.
    """
    result: dict[str, RecordFileInfo] = {}
    by_folder: dict[str, dict[str, str]] = {}
    for path in record_files:
        folder, name = os.path.split(path)
        by_folder.setdefault(folder, {})[name] = path
    for folder, wanted in by_folder.items():
        for metadata_file in _find_metadata(folder):
            metadata = load_metadata(metadata_file)
            for entry in metadata["files"]:
                path = wanted.get(entry["name"], "")
                if path and files.file_size(path) == entry["bytes"]:
                    result[path] = RecordFileInfo(
                        instances=entry["instances"],
                        settings=metadata["settings"],
                        vocabulary=metadata["vocabulary"],
                        metadata_file=metadata_file,
                    )
    return result


def _find_metadata(folder: str) -> list[str]:
    pattern = os.path.join(glob.escape(folder), f"*{METADATA_SUFFIX}")
    try:
        return files.expand_patterns([pattern], "metadata")
    except ValueError:  # there is none
        return []


def load_metadata(path: str) -> dict[str, Any]:
    """Reads a metadata file, as `write_metadata` wrote it.

    Raises:
        ValueError: it is something else.
    """
    try:
        metadata = files.read_json(path)
        for entry in metadata["files"]:
            if not isinstance(entry["name"], str) or entry["instances"] + entry["bytes"] < 0:
                raise ValueError("negative counts")
        if not all(isinstance(metadata[key], dict) for key in ("settings", "vocabulary")):
            raise TypeError("settings and vocabulary are no objects")
        return metadata
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: not a metadata file of create_pretraining_data.py ({error!r}). Remove or "
            "rename it, or create the records again."
        ) from None
