"""Chinese words, aligned by position and as albert_zh finds them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from albert_tf.data.chinese_words import AlbertZhWords, ChineseWords, load_segmenter
from albert_tf.data.documents import tokenize_documents, word_start_table
from albert_tf.model.tokenization import FullTokenizer
from tests.data.conftest import write

EXAMPLES = "中华人民共和国 画蛇添足 研究生命起源的研究生"
WORDS = ["中华人民共和国", "画蛇添足", "研究", "生命", "起源", "的", "研究生", "好人"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
HAN = sorted(set(EXAMPLES.replace(" ", "")) | set("好人恤"))


def segment(text):
    """A fake jieba: words of a short list, matched from the left, or single characters."""
    found = []
    while text:
        # jieba compares the frequencies of 研究 + 生命 and 研究生 + 命; here the position decides.
        fits = [word for word in WORDS if text.startswith(word)]
        if "研究生" in fits and text != "研究生":
            fits.remove("研究生")
        word = max([*fits, text[0]], key=len)
        found.append(word)
        text = text[len(word) :]
    return found


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    pieces = [*SPECIAL, *HAN, *("##" + char for char in HAN)]
    pieces += ["play", "##ing", "3", ".", "14", "t", "["]
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    return FullTokenizer(write(path, "\n".join(pieces) + "\n"))


def marked(words, tokenizer, *lines):
    """Returns the lines with a plus sign before each token that continues a word."""
    encoded = tokenizer.encode_batch(lines)
    marks = words.continues_word(list(lines), encoded)
    tokens = [token for ids in encoded for token in tokenizer.convert_ids_to_tokens(ids)]
    pairs = zip(marks, tokens, strict=True)
    return " ".join("+" + token if mark else token for mark, token in pairs)


@pytest.mark.parametrize(
    ("line", "by_position", "as_albert_zh"),
    [
        # Words of four or more characters: albert_zh groups at most three.
        ("中华人民共和国", "中 +华 +人 +民 +共 +和 +国", "中 华 人 民 共 和 国"),
        ("画蛇添足", "画 +蛇 +添 +足", "画 蛇 添 足"),
        # albert_zh finds 研究生 at the start because it is a word at the end.
        (
            "研究生命起源的研究生",
            "研 +究 生 +命 起 +源 的 研 +究 +生",
            "研 +究 +生 命 起 +源 的 研 +究 +生",
        ),
    ],
)
def test_words_of_the_examples_are_marked(tokenizer, line, by_position, as_albert_zh):
    assert marked(ChineseWords(tokenizer, segment), tokenizer, line) == by_position
    assert marked(AlbertZhWords(tokenizer, segment), tokenizer, line) == as_albert_zh


@pytest.mark.ci
def test_jieba_finds_the_words_of_the_examples():
    jieba = load_segmenter()
    assert list(map(jieba, EXAMPLES.split())) == list(map(segment, EXAMPLES.split()))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([" 画 蛇添足\t龘好人 "], "画 +蛇 +添 +足 [UNK] 好 +人"),
        (["画\0蛇添足"], "画 +蛇 +添 +足"),
        (["好", "", "人 playing", " ", "好人"], "好 人 play ##ing 好 +人"),
    ],
    ids=["spaces and an unknown character", "a dropped character", "lines"],
)
def test_words_are_aligned_by_position(tokenizer, lines, expected):
    assert marked(ChineseWords(tokenizer, segment), tokenizer, *lines) == expected


def test_only_han_characters_are_marked(tokenizer):
    words = ChineseWords(tokenizer, lambda text: [text])  # the whole text is one word
    assert marked(words, tokenizer, "playing 3.14好人playing t恤人") == (
        "play ##ing 3 . 14 好 +人 play ##ing t 恤 +人"
    )


def test_latin_words_are_separated_for_the_segmenter(tokenizer):
    texts = []
    words = ChineseWords(tokenizer, lambda text: texts.append(text) or list(text))
    words.continues_word(["play ing 好 人play"], tokenizer.encode_batch(["play ing 好 人play"]))
    assert texts == ["play ing好人play"]


def test_sentencepiece_pieces_are_aligned_by_their_text():
    pieces = ["▁", "画蛇", "添足", "▁t", "恤", "研究", "生", "命", "▁好", "人", "▁"]
    tokenizer = SimpleNamespace(
        is_sentencepiece=True, do_lower_case=True, tokenize=lambda line: pieces
    )
    marks = ChineseWords(tokenizer, segment).continues_word(["the line"], [[0] * len(pieces)])
    continuing = [piece for piece, mark in zip(pieces, marks, strict=True) if mark]
    assert continuing == ["添足", "命", "人"]


def test_documents_have_word_starts_and_albert_zh_labels(tokenizer):
    table = word_start_table(tokenizer.pieces, False)
    lines = ["画蛇添足playing", "好人"]
    documents = tokenize_documents([lines], tokenizer, table, ChineseWords(tokenizer, segment))
    assert documents.labels is None
    assert documents.word_starts.tolist() == [1, 0, 0, 0, 1, 0, 1, 0]
    documents = tokenize_documents([lines], tokenizer, table, AlbertZhWords(tokenizer, segment))
    assert documents.word_starts.tolist() == [1, 1, 1, 1, 1, 0, 1, 0]
    assert tokenizer.convert_ids_to_tokens(documents.ids.tolist()[-2:]) == ["好", "人"]
    labels = tokenizer.convert_ids_to_tokens(documents.labels.tolist())
    assert labels == [*"画蛇添足", "play", "##ing", "好", "##人"]
    assert documents.labels.dtype == np.int32


def test_albert_zh_requires_a_wordpiece_vocabulary_with_continuation_pieces(
    tmp_path, toy_tokenizer
):
    with pytest.raises(ValueError, match="albert_zh_compat requires a WordPiece vocabulary"):
        AlbertZhWords(toy_tokenizer, segment)
    path = write(tmp_path / "vocab.txt", "\n".join([*SPECIAL, "好", "人", "##人"]))
    with pytest.raises(ValueError, match="lacks 1 such pieces, for example ##好"):
        AlbertZhWords(FullTokenizer(path), segment)
