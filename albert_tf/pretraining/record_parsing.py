"""Parsing records, and saying why one of them cannot be parsed.

Letters: B batch.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

Features = dict[str, tf.io.FixedLenFeature]

_READ_AT_ONCE = 1024  # records


def open_records(path: tf.Tensor, is_gzip: tf.Tensor) -> tf.data.TFRecordDataset:
    """The records of one file, serialized, as TensorFlow reads them: up to the first damaged."""
    return tf.data.TFRecordDataset(path, compression_type=tf.where(is_gzip, "GZIP", ""))


def parse(serialized: tf.Tensor, features: Features) -> dict[str, tf.Tensor]:
    """Parses serialized `tf.train.Example`s, string [B], into tensors [B, …], int64 as int32."""
    batch = tf.io.parse_example(serialized, features)
    return {
        name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
        for name, value in batch.items()
    }


def parses(contents: list[bytes], features: Features | None) -> bool:
    """Whether all of some serialized records are Examples with these features."""
    try:
        if features and contents:
            tf.io.parse_example(contents, features)
    except tf.errors.InvalidArgumentError:
        return False
    return True


def count_if_sound(path: str, is_gzip: bool, features: Features | None) -> int | None:
    """The number of records in a file; None if one of them is damaged."""
    dataset = open_records(path, is_gzip).batch(_READ_AT_ONCE)
    if features:
        dataset = dataset.map(lambda batch: parse(batch, features), tf.data.AUTOTUNE)
    try:
        return sum(len(tf.nest.flatten(batch)[0]) for batch in dataset)
    except tf.errors.OpError:
        return None


def misfit(content: bytes, features: Features, flag_of: dict[str, str]) -> str:
    """Why a record cannot be read as these features; "" if it can."""
    try:
        example = tf.train.Example.FromString(content)
    except DecodeError:
        return "its records are no tf.train.Examples. Was it made by create_pretraining_data.py?"
    for name, feature in features.items():
        found = example.features.feature.get(name)
        if found is None:
            return (
                f"its records have no feature {name!r}, but "
                f"{', '.join(sorted(example.features.feature))}. Was it made by "
                "create_pretraining_data.py?"
            )
        values = found.float_list.value or found.int64_list.value
        expected = int(np.prod(feature.shape))
        if len(values) != expected:
            flag = flag_of.get(name, name)
            return (
                f"{name} has {len(values)} values, --{flag}={expected} was given. "
                f"Pass --{flag}={len(values)}, or make the records anew with --{flag}={expected}."
            )
    return ""
