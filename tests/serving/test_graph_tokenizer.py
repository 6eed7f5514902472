"""Tests that texts are tokenized in a graph as in Python."""

import json
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import tokenization
from albert_tf.serving.graph_tokenizer import GraphTokenizer
from albert_tf.tokenization import FullTokenizer
from tests.conftest import TOY_TEXT, train_toy_vocabulary

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
def pair(request, tmp_path_factory):
    """A lower-casing tokenizer and its equivalent in a graph."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "sentencepiece":
        train_toy_vocabulary(folder / "toy.model", 97, ["9,", "7,", "0", "1"])
        tokenizer = FullTokenizer(spm_model_file=str(folder / "toy.model"))
    else:
        (folder / "vocab.txt").write_text("\n".join(WORD_PIECES.split()) + "\n", encoding="utf-8")
        tokenizer = FullTokenizer(vocab_file=str(folder / "vocab.txt"))
    return tokenizer, GraphTokenizer(tokenizer)


def test_unusual_texts_have_the_same_ids_as_in_python(pair):
    tokenizer, graph = pair
    texts = ODD_TEXTS + TOY_TEXT.splitlines()
    found = graph.tokenize(tf.constant(texts)).to_list()
    assert found == tokenizer.encode_batch(texts)
    assert any(len(ids) > 10 for ids in found)


@pytest.mark.ci
def test_every_character_is_normalized_as_in_python(pair):
    tokenizer, graph = pair
    texts = [f"the{chr(code)}river" for code in ASSIGNED_CODES]
    assert graph.tokenize(tf.constant(texts)).to_list() == tokenizer.encode_batch(texts)


def test_invalid_utf8_is_replaced_as_python_decodes_it(pair):
    tokenizer, graph = pair
    broken = [b"the\xff\xferiver", b"river\xe6\xb2", b"\xf0\x9f\x98 the", b"a\xed\xa0\x80b"]
    texts = [text.decode("utf-8", "replace") for text in broken]
    assert graph.tokenize(tf.constant(broken)).to_list() == tokenizer.encode_batch(texts)


@pytest.mark.ci
@pytest.mark.parametrize("max_seq_length", [3, 4, 8, 9, 64])
def test_pack_truncates_and_pads_as_in_python(pair, max_seq_length):
    tokenizer, graph = pair
    words = "the river a rain , the the river".split()
    rows = [
        (" ".join(words[:first]), " ".join(words[:second]))
        for first in (0, 1, 3, 8)
        for second in (0, 1, 2, 5, 8)
    ]
    firsts, seconds = zip(*rows, strict=True)
    found = graph.pack(tf.constant(firsts), tf.constant(seconds), max_seq_length)
    expected = tokenizer(rows, max_length=max_seq_length)
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], name)


def test_pack_without_second_texts(pair):
    tokenizer, graph = pair
    texts = ["the river", "", "a rain on the river"]
    found = graph.pack(tf.constant(texts), None, 7)
    for name, values in tokenizer(texts, max_length=7).items():
        np.testing.assert_array_equal(found[name], values, name)


def test_a_saved_model_keeps_its_vocabulary(pair, tmp_path):
    tokenizer, graph = pair
    root = tf.Module()
    root.graph = graph
    tf.saved_model.save(root, str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    tf.random.set_seed(7)  # clears TensorFlow's caches
    texts = ["The river, 1999, 7,", "Α river"]
    assert loaded.graph.tokenize(tf.constant(texts)).to_list() == tokenizer.encode_batch(texts)


def test_character_classes_match_their_predicates():
    pattern = tokenization.character_class(tokenization.is_punctuation)
    characters = [chr(code) for code in (*range(0x3100), 0xFF01, 0x10100, 0x1F600)]
    kept = tf.strings.regex_replace(tf.constant(characters), pattern, "").numpy()
    assert [text == b"" for text in kept] == list(map(tokenization.is_punctuation, characters))


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["sentencepiece", "wordpiece"])
@pytest.mark.parametrize("case", ["lower", "cased"])
def test_every_golden_text_has_the_official_ids(shared, kind, case):
    vocabulary = (
        {"spm_model_file": str(shared / "vocab/30k-clean.model")}
        if kind == "sentencepiece"
        else {"vocab_file": str(shared / "vocab/vocab_chinese.txt")}
    )
    tokenizer = FullTokenizer(do_lower_case=case == "lower", **vocabulary)
    path = shared / "golden" / "tokenization" / f"{kind}_{case}.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    graph = GraphTokenizer(tokenizer)
    found = graph.tokenize(tf.constant([row["text"] for row in rows]))
    differing = [
        row["text"]
        for row, ids in zip(rows, found.to_list(), strict=True)
        if ids != row["ids"] and "é" * 100 not in row["text"]  # a tie between two segmentations
    ]
    assert len(rows) > 400
    assert differing == []
