"""What tokens are, words or characters: how text is cut into them and joined again."""

from __future__ import annotations

from collections.abc import Sequence

from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.token_classification.sentences import Sentence
from albert_tf.model.tokenization.characters import find_words, is_cjk, word_kind

WORDS = "words"
CHARACTERS = "characters"


def find_units(train: Examples[Sentence]) -> str:
    """Returns WORDS or CHARACTERS, by what letters and digits next to each other are.

    A Chinese character is a token in both. Evidence of words are tokens of several characters;
    evidence of characters are neighbors of one letter or digit each, such as 1 9 8 7.
    """
    num_words = num_characters = 0
    for sentence in train.examples:
        single = [len(token) == 1 for token in sentence.tokens]
        num_words += single.count(False)
        in_word = [
            is_single and word_kind(token) == "a"
            for token, is_single in zip(sentence.tokens, single, strict=True)
        ]
        num_characters += sum(map(bool.__and__, in_word, in_word[1:]))
    return WORDS if num_words > num_characters else CHARACTERS


def cut(text: str, units: str) -> list[tuple[str, int]]:
    """Returns the tokens of raw text, and the index of the first character of each."""
    if units == CHARACTERS:
        return [(char, place) for place, char in enumerate(text) if not char.isspace()]
    return find_words(text)


def join_tokens(tokens: Sequence[str], units: str) -> str:
    """Returns the text of tokens: with spaces between words, but not next to Chinese characters.

    >>> join_tokens(["New", "York"], WORDS), join_tokens(["北", "京"], WORDS)
    ('New York', '北京')
    """
    text = ""
    for token in tokens:
        is_spaced = text and units == WORDS and not (is_cjk(text[-1]) or is_cjk(token[:1] or " "))
        text += f" {token}" if is_spaced else token
    return text
