"""Texts are tokenized in a graph as in Python."""

from __future__ import annotations

import importlib
import json
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.model.tokenization import FullTokenizer
from tests.conftest import TOY_TEXT, train_toy_vocabulary

pytest.importorskip("tensorflow_text")
GraphTokenizer = importlib.import_module("albert_tf.model.graph_tokenizer").GraphTokenizer
TokenizerLayer = importlib.import_module("albert_tf.model.tokenizer_layer").TokenizerLayer

WORD_PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] the ##r river 河 水 a , . ##s e want ##ed ' ! σ ς ο 1"
ODD_TEXTS = [
    "",
    "  \t \n ",
    "The RIVER carries, the rain!",
    "in 1999, and 20,000, 7,7, x9,",
    "Crème BRÛLÉE ﬁne ½ ™ ´x İstanbul ΟΔΟΣ ΑΣ'Σ",
    "河水 the河river水。，",
    "a\0b \x07c\x0bd \x1ce \u2028f\u2029g\u3000h\ufffdi\u200dj",
    "😀 👩‍👩‍👧 e\u0301\u0302",
    "[MASK] [CLS] <unk> [UNK]",
    "river" * 100,
    "é" * 200,
    "é" * 201,
    "$^`~+<=>|",
]
# Python's unicodedata and tensorflow-text use different versions of Unicode.
ASSIGNED_CODES = [
    code
    for code in range(0x20000)
    if unicodedata.category(chr(code)) not in ("Cn", "Cs")
    and not 0x1C80 <= code <= 0x1C8A  # a block extended in Unicode 16
]


@pytest.fixture(scope="module", params=["sentencepiece", "wordpiece"])
def tokenizer(request, tmp_path_factory):
    """A lower-casing tokenizer of at most 9 tokens in a row."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "sentencepiece":
        train_toy_vocabulary(folder / "toy.model", 97, ["9,", "7,", "0", "1"])
        return FullTokenizer(spm_model_file=str(folder / "toy.model"), max_length=9)
    (folder / "vocab.txt").write_text("\n".join(WORD_PIECES.split()) + "\n", encoding="utf-8")
    return FullTokenizer(vocab_file=str(folder / "vocab.txt"), max_length=9)


@pytest.fixture(scope="module")
def graph(tokenizer):
    return GraphTokenizer(tokenizer)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.ci
def test_unusual_texts_have_the_same_ids_as_in_python(tokenizer, graph):
    texts = ODD_TEXTS + TOY_TEXT.splitlines()
    found = graph.tokenize(tf.constant(texts)).to_list()
    assert found == tokenizer.encode_batch(texts)
    assert any(len(ids) > 10 for ids in found)
    broken = [b"the\xff\xferiver", b"river\xe6\xb2", b"\xf0\x9f\x98 the", b"a\xed\xa0\x80b"]
    texts = [text.decode("utf-8", "replace") for text in broken]
    assert graph.tokenize(tf.constant(broken)).to_list() == tokenizer.encode_batch(texts)


@pytest.mark.ci
def test_every_character_is_normalized_as_in_python(tokenizer, graph):
    texts = [f"the{chr(code)}river" for code in ASSIGNED_CODES]
    assert graph.tokenize(tf.constant(texts)).to_list() == tokenizer.encode_batch(texts)


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["sentencepiece", "wordpiece"])
@pytest.mark.parametrize("case", ["lower", "cased"])
def test_every_golden_text_has_the_official_ids(shared, kind, case):
    vocabulary = (
        {"spm_model_file": str(shared / "vocab/30k-clean.model")}
        if kind == "sentencepiece"
        else {"vocab_file": str(shared / "vocab/vocab_chinese.txt")}
    )
    official = FullTokenizer(do_lower_case=case == "lower", **vocabulary)
    path = shared / "golden" / "tokenization" / f"{kind}_{case}.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    graph = GraphTokenizer(official)
    found = graph.tokenize(tf.constant([row["text"] for row in rows]))
    differing = [
        row["text"]
        for row, ids in zip(rows, found.to_list(), strict=True)
        if ids != row["ids"] and "é" * 100 not in row["text"]  # a tie between two segmentations
    ]
    assert len(rows) > 400
    assert differing == []


@pytest.mark.ci
@pytest.mark.parametrize("max_seq_length", [3, 4, 8, 9, 64])
def test_pairs_are_truncated_and_padded_as_in_python(tokenizer, graph, max_seq_length):
    words = "the river a rain , the the river".split()
    rows = [
        (" ".join(words[:first]), " ".join(words[:second]))
        for first in (0, 1, 3, 8)
        for second in (0, 1, 2, 5, 8)
    ]
    first, second = map(tf.constant, zip(*rows, strict=True))
    expected = tokenizer(rows, max_length=max_seq_length)
    assert_same(graph.pack(first, second, max_seq_length), expected)
    expected = tokenizer(rows, max_length=max_seq_length, padding="max_length")
    assert_same(graph.pack(first, second, max_seq_length, max_seq_length), expected)
    single = tokenizer([text for text, _ in rows], max_length=max_seq_length)
    assert_same(graph.pack(first, None, max_seq_length), single)


# The Keras layer

TEXTS = ["The river was wider.", "old people", "", "RIVÉR " * 20]
PAIRS = ["", "Beside the sea, alone", "the rain", "old"]


@pytest.mark.ci
def test_the_layer_makes_the_batches_of_the_tokenizer_in_a_dataset(tokenizer):
    rows = tf.data.Dataset.from_tensor_slices((TEXTS, PAIRS))
    layer = TokenizerLayer(tokenizer)
    (pairs,) = rows.batch(4).map(lambda *texts: layer(texts))
    assert_same(pairs, tokenizer(TEXTS, PAIRS))
    padded = TokenizerLayer(tokenizer, padding="max_length")
    single = next(iter(rows.map(lambda text, _: padded(text))))
    expected = tokenizer(TEXTS[:1], padding="max_length")
    assert_same(single, {name: values[0] for name, values in expected.items()})


@pytest.mark.ci
def test_a_model_of_strings_is_saved_with_its_vocabulary(tokenizer, tmp_path):
    name = "model" if tokenizer.is_sentencepiece else "model.keras"
    texts = tf_keras.Input((), dtype="string")
    table = tf_keras.layers.Embedding(97, 3)
    model = tf_keras.Model(
        texts, table(TokenizerLayer(tokenizer, max_length=11)(texts)["input_ids"])
    )
    model.save(tmp_path / name)
    tf.random.set_seed(7)  # clears TensorFlow's caches
    again = tf_keras.models.load_model(tmp_path / name)
    expected = table(tokenizer(TEXTS, max_length=11)["input_ids"])
    np.testing.assert_array_equal(again(tf.constant(TEXTS)), expected)


@pytest.mark.parametrize(
    ("arguments", "inputs", "said"),
    [
        ({"padding": "most"}, None, "padding='most'"),
        ({"max_length": 2}, None, "max_length=2: expected 3 or more"),
        ({}, tf.constant([["a"]]), r"shape \(1, 1\): expected strings \[B\]"),
    ],
)
def test_invalid_arguments_and_inputs_of_the_layer_are_refused(
    toy_tokenizer, arguments, inputs, said
):
    with pytest.raises(ValueError, match=said):
        TokenizerLayer(toy_tokenizer, **arguments)(inputs)
