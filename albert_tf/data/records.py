"""Reads and writes pre-training record files and the metadata files beside them.

create_pretraining_data.py writes both; run_pretraining.py reads the metadata. A record is a
serialized `tf.train.Example` (see `tfrecord`).

Feature names are Google's. Note that `next_sentence_labels` is BERT's name, but holds the label of
any sentence objective (`sentence_objectives`), by default ALBERT's: 0 if the segments are in order,
1 if they are swapped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import gzip
import hashlib
import itertools
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

from albert_tf import files
from albert_tf.data.tfrecord import FOOTER_BYTES, HEADER_BYTES, checksum, has_good_length

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

COMPRESSION_LEVEL = 6
_PIECE_BYTES = 1 << 20
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
        checksum: SHA-256 of all metadata, in hexadecimal: text and settings determine the records.
    """

    instances: int
    settings: dict[str, Any]
    vocabulary: dict[str, Any]
    mask_id: int
    metadata_file: str
    checksum: str


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
        """Paths of the record files and of the metadata file."""
        return [*self.paths, self.metadata_file]

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

    Args:
        path: the file.
        compression: "" or "gzip".

    Yields:
        A function that writes the frames of some records.
    """
    with files.write_atomically(path, "wb") as stream:
        if compression:
            # Without name and time in the gzip header, equal records result in equal files.
            with gzip.GzipFile("", "wb", COMPRESSION_LEVEL, stream, mtime=0) as packed:
                yield packed.writelines
        else:
            yield stream.writelines


@contextlib.contextmanager
def open_records(path: str) -> Iterator[tuple[Iterator[bytes], bool]]:
    """Opens a TFRecord file for reading.

    Args:
        path: the file, gzip-compressed or not.

    Yields:
        Its records, and whether it is gzip-compressed. Reading raises a ValueError that names the
        file and the number of the record, starting at 1, if the file is truncated or corrupt.
    """
    with files.open_binary(path) as stream:
        header = stream.read(HEADER_BYTES)
        stream.seek(0)
        # The length of a first record of 560 kB looks like gzip's magic bytes.
        is_gzip = header.startswith(files.GZIP_MAGIC) and not has_good_length(header)
        contents = gzip.GzipFile(fileobj=stream) if is_gzip else stream
        yield _read_contents(contents, path), is_gzip


def _read_contents(stream: IO[bytes] | gzip.GzipFile, path: str) -> Iterator[bytes]:
    for number in itertools.count(1):
        try:
            content = _read_content(stream)
        except (EOFError, ValueError, gzip.BadGzipFile, zlib.error) as error:
            reason = "the file ends early" if isinstance(error, EOFError) else error
            raise ValueError(f"{path}, record {number}: {reason}. Create it again.") from None
        if content is None:
            return
        yield content


def _read_content(stream: IO[bytes] | gzip.GzipFile) -> bytes | None:
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
    if not has_good_length(header):
        raise ValueError(
            "the checksum of its length is wrong: the file is corrupt or not a TFRecord file"
        )
    size = int.from_bytes(header[:8], "little")
    data = _read_exactly(stream, size + FOOTER_BYTES)
    content = data[:size]
    if checksum(content) != data[size:]:
        raise ValueError("its content is damaged")
    return content


def _read_exactly(stream: IO[bytes] | gzip.GzipFile, count: int) -> bytes:
    """Returns the next `count` bytes, read in pieces: a wrong length takes no memory.

    Raises:
        EOFError: there are fewer.
    """
    pieces = []
    while count:
        piece = stream.read(min(count, _PIECE_BYTES))
        if not piece:
            raise EOFError
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def read_records(path: str) -> Iterator[bytes]:
    """Yields the records of a TFRecord file, gzip-compressed or not.

    Raises:
        ValueError: see `open_records`.
    """
    with open_records(path) as (contents, _):
        yield from contents


def count_records(path: str) -> int:
    """Returns the number of records in a TFRecord file; errors as in `read_records`."""
    return sum(1 for _ in read_records(path))


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
            described = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()
            for entry in metadata["files"]:
                path = wanted.get(entry["name"], "")
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


def exclude_metadata(paths: Sequence[str]) -> list[str]:
    """Returns the paths without metadata files, which patterns such as `data/*` match too."""
    return [path for path in paths if not path.endswith(METADATA_SUFFIX)]


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
