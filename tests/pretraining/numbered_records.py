"""Record files whose records are numbers, valid or damaged."""

from __future__ import annotations

import gzip

import tensorflow as tf

from albert_tf.data.tfrecord import frame_records
from albert_tf.pretraining import record_files

FEATURES = {"number": record_files.Feature((1,), tf.int64)}


def example(number):
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))
    features = tf.train.Features(feature={"number": feature})
    return tf.train.Example(features=features).SerializeToString()


def write_numbers(path, numbers, compression=""):
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for number in numbers:
            writer.write(example(number))


def write_files(folder):
    """Writes six files of different lengths, one with gzip, with consecutively numbered records."""
    start, paths = 0, []
    for i, length in enumerate((5, 19, 1, 11, 3, 8)):
        paths.append(str(folder / f"{i}.tfrecord"))
        write_numbers(paths[-1], range(start, start + length), "GZIP" if i == 1 else "")
        start += length
    return record_files.find_record_files(paths, FEATURES)


def write_damaged(path, numbers, damage, is_gzip=False):
    """Returns records of the given numbers; `damage` maps positions to kinds of damage."""
    frames = frame_records([example(number) for number in numbers])
    for place, kind in damage.items():
        frame = bytearray(frames[place])
        if kind == "other":  # with a correct checksum
            frame = frame_records([b"something else"])[0]
        elif kind == "cut":
            del frame[-3:]
        else:
            frame[{"length": 3, "length check": 9, "content": 15, "check": -2}[kind]] ^= 1
        frames[place] = bytes(frame)
    content = b"".join(frames)
    path.write_bytes(gzip.compress(content) if is_gzip else content)
    return str(path)
