"""The words whose marks normalization removes, in several scripts."""

from __future__ import annotations

import unicodedata

import pytest

from albert_tf.model.tokenization import BasicTokenizer, MarkRemoval, preprocess_text

# Words in pairs: with a mark, and what is left of it by the rules of SentencePiece and of WordPiece
# with lower case.
WORDS = {
    "été": ("ete", "ete"),
    "müde": ("mude", "mude"),
    "мой": ("мои", "мои"),
    "ήρεμη": ("ηρεμη", "ηρεμη"),
    "nước": ("nuoc", "nuoc"),
    "كَتَبَ": ("كتب", "كتب"),
    "पढ़ता": ("पढता", "पढता"),
    "पानी": ("पानी", "पानी"),
    "मुझे": ("मुझे", "मझ"),  # vowel signs are no combining characters, but marks
    "がっこう": ("かっこう", "かっこう"),
    "한국": ("한국", "한국"),
    "sea": ("sea", "sea"),
    "東京": ("東京", "東京"),
    "ﬁne": ("fine", "ﬁne"),
    "می\u200cروم": ("می\u200cروم", "میروم"),
}


def without_spaces(text):
    return "".join(text.split())


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_counted_if_normalization_removes_a_mark(word):
    kept = (
        preprocess_text(word, lower=True),
        "".join(BasicTokenizer(True).tokenize(word)),
    )
    composed = tuple(unicodedata.normalize("NFC", each) for each in kept)
    assert composed == WORDS[word]
    for is_sentencepiece, expected in zip((True, False), WORDS[word], strict=True):
        found = MarkRemoval(is_sentencepiece, do_lower_case=True).count([f"sea {word}"])
        loses = expected not in (word, "fine")
        assert (found.words, found.changed) == (2, int(loses)), is_sentencepiece
        if loses:
            assert found.example == word
            assert unicodedata.normalize("NFC", found.becomes) == expected


def test_case_keeps_marks_in_wordpiece_only_but_not_joiners():
    words = list(WORDS)
    assert MarkRemoval(True, do_lower_case=False).count(words).changed == 8
    cased = MarkRemoval(False, do_lower_case=False).count(words)
    assert (cased.words, cased.changed, cased.becomes) == (len(WORDS), 1, "میروم")


@pytest.mark.parametrize(("others", "is_said"), [(32, False), (31, True)])
def test_more_than_three_percent_are_a_problem_with_a_way_out(others, is_said):
    found = MarkRemoval(True, True).count(["sea été"] + ["sea"] * others)
    assert found.share == 1 / (others + 2)
    problem = found.problem("the text")
    assert bool(problem) == is_said
    if is_said:
        assert '3% of the words of the text, such as "été" → "ete"' in problem
        assert "--type=wordpiece --nodo_lower_case" in problem
