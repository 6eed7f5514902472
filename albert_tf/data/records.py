"""Reads and writes pre-training record files and the metadata files beside them.

create_pretraining_data.py writes both; run_pretraining.py reads the metadata. A record is a
serialized `tf.train.Example` (see `tfrecord`).

Feature names are Google's. Note that `next_sentence_labels` is BERT's name, but holds the label of
any sentence objective (`sentence_objectives`), by default ALBERT's: 0 if the segments are in order,
1 if they are swapped.
"""

from __future__ import annotations

import array
import contextlib
import dataclasses
import glob
import gzip
import hashlib
import itertools
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple, cast

from albert_tf import files
from albert_tf.data import record_checksums, record_index
from albert_tf.data.tfrecord import (
    FOOTER_BYTES,
    HEADER_BYTES,
    checksum,
    frame_header,
    has_good_length,
)

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

MAX_RECORD_BYTES = 2**31 - 1  # the size limit of protobuf messages
COMPRESSION_LEVEL = 6
_PIECE_BYTES = 1 << 20  # bytes per read, so that a corrupt length cannot exhaust memory
METADATA_SUFFIX = ".records.json"
_VOCABULARY = {"file": str, "size": int, "checksum": str}  # what metadata say of the vocabulary
MAX_SHARDS = 100_000  # in one folder; more would take an hour to create
_SHARDED = re.compile(r"(?P<stem>.+)@(?P<count>-?\d+)")


@dataclasses.dataclass(frozen=True)
class RecordFileInfo:
    """The metadata of one record file.

    Attributes:
        instances: number of records.
        settings: settings of the data program: max_seq_length, sentence_objective, …
        vocabulary: the vocabulary's `checksum` (SHA-256 of its file), `size` and `file`.
        mask_id: id of [MASK].
        metadata_file: path of the metadata file.
    """

    instances: int
    settings: dict[str, Any]
    vocabulary: dict[str, Any]
    mask_id: int
    metadata_file: str


@dataclasses.dataclass(frozen=True)
class Outputs:
    """The record files to write.

    Attributes:
        paths: paths of the files.
        stems: the names given in `--output_file`, without the number of shards. The metadata file
            is named after the first.
        compression: "" or "gzip".
    """

    paths: tuple[str, ...]
    stems: tuple[str, ...]
    compression: str = ""

    @property
    def stem(self) -> str:
        """Path prefix of the metadata file and the work directory."""
        return self.stems[0]

    @property
    def metadata_file(self) -> str:
        """Path of the metadata file."""
        return self.stem + METADATA_SUFFIX

    @property
    def all_files(self) -> list[str]:
        """Paths of the record files, of their indexes and checksums, and of the metadata file."""
        beside = (record_index.path_of, record_checksums.path_of)
        others = [of(path) for path in self.paths for of in beside]
        return [*self.paths, *others, self.metadata_file]

    @classmethod
    def parse(cls, pattern: str, compression: str = "") -> Outputs:
        """Parses `--output_file`: comma-separated names, where `name@64` stands for 64 shards.

        Raises:
            ValueError: there is no name, a name occurs twice, or the number of shards is not 1 to
                MAX_SHARDS.
        """
        names = [name.strip() for name in pattern.split(",") if name.strip()]
        if not names:
            raise ValueError("--output_file: expected at least one file name, got none")
        paths: list[str] = []
        stems: list[str] = []
        for name in names:
            sharded = _SHARDED.fullmatch(name)
            stems.append(sharded["stem"] if sharded else name)
            if not sharded:
                paths.append(name)
                continue
            count = int(sharded["count"])
            if not 1 <= count <= MAX_SHARDS:
                raise ValueError(f"--output_file={name}: expected 1 to {MAX_SHARDS} after the @")
            paths += [f"{stems[-1]}-{shard:05d}-of-{count:05d}" for shard in range(count)]
        if len(set(paths)) < len(paths):
            raise ValueError(f"--output_file={pattern}: the same file is named twice")
        return cls(tuple(paths), tuple(stems), compression)


@contextlib.contextmanager
def open_output(path: str, compression: str) -> Iterator[Callable[[Sequence[bytes]], None]]:
    """Opens a record file for writing; the file appears at `path` only when it is complete.

    The checksum of the file and, if it is not compressed, its index are written as well (see
    `record_checksums` and `record_index`).

    Args:
        path: the file.
        compression: "" or "gzip".

    Yields:
        A function that writes the frames of some records.
    """
    offsets = array.array("q", [0])
    with files.write_atomically(path, "wb") as stream:
        hashed = _HashedStream(stream)
        if compression:
            # Without name and time in the gzip header, equal records result in equal files.
            with gzip.GzipFile(
                "", "wb", COMPRESSION_LEVEL, cast(IO[bytes], hashed), mtime=0
            ) as packed:
                yield packed.writelines
        else:

            def write(frames: Sequence[bytes]) -> None:
                hashed.write(b"".join(frames))
                for frame in frames:
                    offsets.append(offsets[-1] + len(frame))

            yield write
            record_index.write(path, offsets)
    record_checksums.write(path, hashed.content.hexdigest())


class _HashedStream:
    """A stream for writing that computes the SHA-256 of what is written, in `content`."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.content = hashlib.sha256()
        self.flush = stream.flush

    def write(self, data: bytes) -> int:
        self.content.update(data)
        return self._stream.write(data)


def is_gzip(path: str) -> bool:
    """Returns whether a record file is gzip-compressed."""
    with files.open_unbuffered(path) as stream:
        header = stream.read(HEADER_BYTES) or b""
    # The length of a first record of 560 kB looks like gzip's magic bytes.
    return header.startswith(files.GZIP_MAGIC) and not has_good_length(header)


class Place(NamedTuple):
    """Where a record is in an uncompressed file.

    Attributes:
        number: its index, starting at 0.
        offset: the position of its header, in bytes.
        size: the size of its content, in bytes.
    """

    number: int
    offset: int
    size: int

    @property
    def end(self) -> int:
        """The position of the next record, in bytes."""
        return self.offset + HEADER_BYTES + self.size + FOOTER_BYTES


def read_records(path: str, start: int = 0) -> Generator[bytes]:
    """Yields the records of a TFRecord file, gzip-compressed or not.

    Args:
        path: the file.
        start: number of records to leave out at the beginning. They are not read, if
            `has_places(path)`.

    Raises:
        ValueError: the file is truncated or corrupt; the message names the file and the record
            number, starting at 1.
    """
    first = 0, 0
    if start and has_places(path):
        with contextlib.closing(find_places(path, start)) as places:
            place = next(places, None)
        if place is None:
            return
        first = (place.number, place.offset)
        start = 0
    yield from itertools.islice(_read_contents(path, *first), start, None)


def write_index(path: str) -> None:
    """Writes the index of a file that was created without one, after reading all of its records.

    Raises:
        ValueError: the file is compressed, truncated or corrupt.
    """
    if is_gzip(path):
        raise ValueError(
            f"{path}: compressed with gzip, in which records cannot be found by an index. "
            "Decompress it first: `gzip -dc FILE > NEW_FILE`"
        )
    sizes = (HEADER_BYTES + len(record) + FOOTER_BYTES for record in read_records(path))
    record_index.write(path, list(itertools.accumulate(sizes, initial=0)))


def _damaged_content(path: str, number: int) -> ValueError:
    return ValueError(f"{path}, record {number + 1}: its content is damaged. Create it again.")


def has_places(path: str) -> bool:
    """Returns whether `find_places` can be used: for local files, and remote ones with an index.

    Compressed files have none: there, a record can only be found by decompressing those before it.
    Remote files without an index are read fastest from start to end: a request for a few bytes
    takes as long as one for megabytes.
    """
    if files.is_remote(path):
        return record_index.find(path) is not None
    return not is_gzip(path)


def find_places(path: str, start: int = 0) -> Generator[Place]:
    """Yields where records of an uncompressed file are: from its index, or else from their headers.

    Args:
        path: the file. Without an index it must be local.
        start: number of records to leave out at the beginning.

    Raises:
        ValueError: see `read_records`.
    """
    index = record_index.find(path)
    if index is None:
        yield from itertools.islice(_places_by_headers(path), start, None)
        return
    for number, (offset, end) in enumerate(itertools.pairwise(index.offsets(start)), start):
        yield Place(number, offset, end - offset - HEADER_BYTES - FOOTER_BYTES)


def _places_by_headers(path: str) -> Iterator[Place]:
    """Yields where the records of a local file are."""
    end = files.file_size(path)
    offset = number = 0
    with files.open_unbuffered(path) as stream:
        while offset < end:
            stream.seek(offset)
            try:
                size = _content_size(stream.read(HEADER_BYTES) or b"", end - offset)
            except (EOFError, ValueError) as error:
                raise _unreadable(path, number, error) from None
            place = Place(number, offset, size)
            yield place
            offset = place.end
            number += 1


def read_places(path: str, places: Sequence[Place]) -> list[bytes]:
    """Returns the contents of some records; consecutive records are read at once.

    Args:
        path: the file.
        places: where the records are, in the order of the file.

    Raises:
        ValueError: there is no such record, or its content does not match its checksum.
    """
    contents: list[bytes] = []
    runs = list(_adjacent(places))
    pieces = files.read_ranges(path, [(run[0].offset, run[-1].end) for run in runs])
    for run, data in zip(runs, pieces, strict=True):
        for place in run:
            begin = place.offset - run[0].offset
            at = begin + HEADER_BYTES
            end = begin + HEADER_BYTES + place.size
            content = data[at:end]
            if data[begin:at] != frame_header(place.size):
                raise ValueError(
                    f"{path}, record {place.number + 1}: not where its header or its index says "
                    f"({record_index.path_of(path)}). Create the file again"
                )
            if checksum(content) != data[end : end + FOOTER_BYTES]:
                raise _damaged_content(path, place.number)
            contents.append(content)
    return contents


def _adjacent(places: Sequence[Place]) -> Iterator[list[Place]]:
    """Yields the places in lists of neighbors, up to about `_PIECE_BYTES` each."""
    run: list[Place] = []
    for place in places:
        if run and (run[-1].end != place.offset or place.end - run[0].offset > _PIECE_BYTES):
            yield run
            run = []
        run.append(place)
    if run:
        yield run


def _unreadable(path: str, number: int, error: Exception) -> ValueError:
    """Returns the error about a record, given by its index, that cannot be found or read."""
    reason = "the file ends early" if isinstance(error, EOFError) else str(error)
    return ValueError(f"{path}, record {number + 1}: {reason}. Create it again.")


def _read_contents(path: str, number: int = 0, offset: int = 0) -> Iterator[bytes]:
    """Yields the content of each record.

    Args:
        path: the file.
        number: index of the first record to read; not 0 only in uncompressed files.
        offset: the position of its header.
    """
    is_compressed = is_gzip(path)
    # The number of bytes from the next record on.
    left = math.inf if is_compressed else files.file_size(path) - offset
    with files.open_binary(path) as raw:
        if offset:
            raw.seek(offset)
        # `read1` returns all data before the point where decompression fails.
        read = gzip.GzipFile(fileobj=raw).read1 if is_compressed else raw.read
        data = b""  # a buffer
        at = 0  # the offset in it of the next record
        try:
            while True:
                if len(data) < at + HEADER_BYTES:
                    data = _extend(data[at:], HEADER_BYTES, read)
                    at = 0
                    if not data:
                        return
                number += 1
                begin = at + HEADER_BYTES
                size = _content_size(data[at:begin], left)
                end = begin + size
                at = begin + size + FOOTER_BYTES
                if len(data) < at:
                    data = _extend(data[begin:], size + FOOTER_BYTES, read)
                    begin = 0
                    end = size
                    at = size + FOOTER_BYTES
                    if len(data) < at:
                        raise EOFError
                left -= HEADER_BYTES + size + FOOTER_BYTES
                content = data[begin:end]
                if checksum(content) != data[end:at]:
                    raise ValueError("its content is damaged")
                yield content
        except (EOFError, ValueError, gzip.BadGzipFile, zlib.error) as error:
            raise _unreadable(path, max(number, 1) - 1, error) from None


def _content_size(header: bytes, left: float) -> int:
    """Returns the size of a record's content in bytes.

    Args:
        header: the first HEADER_BYTES of the record.
        left: number of bytes in the file from the header on.

    Raises:
        EOFError: the record extends past the end of the file.
        ValueError: the header is corrupt.
    """
    if len(header) < HEADER_BYTES:
        raise EOFError
    size = int.from_bytes(header[:8], "little")
    if header != frame_header(size):
        raise ValueError(
            "the checksum of its length is wrong: the file is corrupt or not a TFRecord file"
        )
    if size > MAX_RECORD_BYTES:
        raise ValueError(f"its length is {size} bytes, but a record has at most {MAX_RECORD_BYTES}")
    if HEADER_BYTES + size + FOOTER_BYTES > left:
        raise EOFError
    return size


def _extend(data: bytes, count: int, read: Callable[[int], bytes]) -> bytes:
    """Returns `data` extended to at least `count` bytes, or less at the end of the file."""
    pieces = [data]
    length = len(data)
    while length < count and (piece := read(_PIECE_BYTES)):
        pieces.append(piece)
        length += len(piece)
    return b"".join(pieces)


def count_records(path: str) -> int:
    """Returns the number of records in a TFRecord file, gzip-compressed or not.

    Raises:
        ValueError: see `read_records`.
    """
    return sum(1 for _ in _read_contents(path))


def write_metadata(path: str, metadata: Mapping[str, Any]) -> None:
    """Writes a metadata file; `metadata["files"]` has `name`, `instances`, `bytes` of each file."""
    with files.write_atomically(path) as stream:
        json.dump(metadata, stream, indent=1, ensure_ascii=False)
        stream.write("\n")


def read_metadata(record_files: Sequence[str]) -> dict[str, RecordFileInfo]:
    """Returns the metadata of record files, found in the folders of these files.

    The result omits files that no metadata file lists (because another program created them), and
    files whose size differs from the metadata (because they were overwritten).

    Args:
        record_files: paths of record files.

    Returns:
        Path → metadata.

    Raises:
        ValueError: a metadata file was not written by the data program.
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
                        mask_id=metadata["mask_id"],
                        metadata_file=metadata_file,
                    )
    return result


def exclude_own_files(paths: Sequence[str]) -> list[str]:
    """Returns the paths without metadata and indexes, which patterns such as `data/*` match too."""
    return [
        path
        for path in paths
        if not path.endswith(METADATA_SUFFIX) and os.path.basename(path) != record_index.FOLDER
    ]


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _find_metadata(folder: str) -> list[str]:
    pattern = os.path.join(glob.escape(folder), f"*{METADATA_SUFFIX}")
    try:
        return files.expand_patterns([pattern], "metadata")
    except ValueError:  # no file matches
        return []


def load_metadata(path: str) -> dict[str, Any]:
    """Returns the content of a metadata file written by `write_metadata`.

    Raises:
        ValueError: the file is not a metadata file.
    """
    try:
        metadata = files.read_json(path)
        for entry in metadata["files"]:
            counts = [entry["instances"], entry["bytes"]]
            if not isinstance(entry["name"], str) or not all(map(_is_count, counts)):
                raise ValueError(f"instances and bytes are {counts}, expected numbers of 0 or more")
        if not all(isinstance(metadata[key], dict) for key in ("settings", "vocabulary")):
            raise TypeError("settings and vocabulary must be objects")
        for name, kind in _VOCABULARY.items():
            if not isinstance(metadata["vocabulary"][name], kind):
                raise TypeError(f"{name!r} of the vocabulary must be {kind.__name__}")
        mask_id, size = metadata["mask_id"], metadata["vocabulary"]["size"]
        if not (_is_count(mask_id) and mask_id < size):
            raise ValueError(f"mask_id is {mask_id!r}, expected a number below {size}")
        if not isinstance(metadata["settings"].get("sentence_objective", ""), str):
            raise TypeError("sentence_objective must be a name")
        return metadata
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: not a metadata file of create_pretraining_data.py ({error!r}). Remove or "
            "rename it, or create the records again."
        ) from None
