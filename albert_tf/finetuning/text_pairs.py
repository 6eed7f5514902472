"""Texts and pairs of texts as the input of a predictor."""

from __future__ import annotations

from collections.abc import Sequence

from albert_tf.finetuning.token_sequences import TokenSequences
from albert_tf.model.tokenization import Tokenizer, split_pairs


def parse_pairs(
    texts: str | Sequence[str] | Sequence[Sequence[str]],
    pairs: str | Sequence[str] | None = None,
) -> tuple[list[tuple[str, str]], bool]:
    """Returns the pairs in the arguments of a call, and whether it is for a single one.

    Args:
        texts: a text, a list of texts, or a list of pairs of texts.
        pairs: the second text of the pair, or one for each of `texts`.

    Returns:
        Pairs (text, text or ""), and whether the call is for a single one.

    Raises:
        ValueError: an input is not a string.
    """
    return list(zip(*split_pairs(texts, pairs), strict=True)), isinstance(texts, str)


def encode_pairs(
    pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer, max_seq_length: int
) -> tuple[TokenSequences, int]:
    """Returns the token sequences of pairs of texts, and how many of them were too long.

    Longer pairs are truncated at the end of the longer text.

    Args:
        pairs: one or more pairs (text, text or "").
        tokenizer: the tokenizer.
        max_seq_length: maximum number of tokens of a pair.
    """
    firsts, seconds = (list(side) for side in zip(*pairs, strict=True))
    rows = tokenizer.sequences(firsts, seconds, max_seq_length + 1)  # shows what is too long
    too_long = [number for number, (ids, _) in enumerate(rows) if len(ids) > max_seq_length]
    for number in too_long:
        (rows[number],) = tokenizer.sequences(firsts[number], seconds[number], max_seq_length)
    return TokenSequences.pack(rows, {}), len(too_long)
