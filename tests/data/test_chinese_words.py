"""Chinese words aligned by position, and as albert_zh finds them."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest

from albert_tf.data.chinese_words import AlbertZhWords, ChineseWords, load_segmenter
from albert_tf.data.instances import tokenize_documents
from albert_tf.data.masking import word_start_table
from albert_tf.tokenization import FullTokenizer

EXAMPLES = "中华人民共和国 画蛇添足 研究生命起源的研究生"
WORDS = ["中华人民共和国", "画蛇添足", "研究", "生命", "起源", "的", "研究生", "好人"]


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
    han = sorted(set(EXAMPLES.replace(" ", "")) | set("好人恤"))
    pieces = [
        *["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        *[*han, *("##" + char for char in han)],
        *["play", "##ing", "3", ".", "14", "t", "["],
    ]
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return FullTokenizer(str(path))


def marked(words, tokenizer, *lines):
    """Returns the lines with a plus sign before each token that continues a word."""
    encoded = tokenizer.encode_batch(lines)
    marks = words.continues_word(list(lines), encoded)
    tokens = [token for ids in encoded for token in tokenizer.convert_ids_to_tokens(ids)]
    assert len(marks) == len(tokens)
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


def test_jieba_finds_the_words_of_the_examples(tokenizer):
    if not importlib.util.find_spec("jieba"):
        pytest.skip("jieba is not installed")
    real = load_segmenter()
    for line in EXAMPLES.split():
        assert real(line) == segment(line)


def test_only_han_characters_are_marked(tokenizer):
    words = ChineseWords(tokenizer, lambda text: [text])  # the whole text is one word
    assert marked(words, tokenizer, "playing 3.14好人playing t恤人") == (
        "play ##ing 3 . 14 好 +人 play ##ing t 恤 +人"
    )


def test_spaces_and_unknown_characters_do_not_shift_words(tokenizer):
    words = ChineseWords(tokenizer, segment)
    assert marked(words, tokenizer, " 画 蛇添足\t龘好人 ") == "画 +蛇 +添 +足 [UNK] 好 +人"
    assert marked(words, tokenizer, "画\0蛇添足") == "画 +蛇 +添 +足"


def test_lines_are_marked_one_by_one(tokenizer):
    words = ChineseWords(tokenizer, segment)
    assert (
        marked(words, tokenizer, "好", "", "人 playing", " ", "好人") == "好 人 play ##ing 好 +人"
    )
    zh = AlbertZhWords(tokenizer, segment)
    assert marked(zh, tokenizer, "好", "", "人 playing", "好人") == "好 人 play ##ing 好 +人"


def test_latin_words_are_separated_for_the_segmenter(tokenizer):
    texts = []
    words = ChineseWords(tokenizer, lambda text: texts.append(text) or list(text))
    words.continues_word(["play ing 好 人play"], tokenizer.encode_batch(["play ing 好 人play"]))
    assert texts == ["play ing好人play"]


def test_sentencepiece_pieces_are_aligned_by_their_text():
    class Tokenizer:
        """Pieces of several characters."""

        is_sentencepiece, do_lower_case = True, True

        def preprocess(self, text):
            return text.strip()

        def tokenize(self, text):
            return ["▁", "画蛇", "添足", "▁t", "恤", "研究", "生", "命", "▁好", "人", "▁"]

        def encode_batch(self, lines):
            return [list(range(11)) for _ in lines]

        def convert_ids_to_tokens(self, ids):
            return self.tokenize("")

    tokenizer = Tokenizer()
    assert marked(ChineseWords(tokenizer, segment), tokenizer, "画蛇添足 t恤研究生命 好人") == (
        "▁ 画蛇 +添足 ▁t 恤 研究 生 +命 ▁好 +人 ▁"
    )


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


def test_albert_zh_requires_a_continuation_piece_for_every_character(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n好\n人\n##人\n", encoding="utf-8")
    with pytest.raises(ValueError, match="the vocabulary lacks 1 such pieces, for example ##好"):
        AlbertZhWords(FullTokenizer(str(path)), segment)


def test_albert_zh_requires_a_wordpiece_vocabulary(toy_tokenizer):
    with pytest.raises(ValueError, match="albert_zh_compat requires a WordPiece vocabulary"):
        AlbertZhWords(toy_tokenizer, segment)


def test_without_jieba_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(ValueError, match=r"requires jieba: .*\[zh\]"):
        load_segmenter()
