"""The tokenizer of a vocabulary in a Hugging Face folder, with the options beside it.

It is the one that `AutoTokenizer` of `transformers` 5 makes of a folder without `tokenizer.json`,
computed by the same library.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from albert_tf import files
from albert_tf.files import JsonObject
from albert_tf.model.tokenization.full_tokenizer import (
    SENTENCEPIECE_NAME,
    WORDPIECE_NAME,
    FullTokenizer,
)
from albert_tf.model.tokenization.huggingface_files import (
    ALBERT,
    BERT,
    NAMED_TOKENS,
    TOKENIZER_FILE,
    class_of,
)
from albert_tf.model.tokenization.sentencepiece_encoder import (
    CONTROL,
    SPIECE_UNDERLINE,
    UNIGRAM,
    USER_DEFINED,
    read_sentencepiece_file,
)
from albert_tf.model.tokenization.tokenizer import SPECIAL_TOKENS
from albert_tf.model.tokenization.wordpiece_encoder import UNKNOWN_TOKEN


def build_from_vocabulary(path: str, options: JsonObject) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a vocabulary with the options in `tokenizer_config.json`.

    Args:
        path: path of `tokenizer_config.json`.
        options: what `read_options` returns of it.

    Raises:
        FileNotFoundError: there is no vocabulary beside the options.
        ValueError: the vocabulary is damaged, or belongs to another class.
    """
    folder = os.path.dirname(path)
    for name, kind, build in (
        (SENTENCEPIECE_NAME, ALBERT, _build_albert),
        (WORDPIECE_NAME, BERT, _build_bert),
    ):
        vocabulary = os.path.join(folder, name)
        if not files.exists(vocabulary):
            continue
        if class_of(options) not in ("", kind):
            raise ValueError(
                f"{path}: tokenizer_class={options['tokenizer_class']!r} with {name} is not "
                f"supported; expected {kind!r}, or a {TOKENIZER_FILE}"
            )
        try:
            return build(vocabulary, options)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: not the options of {vocabulary}: {error}") from None
    raise FileNotFoundError(
        f"{path}: no vocabulary next to it; expected {SENTENCEPIECE_NAME} or {WORDPIECE_NAME}"
    )


def _build_albert(path: str, options: JsonObject) -> tokenizers.Tokenizer:
    """Returns ALBERT's tokenizer for a SentencePiece model."""
    encoded = FullTokenizer(spm_model_file=path)  # checks the file
    model = read_sentencepiece_file(encoded.sentencepiece_model)
    if model.model_type != UNIGRAM:
        raise ValueError(f"{path}: expected a unigram model, as ALBERT has; it is of another type")
    steps: list[normalizers.Normalizer] = [
        normalizers.Replace("``", '"'),
        normalizers.Replace("''", '"'),
    ]
    if not options.get("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if options.get("do_lower_case", True):
        steps.append(normalizers.Lowercase())
    if charsmap := model.precompiled_charsmap:
        steps.append(normalizers.Precompiled(charsmap))
    own_tokens = [
        {"content": piece.text, "normalized": False, "special": piece.kind == CONTROL}
        for piece in model.pieces
        if piece.kind in (CONTROL, USER_DEFINED)
    ]
    underlines = pre_tokenizers.Metaspace(replacement=SPIECE_UNDERLINE, prepend_scheme="always")
    scores = [(piece.text, piece.score) for piece in model.pieces]
    return build_tokenizer(
        models.Unigram(scores, encoded.unk_id, False),
        normalizers.Sequence(steps),
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), underlines]),
        _tokens(own_tokens, options),
    )


def _build_bert(path: str, options: JsonObject) -> tokenizers.Tokenizer:
    """Returns BERT's tokenizer for a vocabulary, whose ids are the numbers of its lines."""
    lines = files.read_text(path).removesuffix("\n").split("\n")
    vocab = {line.rstrip(): number for number, line in enumerate(lines)}
    normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=options.get("tokenize_chinese_chars", True),
        strip_accents=options.get("strip_accents"),
        lowercase=options.get("do_lower_case", True),
    )
    model = models.WordPiece(vocab, unk_token=UNKNOWN_TOKEN)
    pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return build_tokenizer(model, normalizer, pre_tokenizer, _tokens([], options))


def _tokens(own_tokens: list[JsonObject], options: JsonObject) -> Iterator[AddedToken]:
    """Yields the tokens that a vocabulary or its options name.

    Like `transformers`, omits those of the vocabulary if the options have a list of their own.
    """
    listed = options.get("extra_special_tokens") or options.get("additional_special_tokens")
    special = list(map(options.get, NAMED_TOKENS))
    if isinstance(listed, list):
        own_tokens, special = [], listed + special
    recorded = options.get("added_tokens_decoder", {})
    tokens = [*own_tokens, *(recorded[number] for number in sorted(recorded, key=int))]
    for token in filter(None, special):
        fields = token if isinstance(token, dict) else {"content": token}
        tokens.append({"normalized": False, **fields, "special": True})
    unique: dict[str, JsonObject] = {}
    for token in tokens:
        unique.setdefault(token["content"], token)
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    for content, token in unique.items():
        yield AddedToken(content, **{name: token[name] for name in names if name in token})


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
