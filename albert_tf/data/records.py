"""Reads and writes pre-training record files and the metadata files beside them.

create_pretraining_data.py writes both; run_pretraining.py reads the metadata. A record is a
serialized `tf.train.Example`.

Feature names are Google's. Note that `next_sentence_labels` is BERT's name, but holds the label of
any sentence objective (`model/objectives.py`), by default ALBERT's: 0 if the segments are in order,
1 if they are swapped.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import hashlib
import itertools
import json
import os
import re
import struct
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from albert_tf import files

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
METADATA_SUFFIX = ".records.json"
# Fields of metadata, of its vocabulary, and of each of its files.
_METADATA = {"files": list, "settings": dict, "vocabulary": dict, "mask_id": int}
_VOCABULARY = {"file": str, "size": int, "checksum": str}
_FILE = {"name": str, "instances": int, "bytes": int}
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
        checksum: SHA-256 of all metadata, in hexadecimal: text and settings determine the records.
    """

    instances: int
    settings: dict[str, Any]
    vocabulary: dict[str, Any]
    mask_id: int
    metadata_file: str
    checksum: str


# Path → metadata; None for files that have none.
FoundRecords = dict[str, RecordFileInfo | None]


@dataclasses.dataclass(frozen=True)
class Outputs:
    """The record files to write.

    Attributes:
        paths: paths of the files.
        stem: path prefix of the metadata file and the work directory, which is the first name in
            `--output_file` without the number of shards.
    """

    paths: tuple[str, ...]
    stem: str

    @property
    def metadata_file(self) -> str:
        """Path of the metadata file."""
        return self.stem + METADATA_SUFFIX

    @property
    def all_files(self) -> list[str]:
        """Paths of the record files and of the metadata file."""
        return [*self.paths, self.metadata_file]

    @classmethod
    def parse(cls, pattern: str) -> Outputs:
        """Parses `--output_file`: comma-separated names, where `name@64` stands for 64 shards.

        Raises:
            ValueError: there is no name, a name occurs twice, or the number of shards is 0.
        """
        names = [name.strip() for name in pattern.split(",") if name.strip()]
        if not names:
            raise ValueError("--output_file: expected at least one file name, got none")
        paths: list[str] = []
        for name in names:
            sharded = _SHARDED.fullmatch(name)
            if not sharded:
                paths.append(name)
                continue
            count = int(sharded["count"])
            if count < 1:
                raise ValueError(f"--output_file={name}: expected 1 or more after the @")
            paths += [f"{sharded['stem']}-{shard:05d}-of-{count:05d}" for shard in range(count)]
        if len(set(paths)) < len(paths):
            raise ValueError(f"--output_file={pattern}: the same file is named twice")
        sharded = _SHARDED.fullmatch(names[0])
        return cls(tuple(paths), sharded["stem"] if sharded else names[0])


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


def describe_file(path: str, instances: int) -> dict[str, Any]:
    """Returns the entry of a record file in the metadata."""
    return {"name": os.path.basename(path), "instances": instances, "bytes": files.file_size(path)}


def read_records(path: str) -> Generator[bytes, None, None]:
    """Yields the records of a TFRecord file.

    Raises:
        ValueError: the file is truncated or corrupt. The message names it and the number of the
            record, starting at 1.
    """
    with files.open_binary(path) as stream:
        for number in itertools.count(1):
            try:
                content = _read_content(stream)
            except (EOFError, ValueError) as error:
                reason = "the file ends early" if isinstance(error, EOFError) else error
                raise ValueError(f"{path}, record {number}: {reason}. Create it again.") from None
            if content is None:
                return
            yield content


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


def write_metadata(path: str, metadata: Mapping[str, Any]) -> None:
    """Writes a metadata file; `metadata["files"]` has `name`, `instances`, `bytes` of each file."""
    files.write_file(path, json.dumps(metadata, indent=1, ensure_ascii=False) + "\n")


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
    wanted = {os.path.split(path): path for path in record_files}
    for folder in dict.fromkeys(folder for folder, _ in wanted):
        for metadata_file in _find_metadata(folder):
            metadata = load_metadata(metadata_file)
            described = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()
            for entry in metadata["files"]:
                path = wanted.get((folder, entry["name"]), "")
                if path and files.file_size(path) == entry["bytes"]:
                    result[path] = RecordFileInfo(
                        instances=entry["instances"],
                        settings=metadata["settings"],
                        vocabulary=metadata["vocabulary"],
                        mask_id=metadata["mask_id"],
                        metadata_file=metadata_file,
                        checksum=described,
                    )
    return result


def find_records(patterns: str, what: str) -> FoundRecords:
    """Returns the record files that match some patterns, with their metadata.

    Args:
        patterns: paths and glob patterns, separated by commas. Those that match metadata files too,
            such as `data/*`, are allowed.
        what: the flag with the patterns, for the message.

    Raises:
        ValueError: no record file matches, or see `read_metadata`.
    """
    matches = files.expand_patterns(patterns, what)
    paths = [path for path in matches if not path.endswith(METADATA_SUFFIX)]
    if not paths:
        raise ValueError(f"{what}={patterns}: matches no record file")
    known = read_metadata(paths)
    return {path: known.get(path) for path in paths}


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
        metadata = files.read_json(path, _METADATA)
        files.check_fields(metadata["vocabulary"], "vocabulary", _VOCABULARY)
        for entry in metadata["files"]:
            files.check_fields(entry, "files", _FILE)
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"{path}: not a metadata file of create_pretraining_data.py. Remove or rename it, or "
            f"create the records again ({error})"
        ) from None
    return metadata


# Serializes and parses `tf.train.Example`s and TFRecord frames without TensorFlow.
#
# The bytes are identical to those of `SerializeToString(deterministic=True)` and
# `tf.io.TFRecordWriter` (tests compare them), but `encode_examples` serializes many records at
# once.
#
# A TFRecord file is a sequence of frames, little-endian:
#
#     uint64 length | uint32 checksum of the length | content | uint32 checksum of the content
#
# Shapes: N records, M values of a feature.

_MAP_ENTRY, _KEY, _VALUE = 0x0A, 0x0A, 0x12  # protobuf tags of Features.feature and its entries
_FLOAT_LIST, _INT64_LIST, _PACKED = 0x12, 0x1A, 0x0A

HEADER_BYTES, FOOTER_BYTES = 12, 4  # size of a frame before and after the content
MAX_BITS = 56  # largest integers: a varint of eight bytes has seven bits per byte
_TABLE_BITS = 16  # smaller integers have their varints looked up in a table


@functools.lru_cache(maxsize=100_000)
def _varint(value: int) -> bytes:
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


@functools.lru_cache(maxsize=100_000)
def _entry_header(name: str, list_tag: int, size: int) -> bytes:
    """Returns the bytes that precede the packed values of a feature, which have `size` bytes."""
    packed = bytes([_PACKED]) + _varint(size)
    value_list = bytes([list_tag]) + _varint(len(packed) + size) + packed
    key = name.encode("utf-8")
    entry = bytes([_KEY]) + _varint(len(key)) + key
    entry += bytes([_VALUE]) + _varint(len(value_list) + size) + value_list
    return bytes([_MAP_ENTRY]) + _varint(len(entry) + size) + entry


def _packed_floats(values: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Encodes rows of floating-point numbers, float [N, M], as bytes: uint8 [N, 4 * M]."""
    return np.ascontiguousarray(values, "<f4").view(np.uint8)


def _packed_varints(values: NDArray[np.integer]) -> NDArray[np.uint8] | list[bytes]:
    """Encodes rows of non-negative integers, [N, M], as packed varints.

    Returns:
        uint8 [N, M] if each varint is a byte, or else N byte strings.

    Raises:
        ValueError: an integer is out of range.
    """
    largest = int(values.max(initial=0))
    if values.size and (int(values.min()) < 0 or largest >= 1 << MAX_BITS):
        raise ValueError(
            f"expected integers in [0, 2**{MAX_BITS}), got {values.min()} to {largest}"
        )
    if largest < 0x80:
        return values.astype(np.uint8)
    num_values = values.shape[1]
    words = _spread_table().take(values) if largest >> _TABLE_BITS == 0 else _spread(values)
    data, width = words.tobytes(), words.itemsize * num_values
    # The unused bytes of a word are 0 and dropped. Otherwise, only the varint of 0 has such a byte;
    # these are appended again, because zeros are padding at the end of a row, with few exceptions.
    nonzero = values != 0
    counts, first_zeros = nonzero.sum(axis=1), nonzero.argmin(axis=1)
    rows = [
        data[row * width : (row + 1) * width].translate(None, b"\0") + bytes(num_values - count)
        for row, count in enumerate(counts.tolist())
    ]
    for row in np.flatnonzero((counts < num_values) & (counts != first_zeros)).tolist():
        rows[row] = b"".join(map(_varint, values[row].tolist()))
    return rows


def _spread(values: NDArray[np.integer]) -> NDArray[np.unsignedinteger]:
    """Returns the varint of each integer in a word of 4 or 8 bytes, followed by bytes of 0.

    Each byte holds seven bits of the integer, lowest first. The high bit of a byte tells that
    another one follows.
    """
    largest = int(values.max(initial=0))
    word: NDArray[Any] = values.astype("<u4" if largest < 1 << 28 else "<u8")
    spread: NDArray[Any] = word & word.dtype.type(0x7F)
    for byte in range(1, word.itemsize):
        if largest < 1 << (7 * byte):
            break
        more = (word >= 1 << (7 * byte)).astype(word.dtype)
        spread |= (word & word.dtype.type(0x7F << (7 * byte))) << byte | more << (8 * byte - 1)
    return spread


@functools.cache
def _spread_table() -> NDArray[np.unsignedinteger]:
    """Returns `_spread` of all integers below 2**_TABLE_BITS: uint32."""
    return _spread(np.arange(1 << _TABLE_BITS))


def encode_examples(features: Mapping[str, NDArray[Any]]) -> list[bytes]:
    """Serializes N records, like `tf.train.Example.SerializeToString(deterministic=True)`.

    Args:
        features: name → array [N, M], M >= 1. Integers, which must be in [0, 2**56), are written as
            an int64 list, floating-point numbers as a float list.

    Returns:
        N serialized records.

    Raises:
        ValueError: an integer is out of range.
    """
    columns: list[Iterable[bytes]] = []
    # Adjacent features whose bytes have the same number in all records become one column.
    adjacent: list[NDArray[np.uint8]] = []
    for name in sorted(features):  # deterministic serialization sorts the keys
        values = features[name]
        is_float = np.issubdtype(values.dtype, np.floating)
        packed = _packed_floats(values) if is_float else _packed_varints(values)
        header_of = functools.partial(_entry_header, name, _FLOAT_LIST if is_float else _INT64_LIST)
        if isinstance(packed, list):
            columns += [*_joined(adjacent), map(header_of, map(len, packed)), packed]
            adjacent = []
        else:
            header = np.frombuffer(header_of(packed.shape[1]), np.uint8)
            adjacent += [np.tile(header, (len(packed), 1)), packed]
    columns += _joined(adjacent)
    bodies = [b"".join(entries) for entries in zip(*columns, strict=True)]
    return [b"\x0a" + _varint(len(body)) + body for body in bodies]


def _joined(arrays: list[NDArray[np.uint8]]) -> list[list[bytes]]:
    """Returns a column with the bytes of the rows of all arrays, uint8 [N, size]; or none."""
    if not arrays:
        return []
    rows = np.hstack(arrays)
    data, width = rows.tobytes(), rows.shape[1]
    return [[data[at : at + width] for at in range(0, len(data), width)]]


def _varint_at(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _fields(data: bytes) -> Iterator[bytes]:
    """Yields the contents of a message's fields, which must all be length-delimited."""
    at = 0
    while at < len(data):
        size, at = _varint_at(data, at + 1)
        yield data[at : at + size]
        at += size


def _unpack_varints(data: bytes) -> NDArray[np.int64]:
    raw = np.frombuffer(data, np.uint8).astype(np.int64)
    last = raw < 0x80
    begins = np.flatnonzero(np.concatenate(([True], last[:-1]))) if len(raw) else raw
    place = np.arange(len(raw)) - begins.repeat(np.diff(np.append(begins, len(raw))))
    return np.add.reduceat((raw & 0x7F) << (7 * place), begins) if len(raw) else raw


def decode_example(data: bytes) -> dict[str, NDArray[Any]]:
    """Parses a serialized `tf.train.Example` of int64 and float lists; returns name → array [M].

    Raises:
        ValueError: the data is not such a message.
    """
    result: dict[str, NDArray[Any]] = {}
    try:
        for features in _fields(data):
            for entry in _fields(features):
                key, value = _fields(entry)
                packed = b"".join(_fields(b"".join(_fields(value))))
                is_float = value[0] == _FLOAT_LIST
                values = np.frombuffer(packed, "<f4") if is_float else _unpack_varints(packed)
                result[key.decode("utf-8")] = values
    except (IndexError, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"not a tf.train.Example of packed numbers: {error}") from None
    return result


def checksum(data: bytes) -> bytes:
    """Returns the masked CRC-32C of TFRecord files (rotated, plus a constant): 4 bytes."""
    crc: int = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@functools.lru_cache(maxsize=100_000)
def frame_header(size: int) -> bytes:
    """Returns the header of a frame whose content has `size` bytes."""
    length = struct.pack("<Q", size)
    return length + checksum(length)


def frame_records(contents: Sequence[bytes]) -> list[bytes]:
    """Wraps serialized records in TFRecord frames; their concatenation is a TFRecord file."""
    return [frame_header(len(data)) + data + checksum(data) for data in contents]
