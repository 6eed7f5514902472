"""The models and records that examples use."""

import pytest

from tests.inference.conftest import pretrained_dir

__all__ = ["pretrained_dir", "records"]


@pytest.fixture
def records(tmp_path):
    import tensorflow as tf

    def integers(values):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    def floats(values):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    path = str(tmp_path / "held_out.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for ids, count, label in (([7, 7, 5], 3, 1), ([7, 6, 0], 2, 0), ([5, 0, 0], 1, 1)):
            features = {
                "masked_lm_ids": integers(ids),
                "masked_lm_weights": floats([1.0] * count + [0.0] * (3 - count)),
                "next_sentence_labels": integers([label]),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    return path
