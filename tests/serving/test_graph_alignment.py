"""Tests that pieces are aligned with the same characters in a graph as in Python."""

from __future__ import annotations

import json

import pytest
import tensorflow as tf

from albert_tf.serving.graph_alignment import GraphAligner
from albert_tf.serving.graph_tokenizer import GraphTokenizer
from albert_tf.squad import alignment
from albert_tf.tokenization import FullTokenizer
from tests.conftest import TOY_TEXT, train_toy_vocabulary

WORD_PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] the ##r river 河 水 a , . ##s e want ##ed ' ! σ ς ο 1"
TEXTS = [
    TOY_TEXT,
    "The RIVER  carries,\n\n the rain! ",
    "  in (1999, and 20,000, 7,7, x9, the",
    "Crème BRÛLÉE ﬁne ½ ½ the ΟΔΟΣ the river",
    "河水 the河river水。，",
    "a\0b \x07cd \x1ce \u2028f\u2029g\u3000h\ufffdi j the river",
    "the 😀 👩‍👩‍👧 e\u0301\u0302 river",
    "[MASK] the <unk> river",
    "it´s the river’s “rain” – carries",
    "the " + "river" * 50 + " a",
    "the " + "é" * 201 + " river" * 60,
    "the 서울 is the river of the rain that waits at the landing",
]


@pytest.fixture(scope="module", params=["sentencepiece", "wordpiece"])
def tokenizer(request, tmp_path_factory):
    """A lower-casing tokenizer of either kind."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "sentencepiece":
        train_toy_vocabulary(folder / "toy.model", 97, ["9,", "7,", "0", "1"])
        return FullTokenizer(spm_model_file=str(folder / "toy.model"))
    (folder / "vocab.txt").write_text("\n".join(WORD_PIECES.split()) + "\n", encoding="utf-8")
    return FullTokenizer(vocab_file=str(folder / "vocab.txt"))


def align(tokenizer, texts):
    """Returns (id, first, last) of the pieces of each text, computed in a graph."""
    aligned = GraphAligner(tokenizer, GraphTokenizer(tokenizer)).tokenize(tf.constant(texts))
    parts = (aligned.ids.to_list(), aligned.first.to_list(), aligned.last.to_list())
    return [list(zip(*row, strict=True)) for row in zip(*parts, strict=True)]


def expected(tokenizer, text):
    """Returns the same for one text, computed in Python."""
    found = alignment.tokenize(tokenizer, text)
    if found is None:
        return []
    parts = (found.token_ids, found.first_char, found.last_char)
    return list(zip(*(part.tolist() for part in parts), strict=True))


def same(text, ours, theirs):
    """Whether the pieces are the same except for outer spaces, which answers do not have."""

    def strip(piece):
        number, first, last = piece
        while first <= last and text[first].isspace():
            first += 1
        while first <= last and text[last].isspace():
            last -= 1
        return number, text[first : last + 1] and (first, last)

    return list(map(strip, ours)) == list(map(strip, theirs))


def test_alignment_matches_python(tokenizer):
    for text, found in zip(TEXTS, align(tokenizer, TEXTS), strict=True):
        wanted = expected(tokenizer, text)
        assert wanted
        assert same(text, found, wanted), f"{text!r}\n{found}\n{wanted}"


def test_texts_that_cannot_be_aligned_have_no_pieces(tokenizer):
    texts = ["", " \n ", "the river", "\u0301", "한국어 텍스트", "\u200b"]
    assert align(tokenizer, texts) == [expected(tokenizer, text) for text in texts]


@pytest.mark.slow
def test_alignment_of_real_contexts_matches_python(shared):
    files = {
        "spm_model_file": ("30k-clean.model", "squad/train-v1.1-part.json"),
        "vocab_file": ("vocab_chinese.txt", "cmrc2018/cmrc2018_trial.json"),
    }
    for kind, (vocabulary, path) in files.items():
        tokenizer = FullTokenizer(**{kind: str(shared / "vocab" / vocabulary)})
        content = json.loads((shared / "data" / path).read_text(encoding="utf-8"))
        texts = list(dict.fromkeys(contexts(content)))
        differing = [
            text
            for text, found in zip(texts, align(tokenizer, texts), strict=True)
            if not same(text, found, expected(tokenizer, text))
        ]
        assert len(texts) > 200
        assert len(differing) <= len(texts) // 500, differing


def contexts(content):
    """Returns all contexts in a file of questions in the format of SQuAD or CMRC."""
    if isinstance(content, dict):
        for name, value in content.items():
            if name in ("context", "context_text"):
                yield value
            else:
                yield from contexts(value)
    elif isinstance(content, list):
        for value in content:
            yield from contexts(value)
