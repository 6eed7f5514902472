"""Record files of any features, and their metadata."""

from __future__ import annotations

import json

import numpy as np
import tensorflow as tf


def example(**features):
    """A serialized `tf.train.Example` of lists of integers or of floats."""
    made = {}
    for name, values in features.items():
        if np.asarray(values).dtype.kind == "f":
            made[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        else:
            made[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


def write_records(path, records):
    """Writes serialized records, and returns the path as a string."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return str(path)


def write_numbers(path, numbers):
    """Writes records of one feature, `number`."""
    return write_records(path, [example(number=[number]) for number in numbers])


def write_batch(path, batch, copies=1):
    """Writes the rows of a batch of arrays as records."""
    rows = range(len(batch["input_ids"]))
    records = [example(**{name: values[row] for name, values in batch.items()}) for row in rows]
    return write_records(path, records * copies)


def write_metadata(path, instances, checksum="a" * 64, size=97, file="x.model", **settings):
    """Writes the metadata of a record file, which name its vocabulary."""
    vocabulary = {"size": size, "checksum": checksum, "file": file, "do_lower_case": False}
    entry = {"name": path.name, "instances": instances, "bytes": path.stat().st_size}
    metadata = {"files": [entry], "settings": settings, "vocabulary": vocabulary, "mask_id": 4}
    path.with_suffix(".records.json").write_text(json.dumps(metadata))
