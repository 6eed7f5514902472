"""Puts together a tokenizer of Hugging Face's library `tokenizers`, and writes it as JSON.

Normalization, in part by regular expressions with Python's character classes, is followed by
SentencePiece's unigram model or WordPiece, as in `tokenization`. `transformers` reads the result
without protobuf or tiktoken. The ids equal those of `FullTokenizer`, except for the differences
listed in docs/notebook/differences.md.

The normalizers process a text in parts, split at special tokens such as `[MASK]`.

The library is an extra, so this module is imported where a tokenizer is written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import sentencepiece
import tokenizers
from absl import logging
from tokenizers import decoders, models, normalizers, pre_tokenizers

from albert_tf import files
from albert_tf.model.tokenization import SPIECE_UNDERLINE, UNKNOWN_TOKEN, FullTokenizer, characters
from albert_tf.model.tokenization.characters import character_class
from albert_tf.model.tokenization.huggingface_tokenizer import naming_library_errors
from albert_tf.model.tokenization.huggingface_vocabulary import build_tokenizer
from albert_tf.model.tokenization.sentencepiece_encoder import (
    UNIGRAM,
    SentencePieceFile,
    has_number_comma,
    read_sentencepiece_file,
)
from albert_tf.model.tokenization.wordpiece_encoder import MAX_INPUT_CHARS_PER_WORD

_FINAL_SIGMA, _SIGMA = "\u03c2", "\u03a3"
_MARGIN = 0.01  # by which the score of a suppressed piece is lower than that of its parts


def tokenizer_json(tokenizer: FullTokenizer) -> str:
    """Returns the content of `tokenizer.json` for a vocabulary.

    Raises:
        ValueError: the library does not support the SentencePiece model. The message says why.
    """
    theirs = _unigram(tokenizer) if tokenizer.is_sentencepiece else _wordpiece(tokenizer)
    return str(theirs.to_str())


def _special_tokens(tokenizer: FullTokenizer) -> Iterator[tokenizers.AddedToken]:
    """Yields the tokens that texts are split at."""
    cls, sep, mask = tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id
    for number in sorted({tokenizer.pad_id, tokenizer.unk_id, cls, sep, mask}):
        # With SentencePiece, a space before [MASK] is part of the masked word.
        takes_space = tokenizer.is_sentencepiece and number == mask
        symbol = tokenizer.pieces[number]
        yield tokenizers.AddedToken(symbol, lstrip=takes_space, normalized=False, special=True)


def _replace(pattern: str, content: str) -> normalizers.Normalizer:
    return normalizers.Replace(tokenizers.Regex(pattern), content)


def _lower() -> list[normalizers.Normalizer]:
    """Returns the steps of `str.lower`; `Lowercase` by itself ignores the context of Σ."""

    def is_cased(char: str) -> bool:
        return (char + _SIGMA).lower().endswith(_FINAL_SIGMA)

    def is_ignorable(char: str) -> bool:
        return ("A" + char + _SIGMA).lower().endswith(_FINAL_SIGMA) and not is_cased(char)

    cased, ignored = map(character_class, (is_cased, is_ignorable))
    is_final = f"(?<={cased}|{cased}{ignored}){_SIGMA}(?!{ignored}*{cased})"
    return [_replace(is_final, _FINAL_SIGMA), normalizers.Lowercase()]


def _wordpiece(tokenizer: FullTokenizer) -> tokenizers.Tokenizer:
    """Returns the steps of `BasicTokenizer` and `WordpieceTokenizer`."""
    unknown, longest = UNKNOWN_TOKEN, MAX_INPUT_CHARS_PER_WORD
    model = models.WordPiece(tokenizer.vocab, unk_token=unknown, max_input_chars_per_word=longest)
    # By Python's classes of characters: those of `BertNormalizer` are of another Unicode version.
    steps = [_replace(character_class(characters.is_dropped), "")]
    if tokenizer.do_lower_case:
        marks = _replace(character_class(characters.is_mark), "")
        steps += [*_lower(), normalizers.NFD(), marks]
    words = character_class(str.isspace) + "+"
    alone = map(character_class, (characters.is_cjk, characters.is_punctuation))
    splits = [(words, "removed"), *((symbols, "isolated") for symbols in alone)]
    return build_tokenizer(
        model,
        normalizers.Sequence(steps),
        pre_tokenizers.Sequence(
            [pre_tokenizers.Split(tokenizers.Regex(symbols), how) for symbols, how in splits]
        ),
        _special_tokens(tokenizer),
        decoders.WordPiece(),
    )


def _unigram(tokenizer: FullTokenizer) -> tokenizers.Tokenizer:
    """Returns the steps of `preprocess_text`, of SentencePiece and of `encode_pieces`."""
    model = read_sentencepiece_file(tokenizer.sentencepiece_model)
    replaces = model.remove_extra_whitespaces and model.escape_whitespaces
    is_before = model.add_dummy_prefix and not model.treat_whitespace_as_suffix
    if model.model_type != UNIGRAM or model.byte_fallback or not (replaces and is_before):
        raise ValueError(
            "tokenizer.json requires a SentencePiece model of the type unigram, without byte "
            'fallback, that replaces spaces by one "▁" before each word'
        )
    scores, numbers = _scores(tokenizer, model)
    combining = character_class(characters.is_combining)
    steps = [_replace(character_class(str.isspace) + "+", " "), normalizers.NFKD()]
    # "▁" is prepended to the first character, which may be removed: a space replaces it.
    steps += [_replace(f"^{combining}+", " "), _replace(combining, "")]
    steps += _lower() if tokenizer.do_lower_case else []
    if charsmap := model.precompiled_charsmap:
        # NFC first, because `Precompiled` does not compose Hangul syllables.
        with naming_library_errors("the SentencePiece model"):
            steps += [normalizers.NFC(), normalizers.Precompiled(charsmap)]
    steps += [_replace(" {2,}", " "), _replace(" +$", "")]
    # Adds "▁" at the start of a text, but not after a special token: "[MASK]." has no space there.
    splits: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Metaspace(SPIECE_UNDERLINE, prepend_scheme="first")
    ]
    if numbers:
        number = f"^{SPIECE_UNDERLINE}(?:{'|'.join(map(re.escape, numbers))}),(?!\\d)"
        splits.append(pre_tokenizers.Split(tokenizers.Regex(number), "isolated"))
    return build_tokenizer(
        models.Unigram(scores, tokenizer.unk_id, False),
        normalizers.Sequence(steps),
        pre_tokenizers.Sequence(splits),
        _special_tokens(tokenizer),
        decoders.Metaspace(SPIECE_UNDERLINE, prepend_scheme="first"),
    )


def _scores(
    tokenizer: FullTokenizer, model: SentencePieceFile
) -> tuple[list[tuple[str, float]], list[str]]:
    """Returns the pieces with their scores, and the numbers that are split from a comma.

    `encode_pieces` splits pieces such as "▁1999,", so they get a score too low to be selected.
    Where the model would select such a piece, the text is split after the comma, unless a digit
    follows: then another piece such as "▁10,000" may have the better score. Inside words,
    `encode_pieces` begins the number with "▁", which cannot be expressed: a warning lists these.
    """
    sp = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.sentencepiece_model)
    scores = {piece.text: piece.score for piece in model.pieces}
    numbers, inside = [], []
    for piece in filter(has_number_comma, tokenizer.pieces):
        body = piece[:-1].replace(SPIECE_UNDERLINE, "")
        apart = math.fsum([*map(sp.get_score, sp.encode(body)), scores.get(",", 0.0)])
        if not piece.startswith(SPIECE_UNDERLINE):
            inside.append(piece)
        elif scores[piece] > apart:
            numbers.append(body)
        scores[piece] = min(scores[piece], apart - _MARGIN)
    if inside:
        text = "%d pieces have other ids inside of words in tokenizer.json: %s"
        logging.warning(text, len(inside), files.quote_all(inside))
    return [(piece, scores[piece]) for piece in tokenizer.pieces], sorted(numbers)
