"""Writes `tokenizer.json`, a tokenizer in the format of Hugging Face's `tokenizers`.

The file describes the pipeline from text to ids, which follows `tokenization`: normalization with
regular expressions that use Python's character classes, then SentencePiece's unigram model or
WordPiece. Writing the file needs no additional package, and `transformers` can read it without
protobuf or tiktoken. The ids equal those of `FullTokenizer`, except for the differences listed in
docs/differences.md.

The normalizers process a text in parts, split at special tokens such as `[MASK]`.
"""

from __future__ import annotations

import base64
import math
import re
from typing import Any

import sentencepiece

from albert_tf import tokenization
from albert_tf.huggingface_tokenizer import TOKENIZER_FILE
from albert_tf.tokenization import SPIECE_UNDERLINE, FullTokenizer, character_class

_UNIGRAM = 1  # SentencePiece's model type
_FINAL_SIGMA = "\u03c2"
_SIGMA = "\u03a3"
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))  # code points of control characters
_MARGIN = 0.01  # by which the score of a suppressed piece is lower than that of its parts

Step = dict[str, Any]  # a component of the pipeline: its "type" and arguments


def tokenizer_json(tokenizer: FullTokenizer) -> dict[str, Any]:
    """Returns the content of `tokenizer.json` for a vocabulary.

    Raises:
        ValueError: the format does not support the SentencePiece model. The message says why.
    """
    steps = _sentencepiece_steps(tokenizer) if tokenizer.is_sentencepiece else _wordpiece(tokenizer)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _special_symbols(tokenizer),
        **steps,
        "post_processor": _special_ids_around_texts(tokenizer),
    }


def _special_symbols(tokenizer: FullTokenizer) -> list[dict[str, Any]]:
    """Returns the special tokens, which are recognized in texts, as required for `[MASK]`."""
    ids = {tokenizer.pad_id, tokenizer.unk_id}
    ids |= {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}
    return [
        {
            "id": token_id,
            "content": tokenizer.pieces[token_id],
            "single_word": False,
            # A space before [MASK] is part of the masked word.
            "lstrip": tokenizer.is_sentencepiece and token_id == tokenizer.mask_id,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token_id in sorted(ids)
    ]


def _special_ids_around_texts(tokenizer: FullTokenizer) -> Step:
    """Returns the post-processor that adds special tokens: `[CLS] a [SEP]`, `… b [SEP]`."""
    ids = {tokenizer.pieces[i]: i for i in (tokenizer.cls_id, tokenizer.sep_id)}
    cls, sep = ids

    def symbol(name: str, segment: int) -> Step:
        return {"SpecialToken": {"id": name, "type_id": segment}}

    first = [symbol(cls, 0), {"Sequence": {"id": "A", "type_id": 0}}, symbol(sep, 0)]
    second = [{"Sequence": {"id": "B", "type_id": 1}}, symbol(sep, 1)]
    return {
        "type": "TemplateProcessing",
        "single": first,
        "pair": first + second,
        "special_tokens": {
            name: {"id": name, "ids": [token_id], "tokens": [name]}
            for name, token_id in ids.items()
        },
    }


def _replace(pattern: str, content: str) -> Step:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _split(pattern: str, behavior: str) -> Step:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def _in_sequence(normalizers: list[Step], pre_tokenizers: list[Step]) -> dict[str, Step]:
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
    }


def _is_cased(char: str) -> bool:
    return (char + _SIGMA).lower().endswith(_FINAL_SIGMA)


def _is_case_ignorable(char: str) -> bool:
    return ("A" + char + _SIGMA).lower().endswith(_FINAL_SIGMA) and not _is_cased(char)


def _lower() -> list[Step]:
    """Returns the steps of `str.lower`; `Lowercase` by itself ignores the context of Σ."""
    cased = character_class(_is_cased)
    ignored = character_class(_is_case_ignorable)
    is_final = f"(?<={cased}|{cased}{ignored}){_SIGMA}(?!{ignored}*{cased})"
    return [_replace(is_final, _FINAL_SIGMA), {"type": "Lowercase"}]


def _wordpiece(tokenizer: FullTokenizer) -> dict[str, Step]:
    """Returns the steps of `BasicTokenizer` and `WordpieceTokenizer`."""
    normalizers = [_replace(character_class(tokenization.is_dropped), "")]
    if tokenizer.do_lower_case:
        marks = character_class(tokenization.is_mark)
        normalizers += [*_lower(), {"type": "NFD"}, _replace(marks, "")]
    return {
        **_in_sequence(
            normalizers,
            [
                _split(character_class(str.isspace) + "+", "Removed"),
                _split(character_class(tokenization.is_cjk), "Isolated"),
                _split(character_class(tokenization.is_punctuation), "Isolated"),
            ],
        ),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": tokenization.UNKNOWN_TOKEN,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": tokenization.MAX_INPUT_CHARS_PER_WORD,
            "vocab": tokenizer.vocab,
        },
    }


def _sentencepiece_steps(tokenizer: FullTokenizer) -> dict[str, Step]:
    """Returns the steps of `preprocess_text`, of SentencePiece and of `encode_pieces`."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.sentencepiece_model)
    _check_sentencepiece(model)
    vocabulary, numbers = _scores(tokenizer, model)
    # Adds "▁" at the start of a text, but not after a special token: "[MASK]." has no space there.
    underlines = {
        "type": "Metaspace",
        "replacement": SPIECE_UNDERLINE,
        "prepend_scheme": "first",
        "split": True,
    }
    pre_tokenizers = [underlines]
    if numbers:
        words = "|".join(map(re.escape, numbers))
        pre_tokenizers.append(_split(rf"^{SPIECE_UNDERLINE}(?:{words}),(?!\d)", "Isolated"))
    return {
        **_in_sequence(_sentencepiece_normalizers(tokenizer, model), pre_tokenizers),
        "decoder": underlines,
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": vocabulary,
            "byte_fallback": False,
        },
    }


def _check_sentencepiece(model: Any) -> None:
    trainer = model.trainer_spec
    normalizer = model.normalizer_spec
    conditions = {
        "it is not a unigram model": trainer.model_type == _UNIGRAM,
        "it uses byte fallback": not trainer.byte_fallback,
        'it appends "▁" to words': not trainer.treat_whitespace_as_suffix,
        "it does not collapse spaces": normalizer.remove_extra_whitespaces,
        'it does not prepend "▁" to texts': normalizer.add_dummy_prefix,
        'it does not replace spaces by "▁"': normalizer.escape_whitespaces,
    }
    for obstacle, is_fulfilled in conditions.items():
        if not is_fulfilled:
            raise ValueError(
                f"{TOKENIZER_FILE} does not support this SentencePiece model: {obstacle}"
            )


def _sentencepiece_normalizers(tokenizer: FullTokenizer, model: Any) -> list[Step]:
    """Returns the steps of `preprocess_text` and of the model's own normalization."""
    combining = character_class(tokenization.is_combining)
    steps = [
        _replace(character_class(str.isspace) + "+", " "),
        {"type": "NFKD"},
        # "▁" is prepended to the first character of a text, which may be removed: a space replaces
        # it.
        _replace(f"^{combining}+", " "),
        _replace(combining, ""),
    ]
    if tokenizer.do_lower_case:
        steps += _lower()
    normalization = model.normalizer_spec.precompiled_charsmap
    if normalization:
        sp = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.sentencepiece_model)
        dropped = "".join(rf"\x{{{code:x}}}" for code in _CONTROLS if not sp.encode(chr(code)))
        if dropped:
            steps.append(_replace(f"^[{dropped}]+", " "))
        # NFC first, because `Precompiled` does not compose Hangul syllables.
        charsmap = base64.b64encode(normalization).decode()
        steps += [{"type": "NFC"}, {"type": "Precompiled", "precompiled_charsmap": charsmap}]
    return [*steps, _replace(" {2,}", " "), _replace(" +$", "")]


def _scores(tokenizer: FullTokenizer, model: Any) -> tuple[list[list[Any]], list[str]]:
    """Returns the pieces with their scores, and the numbers that are split from a comma.

    `encode_pieces` splits pieces such as "▁1999,", so they get a score too low to be selected.
    Where the model would select such a piece, the text is split after the comma, unless a digit
    follows: then another piece such as "▁10,000" may have the better score.
    """
    sp = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.sentencepiece_model)
    scores = {piece.piece: float(piece.score) for piece in model.pieces}
    numbers = []
    for piece in filter(tokenization.has_number_comma, tokenizer.pieces):
        body = piece[:-1].replace(SPIECE_UNDERLINE, "")
        apart = math.fsum([*map(sp.get_score, sp.encode(body)), scores.get(",", 0.0)])
        if scores[piece] > apart and piece.startswith(SPIECE_UNDERLINE):
            numbers.append(body)
        scores[piece] = min(scores[piece], apart - _MARGIN)
    return [[piece, scores[piece]] for piece in tokenizer.pieces], sorted(numbers)
