"""Parsing serialized records, and saying why one cannot be parsed."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.tfrecord import encode_examples, frame_records
from albert_tf.pretraining.record_parsing import count_if_sound, misfit, open_records, parse, parses

FEATURES = {
    "ids": tf.io.FixedLenFeature((7,), tf.int64),
    "weights": tf.io.FixedLenFeature((3,), tf.float32),
}


@pytest.fixture(name="contents")
def make_contents():
    rng = np.random.default_rng(5)
    arrays = {"ids": rng.integers(0, 97, (5, 7)), "weights": rng.random((5, 3), np.float32)}
    return encode_examples(arrays)


def test_integers_become_int32_and_floats_stay(contents):
    batch = parse(tf.constant(contents), FEATURES)
    assert {name: (value.shape, value.dtype) for name, value in batch.items()} == {
        "ids": ((5, 7), tf.int32),
        "weights": ((5, 3), tf.float32),
    }


def test_one_bad_record_among_good_ones_is_noticed(contents):
    assert parses(contents, FEATURES)
    assert parses([], FEATURES)
    assert not parses([*contents, b"something else"], FEATURES)
    assert not parses(contents, FEATURES | {"ids": tf.io.FixedLenFeature((8,), tf.int64)})
    assert parses([b"something else"], None)


def test_only_sound_files_are_counted(tmp_path, contents):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(frame_records([*contents, b"something else"])))
    assert count_if_sound(str(path), False, None) == 6
    assert count_if_sound(str(path), False, FEATURES) is None
    path.write_bytes(path.read_bytes()[:-1])
    assert count_if_sound(str(path), False, None) is None
    path.write_bytes(b"".join(frame_records(contents)))
    assert count_if_sound(str(path), False, FEATURES) == 5
    assert [item.numpy() for item in open_records(str(path), False)] == contents
    path.write_bytes(b"")
    assert count_if_sound(str(path), False, FEATURES) == 0


def test_a_misfit_says_what_to_do(contents):
    flags = {"ids": "max_seq_length"}
    assert misfit(contents[0], FEATURES, flags) == ""
    wide = FEATURES | {"ids": tf.io.FixedLenFeature((8,), tf.int64)}
    assert "ids has 7 values, --max_seq_length=8 was given" in misfit(contents[0], wide, flags)
    other = FEATURES | {"other": FEATURES["ids"]}
    assert "no feature 'other', but ids, weights" in misfit(contents[0], other, flags)
    assert "no tf.train.Examples" in misfit(b"something else", FEATURES, flags)
