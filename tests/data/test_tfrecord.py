"""Serialized bytes are identical to TensorFlow's."""

from __future__ import annotations

import numpy as np
import pytest

from albert_tf.data.tfrecord import (
    decode_example,
    encode_examples,
    frame_records,
    has_good_length,
)


def random_features(rng, rows=5, seq_length=11, slots=7, largest=97):
    return {
        "input_ids": rng.integers(0, largest, (rows, seq_length)).astype(
            np.int32 if largest < 1 << 31 else np.int64
        ),
        "input_mask": rng.integers(0, 2, (rows, seq_length)).astype(np.uint8),
        "masked_lm_ids": rng.integers(0, largest, (rows, slots)).astype(np.int64),
        "masked_lm_weights": rng.random((rows, slots)).astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, (rows, 1)).astype(np.uint8),
    }


def tensorflow_bytes(features, row):
    import tensorflow as tf

    def feature(values):
        if np.issubdtype(values.dtype, np.floating):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    content = {name: feature(values[row]) for name, values in features.items()}
    example = tf.train.Example(features=tf.train.Features(feature=content))
    return example.SerializeToString(deterministic=True)


# Values around each change in the size of a varint; the lists are longer than 128 bytes, too.
@pytest.mark.parametrize(
    "largest", [97, 128, 129, 30_000, 1 << 14, 1 << 21, 1 << 28, 1 << 35, 1 << 56]
)
@pytest.mark.parametrize("seq_length", [1, 11, 127, 509])
def test_records_are_identical_to_those_of_tensorflow(largest, seq_length):
    rng = np.random.default_rng(5)
    features = random_features(rng, rows=3, seq_length=seq_length, largest=largest)
    features["input_ids"][0, 0] = largest - 1
    encoded = encode_examples(features)
    assert encoded == [tensorflow_bytes(features, row) for row in range(3)]


@pytest.mark.parametrize("largest", [128, 300, 70_000, 1 << 40])
def test_zeros_anywhere_in_a_row_are_kept(largest):
    rows = [
        [0, 0, 0, 0, 0],
        [largest, 0, 0, 0, 0],
        [0, largest, 0, 0, 7],
        [0, 0, 0, 0, 7],
        [1, largest, 0, 256, 0],
        [1, 2, 3, 4, largest],
    ]
    features = {"input_ids": np.array(rows), "masked_lm_weights": np.zeros((6, 2), np.float32)}
    assert encode_examples(features) == [tensorflow_bytes(features, row) for row in range(6)]


def test_no_records_are_encoded_as_none():
    features = {
        name: values[:0] for name, values in random_features(np.random.default_rng(5)).items()
    }
    assert encode_examples(features) == []


def test_decoding_inverts_encoding():
    features = random_features(np.random.default_rng(5), largest=300_000)
    for row, record in enumerate(encode_examples(features)):
        decoded = decode_example(record)
        assert set(decoded) == set(features)
        for name, values in decoded.items():
            np.testing.assert_array_equal(values, features[name][row])


def test_decoding_reads_examples_of_tensorflow():
    features = random_features(np.random.default_rng(7))
    decoded = decode_example(tensorflow_bytes(features, 2))
    np.testing.assert_array_equal(decoded["input_ids"], features["input_ids"][2])
    np.testing.assert_array_equal(decoded["masked_lm_weights"], features["masked_lm_weights"][2])


@pytest.mark.parametrize("data", [b"\x0a\xff", b"not a message", b"\x0a\x04\x0a\x02\x0a\x00"])
def test_decoding_something_else_is_an_error(data):
    with pytest.raises(ValueError, match=r"not a tf\.train\.Example"):
        decode_example(data)


@pytest.mark.parametrize("value", [-1, 1 << 56])
def test_integers_out_of_range_are_rejected(value):
    with pytest.raises(ValueError, match="integers in"):
        encode_examples({"input_ids": np.array([[3, value]])})


def test_frames_are_identical_to_those_of_tensorflow(tmp_path):
    import tensorflow as tf

    contents = encode_examples(random_features(np.random.default_rng(5), seq_length=211))
    contents += [b"", b"123456789", contents[0][:40]]
    path = str(tmp_path / "tensorflow.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for content in contents:
            writer.write(content)
    with open(path, "rb") as stream:
        assert stream.read() == b"".join(frame_records(contents))


def test_a_frame_starts_with_a_length_and_its_checksum():
    (frame,) = frame_records([b"some content"])
    assert has_good_length(frame[:12])
    assert not has_good_length(bytes([frame[0] ^ 1]) + frame[1:12])
    assert not has_good_length(frame[:11])
    assert frame_records([]) == []
