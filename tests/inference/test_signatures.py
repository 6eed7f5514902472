"""Tests how rows of strings are passed to the signatures of a SavedModel."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.inference.signatures import Signatures


class Counter(tf.Module):
    """A model that returns the number of rows in its batch, and of strings in each row."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "texts")])
    def measure(self, texts):
        size = tf.size(texts)
        return {"size": tf.fill([size], size), "text": texts, "threshold": tf.constant(0.5)}

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.string, "words")])
    def count(self, words):
        return {"words": words, "counts": tf.reduce_sum(tf.cast(words != "", tf.int32), 1)}


@pytest.fixture(scope="module", name="signatures")
def make_signatures(tmp_path_factory):
    folder, model = str(tmp_path_factory.mktemp("counter")), Counter()
    tf.saved_model.save(model, folder, {"texts": model.measure, "words": model.count})
    return Signatures(folder)


def test_rows_are_batched_by_length_and_returned_in_order(signatures):
    texts = ["a", "bbbbbb", "", "cc", "ddd"]
    rows = signatures.answer("texts", {"texts": texts}, 2)
    assert [row["text"].decode() for row in rows] == texts
    assert [row["size"] for row in rows] == [2, 2, 1, 2, 2]
    assert all(row.keys() == {"size", "text"} for row in rows)  # the threshold is not of a row
    assert signatures.answer("texts", {"texts": []}, 2) == []


def test_long_rows_make_smaller_batches(signatures):
    rows = signatures.answer("texts", {"texts": ["a" * 9, "bb", "bb", "bb", "", ""]}, 3, 4)
    assert [row["size"] for row in rows] == [1, 2, 2, 2, 2, 1]


def test_lists_are_padded(signatures):
    rows = signatures.answer("words", {"words": [["a"], ["b", "c", "d"], []]}, 5)
    assert [row["counts"] for row in rows] == [1, 3, 0]
    np.testing.assert_array_equal(rows[0]["words"], [b"a", b"", b""])


def test_inputs_and_outputs_identify_a_signature(signatures):
    assert signatures.has("texts", {"texts", "size"})
    assert not signatures.has("texts", {"words"})
    assert not signatures.has("fill_mask", {"texts"})
    assert signatures.outputs("words").keys() == {"words", "counts"}
