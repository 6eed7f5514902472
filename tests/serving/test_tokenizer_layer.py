"""The tokenizer as a Keras layer: in datasets, and in models that are saved and loaded."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import albert_tf
from albert_tf import TokenizerLayer
from albert_tf.config import AlbertConfig
from albert_tf.heads import AlbertForClassification
from albert_tf.tokenization import FullTokenizer
from tests.conftest import TINY_SHAPE

TEXTS = ["The river was wider.", "old people", "", "RIVÉR " * 20]
PAIRS = ["", "Beside the sea, alone", "the rain", "old"]
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the river old people was ##r a , .".split()


@pytest.fixture(params=["sentencepiece", "wordpiece"])
def tokenizer(request, toy_spm_model, tmp_path):
    if request.param == "sentencepiece":
        return FullTokenizer(spm_model_file=str(toy_spm_model), max_length=9)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return FullTokenizer(str(tmp_path / "vocab.txt"), do_lower_case=False, max_length=9)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.parametrize("padding", ["longest", "max_length"])
def test_batches_of_a_dataset_are_those_of_the_tokenizer(tokenizer, padding):
    layer = TokenizerLayer(tokenizer, padding=padding)
    rows = tf.data.Dataset.from_tensor_slices((TEXTS, PAIRS)).batch(4)
    (single,) = rows.map(lambda texts, _: layer(texts))
    assert_same(single, tokenizer(TEXTS, padding=padding))
    (pairs,) = rows.map(lambda *texts: layer(texts))
    assert_same(pairs, tokenizer(TEXTS, PAIRS, padding=padding))


def test_a_text_may_have_no_batch_dimension(tokenizer):
    layer = TokenizerLayer(tokenizer, max_length=7, padding="max_length")
    rows = tf.data.Dataset.from_tensor_slices(TEXTS).map(layer).batch(4)
    assert_same(next(iter(rows)), tokenizer(TEXTS, max_length=7, padding="max_length"))


def test_a_model_of_strings_is_saved_with_its_vocabulary(tokenizer, tmp_path):
    config = AlbertConfig(**TINY_SHAPE | {"num_hidden_layers": 1, "num_hidden_groups": 1})
    classifier = AlbertForClassification(config, 3)
    texts = tf_keras.Input((), dtype="string")
    model = tf_keras.Model(texts, classifier(TokenizerLayer(tokenizer, max_length=11)(texts)))
    expected = classifier(tokenizer(TEXTS, max_length=11)).numpy()
    strings = tf.constant(TEXTS)
    np.testing.assert_allclose(model(strings), expected, atol=1e-6)
    for name in ("model.keras", "model"):
        model.save(tmp_path / name)
        again = tf_keras.models.load_model(tmp_path / name)
        np.testing.assert_allclose(again(strings), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "inputs", "message"),
    [
        ({"padding": "most"}, None, "padding='most'"),
        ({"max_length": 2}, None, "max_length=2: expected 3 or more"),
        ({}, tf.constant([["a"]]), r"shape \(1, 1\): expected strings \[B\]"),
    ],
)
def test_invalid_arguments_and_inputs_are_refused(toy_tokenizer, arguments, inputs, message):
    with pytest.raises(ValueError, match=message):
        TokenizerLayer(toy_tokenizer, **arguments)(inputs)


def test_a_tokenizer_that_is_given_a_tensor_names_the_layer(toy_tokenizer):
    with pytest.raises(ValueError, match=albert_tf.TokenizerLayer.__name__):
        toy_tokenizer(tf.constant(TEXTS))
    rows = tf.data.Dataset.from_tensor_slices(TEXTS).batch(4)
    with pytest.raises(Exception, match="TokenizerLayer"):
        rows.map(lambda texts: toy_tokenizer(texts))
