"""Features of fine-tuning examples in TFRecord files that know what they were made of.

The records are those of the official programs: fixed length, `input_ids`, `input_mask`,
`segment_ids` and what else the task has. Unlike these programs, which take any file of the right
name, a file is used only if the one beside it (`<file>.made_of.json`) says that it was made of the
same text, vocabulary and settings, and its checksum is the one written there.

Letters: N examples, B examples at a time, M values of a feature, S sequence length.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.data import records, tfrecord
from albert_tf.finetuning import tables

SUFFIX = ".made_of.json"
FORMAT = 1  # features made in another way carry another number, and are made anew
EXAMPLES_AT_ONCE = 512

Block = dict[str, NDArray[Any]]  # name → [B, M]


class Recordable(Protocol):
    """Features that can be written to records and read back."""

    def __len__(self) -> int:
        """N."""

    @property
    def layout(self) -> dict[str, int]:
        """What `from_records` must know besides the records."""

    def to_records(self, rows: NDArray[np.integer], seq_length: int) -> Block:
        """What the records of these examples hold, padded to `seq_length`."""

    @classmethod
    def from_records(cls, blocks: Iterable[Block], layout: dict[str, int]) -> Any:
        """All features, from all that `to_records` gave."""


Kind = TypeVar("Kind", bound=Recordable)


@dataclasses.dataclass(frozen=True)
class _Description:
    """What the file beside a cache says of it.

    Attributes:
        made_of: settings and checksums that decide what the features are.
        sha256: of the record file.
        num_examples: N.
        layout: of the features.
        features: name → M and dtype.
    """

    made_of: dict[str, Any]
    sha256: str
    num_examples: int
    layout: dict[str, int]
    features: dict[str, tuple[int, str]]


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with files.open_binary(path) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _read_description(path: str) -> _Description | None:
    try:
        values = json.loads(files.read_text(path + SUFFIX))
        return _Description(**values)
    except (FileNotFoundError, ValueError, TypeError):
        return None


def save(path: str, features: Recordable, max_seq_length: int, made_of: dict[str, Any]) -> None:
    """Writes features and, beside them, what they were made of.

    Args:
        path: the record file.
        features: N examples, at least one.
        max_seq_length: S, the length of every record.
        made_of: settings and checksums that decide what the features are. Can be written as JSON.
    """
    digest = hashlib.sha256()
    forms: dict[str, tuple[int, str]] = {}
    with files.write_atomically(path, "wb") as stream:
        for begin in range(0, len(features), EXAMPLES_AT_ONCE):
            numbers = np.arange(begin, min(begin + EXAMPLES_AT_ONCE, len(features)))
            block = features.to_records(numbers, max_seq_length)
            forms = {name: (value.shape[1], value.dtype.name) for name, value in block.items()}
            frames = tfrecord.frame_records(tfrecord.encode_examples(block))
            content = b"".join(frames)
            digest.update(content)
            stream.write(content)
    description = _Description(
        made_of={"format": FORMAT, **made_of},
        sha256=digest.hexdigest(),
        num_examples=len(features),
        layout=features.layout,
        features=forms,
    )
    with files.write_atomically(path + SUFFIX) as stream:
        json.dump(dataclasses.asdict(description), stream, indent=1, sort_keys=True)
        stream.write("\n")


def _parse(path: str, described: _Description) -> Iterator[Block]:
    """The arrays of a record file, many examples at a time."""
    spec = {
        name: tf.io.FixedLenFeature((width,), tf.float32 if dtype.startswith("float") else tf.int64)
        for name, (width, dtype) in described.features.items()
    }
    found = records.read_records(path)
    while block := list(itertools.islice(found, EXAMPLES_AT_ONCE)):
        yield {
            name: value.numpy().astype(described.features[name][1])
            for name, value in tf.io.parse_example(block, spec).items()
        }


def load(path: str, made_of: dict[str, Any], kind: type[Kind]) -> Kind | None:
    """Reads features that `save` wrote.

    Args:
        path: the record file.
        made_of: as in `save`.
        kind: their class.

    Returns:
        None where there is no file, or one that was made of something else or changed since.
    """
    described = _read_description(path)
    wanted = json.loads(json.dumps({"format": FORMAT, **made_of}))
    if described is None:
        return None
    if described.made_of != wanted:
        keys = sorted(set(wanted) | set(described.made_of))
        changed = [key for key in keys if wanted.get(key) != described.made_of.get(key)]
        logging.info("%s is made anew: %s changed", path, ", ".join(changed))
        return None
    try:
        if _sha256(path) != described.sha256:
            logging.warning("%s has changed since it was made, and is made anew", path)
            return None
    except FileNotFoundError:
        return None
    return kind.from_records(_parse(path, described), described.layout)


def load_or_make(
    path: str,
    made_of: dict[str, Any],
    max_seq_length: int,
    make: Callable[[], Kind],
    kind: type[Kind],
) -> Kind:
    """Features from the cache, or made and put there.

    A file of this name that is not this program's is left as it is, and nothing is cached.

    Args:
        path: the record file; "" for no cache. Its folder is made if need be.
        made_of: as in `save`; `max_seq_length` is added.
        max_seq_length: S.
        make: makes the features.
        kind: their class.

    Raises:
        ValueError: the folder cannot be written to.
    """
    if not path:
        return make()
    made_of = {**made_of, "max_seq_length": max_seq_length}
    found = load(path, made_of, kind)
    if found is not None:
        logging.info("%s: %d examples, as cached", path, len(found))
        return found
    files.make_directory(os.path.dirname(path), f"cache of features {path}")
    features = make()
    if _read_description(path) is None and tables.is_file(path):
        logging.warning("%s is not this program's file: left as it is, nothing is cached", path)
        return features
    save(path, features, max_seq_length, made_of)
    return features
