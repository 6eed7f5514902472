"""Tokenizers in folders that Hugging Face's `transformers` has written.

    tokenizer = load_tokenizer("model/tokenizer.json")
    tokenizer.encode_with_offsets("The river")

`tokenizer.json` describes the whole way from text to ids. It is computed by the library
`tokenizers`, so that the ids are those that the model was trained with. Folders without that file
have a vocabulary (`spiece.model` or `vocab.txt`) and options in `tokenizer_config.json`, of which
the same library makes the tokenizer that `AutoTokenizer` of `transformers` 5 makes. An option that
would change the ids and is not supported is an error.

Like `tokenization`, this module does not import TensorFlow.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.model.tokenization import (
    SENTENCEPIECE_NAME,
    SPECIAL_TOKENS,
    SPIECE_UNDERLINE,
    UNKNOWN_TOKEN,
    WORDPIECE_NAME,
    FullTokenizer,
    Tokenizer,
)
from albert_tf.model.tokenization.characters import is_combining
from albert_tf.model.tokenization.sentencepiece_file import (
    CONTROL,
    UNIGRAM,
    USER_DEFINED,
    read_sentencepiece_file,
)

TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
_SPECIAL_FILE = "special_tokens_map.json"  # earlier than version 5
_ADDED_FILE = "added_tokens.json"  # token → id, earlier than version 4.34
_ALBERT, _BERT = "AlbertTokenizer", "BertTokenizer"
_SEGMENTS = "token_type_ids"
# Class → options by which it normalizes texts.
_OPTIONS = {
    _ALBERT: ("do_lower_case", "keep_accents"),
    _BERT: ("do_lower_case", "strip_accents", "tokenize_chinese_chars"),
}
_NAMED_TOKENS = tuple(f"{name}_token" for name in ("pad", "unk", "cls", "sep", "mask"))
# Option → its only supported value. The second ones are part of tokenizer.json, where there is one.
_REQUIRED = {"truncation_side": "right", "padding_side": "right", "split_special_tokens": False}
_REQUIRED_OF_VOCABULARIES = {
    "remove_space": True,
    "sp_model_kwargs": {},  # sampling
    "never_split": [],
    "do_basic_tokenize": True,
    "add_prefix_space": True,
}
_PROBE = "A"  # a text that every vocabulary has pieces for

Values = dict[str, Any]
Index = NDArray[np.int32]


def load_tokenizer(
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    spm_model_file: str | None = None,
    max_length: int = 512,
) -> Tokenizer:
    """Returns the tokenizer of a vocabulary.

    Args:
        vocab_file: WordPiece vocabulary; or `tokenizer.json` of a Hugging Face folder, or the
            `tokenizer_config.json` of one that has `spiece.model` or `vocab.txt` instead.
        do_lower_case: whether to lowercase; None for what the files of a Hugging Face folder say,
            and True for a vocabulary.
        spm_model_file: SentencePiece model; takes precedence over `vocab_file`.
        max_length: default of `max_length` in calls.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is damaged, not supported or contradicts `do_lower_case`, or the library
            `tokenizers` is not installed.
    """
    if spm_model_file is None and vocab_file is not None and is_tokenizer_file(vocab_file):
        tokenizer = HuggingFaceTokenizer(vocab_file, max_length)
        if do_lower_case not in (None, tokenizer.do_lower_case):
            raise ValueError(
                f"do_lower_case={do_lower_case}: the tokenizer in {vocab_file} "
                f"{'lowercases' if tokenizer.do_lower_case else 'does not lowercase'} texts. Leave "
                "the option out, or give a vocabulary of its own as spm_model_file or vocab_file"
            )
        return tokenizer
    return FullTokenizer(vocab_file, do_lower_case is not False, spm_model_file, max_length)


def is_tokenizer_file(path: str) -> bool:
    """Returns whether the path is that of a Hugging Face folder's tokenizer."""
    return os.path.basename(path) in (TOKENIZER_FILE, TOKENIZER_CONFIG_FILE)


def list_files(path: str) -> list[str]:
    """Returns the files of the tokenizer with this file: for a vocabulary, just itself.

    The last one makes a folder with the others one with a tokenizer.
    """
    if not is_tokenizer_file(path):
        return [path]
    folder = os.path.dirname(path)
    names = [TOKENIZER_CONFIG_FILE, _SPECIAL_FILE, _ADDED_FILE, SENTENCEPIECE_NAME, WORDPIECE_NAME]
    if os.path.basename(path) == TOKENIZER_FILE:
        names = [TOKENIZER_CONFIG_FILE, TOKENIZER_FILE]
    paths = [os.path.join(folder, name) for name in names]
    return list(filter(files.exists, paths))


def checksum_of(path: str) -> str:
    """Returns the `checksum` of the tokenizer with this file, in hexadecimal.

    Raises:
        OSError, ValueError: as in `load_tokenizer`, for a Hugging Face tokenizer.
    """
    if is_tokenizer_file(path):
        return HuggingFaceTokenizer(path).checksum
    return hashlib.sha256(files.read_bytes(path)).hexdigest()


class HuggingFaceTokenizer(Tokenizer):
    """The tokenizer of a Hugging Face folder, computed by the library `tokenizers`.

    Special tokens in a text, such as "[SEP]", are recognized, as they are by `transformers`.

    Args:
        path: path of `tokenizer.json`, or of the `tokenizer_config.json` beside a vocabulary.
        max_length: default of `max_length` in calls.

    Raises:
        FileNotFoundError: there is no such file, or no vocabulary beside it.
        ValueError: the library `tokenizers` is not installed, a file is damaged, or the tokenizer
            is not supported; the message names the option.
    """

    def __init__(self, path: str, max_length: int = 512) -> None:
        _require_library(path)
        self.max_length = max_length
        self.vocabulary_files = {os.path.basename(p): files.read_bytes(p) for p in list_files(path)}
        config = _read_config(path)
        if os.path.basename(path) == TOKENIZER_FILE:
            content = self.vocabulary_files[TOKENIZER_FILE]
            self._tokenizer = _parse(content, path)
        else:
            content = b"".join(self.vocabulary_files.values())
            self._tokenizer = _build(path, config)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.vocab = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(self.vocab.values()) + 1
        self.pieces = [""] * self.vocab_size  # ids of repeated lines of a vocabulary have no piece
        for piece, piece_id in self.vocab.items():
            self.pieces[piece_id] = piece
        self._find_special_tokens(path)
        self.has_segments = self._check_template(path) and _has_segments(config)
        self.do_lower_case = self._check_normalization(path, config)
        # The same file makes other inputs with and without segments.
        self.checksum = hashlib.sha256(content + b"0" * (not self.has_segments)).hexdigest()

    def _find_special_tokens(self, path: str) -> None:
        model = json.loads(self._tokenizer.to_str())["model"]
        self.is_sentencepiece = model["type"] != "WordPiece"
        unknown = model.get("unk_id")
        if unknown is None:
            unknown = self.vocab.get(model.get("unk_token") or UNKNOWN_TOKEN)
        missing = [token for token in SPECIAL_TOKENS if token not in self.vocab]
        if missing or unknown is None:
            lacking = ", ".join(missing or ["for unknown words"])
            raise ValueError(f"{path}: this tokenizer lacks the tokens {lacking}")
        self.unk_id = unknown
        self.cls_id, self.sep_id, self.mask_id = (self.vocab[token] for token in SPECIAL_TOKENS)

    def _check_template(self, path: str) -> bool:
        """Returns whether second texts have segment 1, after checking where special tokens are.

        Raises:
            ValueError: a text is not surrounded by [CLS] and [SEP], or a pair not separated by one.
        """
        (ids,) = self.encode_batch([_PROBE])
        pair = self._tokenizer.encode(_PROBE, _PROBE)
        for encoded, second in ((self._tokenizer.encode(_PROBE), []), (pair, ids)):
            expected, _ = self.join(ids, second)
            if encoded.ids != expected:
                found, wanted = (
                    " ".join(self.convert_ids_to_tokens(row)) for row in (encoded.ids, expected)
                )
                raise ValueError(
                    f"{path}: its template (post_processor) makes {found!r} of {_PROBE!r}; only "
                    f"that of ALBERT is supported: {wanted!r}"
                )
        return bool(pair.type_ids == [0] * (len(ids) + 2) + [1] * (len(ids) + 1))

    def _check_normalization(self, path: str, config: Values) -> bool:
        """Returns whether texts are lowercased.

        Raises:
            ValueError: texts are normalized otherwise than `tokenizer_config.json` says.
        """
        normalizer = self._tokenizer.normalizer

        def is_kept(text: str) -> bool:
            return normalizer is None or text in normalizer.normalize_str(text)

        found = {
            "do_lower_case": not is_kept("A"),
            "keep_accents": is_kept("é"),
            "strip_accents": not is_kept("é"),
            "tokenize_chinese_chars": not is_kept("中国"),
        }
        for name in _OPTIONS.get(_kind(config), ()):
            said = config.get(name)
            if said is not None and bool(said) != found[name]:
                raise ValueError(
                    f"{path} contradicts {name}={json.dumps(said)} in {TOKENIZER_CONFIG_FILE}: "
                    "correct the one that is wrong"
                )
        return found["do_lower_case"]

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Returns the ids of each text, as `encode` does."""
        encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [text.ids for text in encoded]

    def encode_and_spell(
        self, texts: Iterable[str]
    ) -> tuple[list[list[int]], dict[int, list[str]]]:
        """Returns the ids of each text, and the spelling of unknown pieces."""
        texts = list(texts)
        ids = self.encode_batch(texts)
        if not self.is_sentencepiece:
            return ids, {}
        unknown = (row for row, row_ids in enumerate(ids) if self.unk_id in row_ids)
        return ids, {row: self.tokenize(texts[row]) for row in unknown}

    def encode_masked(self, text: str) -> tuple[list[int], list[int]]:
        """Returns the ids of a text in which "[MASK]" is the mask token, and its positions."""
        ids = self.encode(text)
        return ids, [place for place, token_id in enumerate(ids) if token_id == self.mask_id]

    def encode_with_offsets(self, text: str) -> tuple[list[int], Index, Index]:
        """Returns the ids of a text, and where their characters begin and end in it, int32 [T].

        Spaces before a word are not part of its piece, and accents that normalization removes are
        part of the piece before them.
        """
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        begins, ends = np.array(encoded.offsets, np.int32).reshape(-1, 2).T
        following = [*begins[1:], len(text)]
        for place, (begin, end) in enumerate(encoded.offsets):
            word = text[begin:end]
            begins[place] += len(word) - len(word.lstrip())
            while end < following[place] and is_combining(text[end]):
                end += 1
            ends[place] = end
        return encoded.ids, begins, ends

    def tokenize_preprocessed(self, text: str) -> list[str]:
        """Returns the pieces of a text."""
        tokens: list[str] = self._tokenizer.encode(text, add_special_tokens=False).tokens
        return tokens


def _require_library(path: str) -> None:
    try:
        import tokenizers  # noqa: F401 - is it installed?
    except ImportError:
        raise ValueError(
            f"{path} requires the package tokenizers: pip install 'albert-tf2[hf]'"
        ) from None


def _parse(content: bytes, path: str) -> Any:
    import tokenizers

    try:
        return tokenizers.Tokenizer.from_str(content.decode("utf-8"))
    except Exception as error:  # the library raises no other class
        raise ValueError(f"{path}: not a tokenizer of the library tokenizers: {error}") from None


def _read_config(path: str) -> Values:
    """Returns the options of `tokenizer_config.json` and its companions, after checking them.

    Raises:
        ValueError: an option is not supported.
    """
    folder = os.path.dirname(path)

    def read(name: str) -> Values:
        place = os.path.join(folder, name)
        return files.read_json(place) if files.exists(place) else {}

    config = read(TOKENIZER_CONFIG_FILE)
    required = dict(_REQUIRED)
    if os.path.basename(path) == TOKENIZER_CONFIG_FILE:
        required |= _REQUIRED_OF_VOCABULARIES
        if "added_tokens_decoder" not in config:
            named = read(_SPECIAL_FILE)
            config |= {name: named[name] for name in _NAMED_TOKENS if name in named}
            config["added_tokens_decoder"] = {
                str(number): {"content": token} for token, number in read(_ADDED_FILE).items()
            }
    for name, expected in required.items():
        value = config.get(name)
        if value is not None and value != expected:
            raise ValueError(
                f"{os.path.join(folder, TOKENIZER_CONFIG_FILE)}: {name}={json.dumps(value)} is not "
                f"supported; expected {json.dumps(expected)}"
            )
    return config


def _kind(config: Mapping[str, Any]) -> str:
    """Returns the class of the tokenizer, of which there were a slow and a fast version."""
    return str(config.get("tokenizer_class") or "").removesuffix("Fast")


def _has_segments(config: Mapping[str, Any]) -> bool:
    """Returns whether the model was trained with `token_type_ids`.

    In version 5 of `transformers` (which writes `backend`), only BERT's tokenizer has them, unless
    `model_input_names` says otherwise; in earlier versions all had them.
    """
    names = config.get("model_input_names")
    if isinstance(names, list):
        return _SEGMENTS in names
    return "backend" not in config or _kind(config) == _BERT


def _build(path: str, config: Mapping[str, Any]) -> Any:
    """Returns the tokenizer of a vocabulary with the options in `tokenizer_config.json`.

    Raises:
        FileNotFoundError: there is no vocabulary beside the options.
        ValueError: the vocabulary is damaged, or belongs to another class.
    """
    folder = os.path.dirname(path)
    for name, kind, build in (
        (SENTENCEPIECE_NAME, _ALBERT, _build_unigram),
        (WORDPIECE_NAME, _BERT, _build_wordpiece),
    ):
        vocabulary = os.path.join(folder, name)
        if not files.exists(vocabulary):
            continue
        if _kind(config) not in ("", kind):
            raise ValueError(
                f"{path}: tokenizer_class={config['tokenizer_class']!r} with {name} is not "
                f"supported; expected {kind!r}, or a {TOKENIZER_FILE}"
            )
        try:
            tokenizer, added = build(vocabulary, config)
            _add_tokens(tokenizer, added, config)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: not the options of {vocabulary}: {error}") from None
        return tokenizer
    raise FileNotFoundError(
        f"{path}: no vocabulary beside it; expected {SENTENCEPIECE_NAME} or {WORDPIECE_NAME}"
    )


def _build_unigram(path: str, config: Mapping[str, Any]) -> tuple[Any, list[Values]]:
    """Returns ALBERT's tokenizer for a SentencePiece model, and its added tokens."""
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers

    encoded = FullTokenizer(spm_model_file=path)  # checks the file
    model = read_sentencepiece_file(encoded.sentencepiece_model)
    if model.model_type != UNIGRAM:
        raise ValueError(f"{path}: expected a unigram model, as ALBERT has; it is of another type")
    scores = [(piece.text, piece.score) for piece in model.pieces]
    tokenizer = tokenizers.Tokenizer(models.Unigram(scores, encoded.unk_id, False))
    steps: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not config.get("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if config.get("do_lower_case", True):
        steps.append(normalizers.Lowercase())
    if charsmap := model.precompiled_charsmap:
        steps.append(normalizers.Precompiled(charsmap))
    tokenizer.normalizer = normalizers.Sequence(steps)
    underlines = pre_tokenizers.Metaspace(replacement=SPIECE_UNDERLINE, prepend_scheme="always")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), underlines]
    )
    added = [
        {"content": piece.text, "normalized": False, "special": piece.kind == CONTROL}
        for piece in model.pieces
        if piece.kind in (CONTROL, USER_DEFINED)
    ]
    return tokenizer, added


def _build_wordpiece(path: str, config: Mapping[str, Any]) -> tuple[Any, list[Values]]:
    """Returns BERT's tokenizer for a vocabulary, whose ids are the numbers of its lines."""
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers

    lines = files.read_text(path).removesuffix("\n").split("\n")
    vocab = {line.rstrip(): number for number, line in enumerate(lines)}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=UNKNOWN_TOKEN))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
        strip_accents=config.get("strip_accents"),
        lowercase=config.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer, []


def _add_tokens(tokenizer: Any, added: list[Values], config: Mapping[str, Any]) -> None:
    """Adds the tokens that a vocabulary or its options name, and ALBERT's template.

    Like `transformers`, omits those of the vocabulary if the options have a list of their own.
    """
    from tokenizers import AddedToken, processors

    listed = config.get("extra_special_tokens") or config.get("additional_special_tokens")
    special = list(map(config.get, _NAMED_TOKENS))
    if isinstance(listed, list):
        added, special = [], listed + special
    recorded = config.get("added_tokens_decoder", {})
    tokens = [*added, *(recorded[number] for number in sorted(recorded, key=int))]
    for token in filter(None, special):
        fields = token if isinstance(token, dict) else {"content": token}
        tokens.append({"normalized": False, **fields, "special": True})
    unique: dict[str, Values] = {}
    for token in tokens:
        unique.setdefault(token["content"], token)
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    for content, token in unique.items():
        options = {name: token[name] for name in names if name in token}
        tokenizer.add_tokens([AddedToken(content, **options)])
    cls, sep, _ = SPECIAL_TOKENS
    ids = [(token, tokenizer.token_to_id(token)) for token in (cls, sep)]
    if None not in dict(ids).values():  # otherwise they are found missing
        single = f"{cls}:0 $A:0 {sep}:0"
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single, pair=f"{single} $B:1 {sep}:1", special_tokens=ids
        )
