"""Features of fine-tuning examples in TFRecord files that know what they were made of.

The records are those of the official programs: fixed length, `input_ids`, `input_mask`,
`segment_ids`, `label_ids`, `is_real_example`. Unlike these programs, which take any file of the
right name, a file is used only if the one beside it (`<file>.made_of.json`) says that it was made
of the same text, vocabulary and settings, and its checksum is the one written there.

Letters: N examples, C choices, S sequence length.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from albert_tf import files, record_encoding, records, rows
from albert_tf.token_sequences import TokenSequences

SUFFIX = ".made_of.json"
FORMAT = 1  # features made in another way carry another number, and are made anew
EXAMPLES_AT_ONCE = 512
_ARRAYS = ("input_ids", "input_mask", "segment_ids")


@dataclasses.dataclass(frozen=True)
class _Description:
    """What the file beside a cache says of it.

    Attributes:
        made_of: settings and checksums that decide what the features are.
        sha256: of the record file.
        num_examples, num_choices, max_seq_length: N, C, S.
        columns: name → dtype of what else an example has.
    """

    made_of: dict[str, Any]
    sha256: str
    num_examples: int
    num_choices: int
    max_seq_length: int
    columns: dict[str, str]


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


def _serialize(features: TokenSequences, max_seq_length: int) -> Iterator[bytes]:
    """TFRecord frames, many examples at a time."""
    for begin in range(0, len(features), EXAMPLES_AT_ONCE):
        numbers = np.arange(begin, min(begin + EXAMPLES_AT_ONCE, len(features)))
        batch = features.batch(numbers, max_seq_length)
        flat = {name: value.reshape(len(numbers), -1) for name, value in batch.items()}
        if features.num_choices:  # the batch has no more options than its questions
            missing = features.num_choices * max_seq_length - flat["input_ids"].shape[1]
            for name in _ARRAYS:
                flat[name] = np.pad(flat[name], [(0, 0), (0, missing)])
        flat["is_real_example"] = np.ones((len(numbers), 1), np.int32)
        yield b"".join(record_encoding.frame_records(record_encoding.encode_examples(flat)))


def save(path: str, features: TokenSequences, max_seq_length: int, made_of: dict[str, Any]) -> None:
    """Writes features and, beside them, what they were made of.

    Args:
        path: the record file.
        features: N examples.
        max_seq_length: S, the length of every record.
        made_of: settings and checksums that decide what the features are. Can be written as JSON.
    """
    digest = hashlib.sha256()
    with files.write_atomically(path, "wb") as stream:
        for block in _serialize(features, max_seq_length):
            digest.update(block)
            stream.write(block)
    description = _Description(
        made_of={"format": FORMAT, **made_of},
        sha256=digest.hexdigest(),
        num_examples=len(features),
        num_choices=features.num_choices,
        max_seq_length=max_seq_length,
        columns={name: value.dtype.name for name, value in features.columns.items()},
    )
    with files.write_atomically(path + SUFFIX) as stream:
        json.dump(dataclasses.asdict(description), stream, indent=1, sort_keys=True)
        stream.write("\n")


def _parse(path: str, described: _Description) -> Iterator[dict[str, NDArray[Any]]]:
    """The arrays of a record file, many examples at a time."""
    width = max(described.num_choices, 1) * described.max_seq_length
    spec = {name: tf.io.FixedLenFeature((width,), tf.int64) for name in _ARRAYS}
    for name, dtype in described.columns.items():
        is_float = dtype.startswith("float")
        spec[name] = tf.io.FixedLenFeature((), tf.float32 if is_float else tf.int64)
    block: list[bytes] = []
    for record in records.read_records(path):
        block.append(record)
        if len(block) == EXAMPLES_AT_ONCE:
            yield _parse_block(block, spec)
            block = []
    if block:
        yield _parse_block(block, spec)


def _parse_block(block: list[bytes], spec: dict[str, Any]) -> dict[str, NDArray[Any]]:
    return {name: value.numpy() for name, value in tf.io.parse_example(block, spec).items()}


def load(path: str, made_of: dict[str, Any]) -> TokenSequences | None:
    """Reads features that `save` wrote.

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
    return _pack(_parse(path, described), described)


def _pack(blocks: Iterable[dict[str, NDArray[Any]]], described: _Description) -> TokenSequences:
    parts: dict[str, list[NDArray[Any]]] = {"ids": [], "lengths": [], "firsts": []}
    columns: dict[str, list[NDArray[Any]]] = {name: [] for name in described.columns}
    for block in blocks:
        ids, mask, segments = (
            block[name].reshape(-1, described.max_seq_length) for name in _ARRAYS
        )
        parts["ids"].append(ids[mask > 0].astype(np.int32))
        parts["lengths"].append(mask.sum(axis=1).astype(np.int32))
        parts["firsts"].append((mask * (1 - segments)).sum(axis=1).astype(np.int32))
        for name, dtype in described.columns.items():
            columns[name].append(block[name].astype(dtype))
    ids, lengths, firsts = (np.concatenate(part) for part in parts.values())
    joined = {name: np.concatenate(column) for name, column in columns.items()}
    return TokenSequences(ids, lengths, firsts, joined, described.num_choices)


def load_or_make(
    path: str,
    made_of: dict[str, Any],
    max_seq_length: int,
    make: Callable[[], TokenSequences],
) -> TokenSequences:
    """Features from the cache, or made and put there.

    A file of this name that is not this program's is left as it is, and nothing is cached.

    Args:
        path: the record file; "" for no cache. Its folder is made if need be.
        made_of: as in `save`; `max_seq_length` is added.
        max_seq_length: S.
        make: makes the features.

    Raises:
        ValueError: the folder cannot be written to.
    """
    if not path:
        return make()
    made_of = {**made_of, "max_seq_length": max_seq_length}
    found = load(path, made_of)
    if found is not None:
        logging.info("%s: %d examples, as cached", path, len(found))
        return found
    features = make()
    files.make_directory(os.path.dirname(path), "--cached_dir")
    if _read_description(path) is None and rows.is_file(path):
        logging.warning("%s is not this program's file: left as it is, nothing is cached", path)
        return features
    save(path, features, max_seq_length, made_of)
    return features
