"""Puts together a tokenizer of Hugging Face's library `tokenizers`, which is an extra."""

from __future__ import annotations

from collections.abc import Iterable

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from albert_tf.model.tokenization.special_tokens import SPECIAL_TOKENS


def build_tokenizer(
    model: models.Model,
    normalizer: normalizers.Normalizer,
    pre_tokenizer: pre_tokenizers.PreTokenizer,
    tokens: Iterable[AddedToken],
    decoder: decoders.Decoder | None = None,
) -> tokenizers.Tokenizer:
    """Returns a tokenizer with ALBERT's template, `[CLS] a [SEP]` and `[CLS] a [SEP] b [SEP]`.

    Args:
        model: cuts words into pieces.
        normalizer: what a text goes through first.
        pre_tokenizer: splits a text into words.
        tokens: special tokens, and others that are not cut; those that the vocabulary lacks get a
            new id. If [CLS] or [SEP] is not among them and not in the vocabulary, there is no
            template.
        decoder: joins pieces to a text.
    """
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    if decoder is not None:
        tokenizer.decoder = decoder
    for token in tokens:
        tokenizer.add_tokens([token])
    cls, sep, _ = SPECIAL_TOKENS
    ids = [(token, tokenizer.token_to_id(token)) for token in (cls, sep)]
    if all(token_id is not None for _, token_id in ids):
        single = f"{cls}:0 $A:0 {sep}:0"
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single, pair=f"{single} $B:1 {sep}:1", special_tokens=ids
        )
    return tokenizer
