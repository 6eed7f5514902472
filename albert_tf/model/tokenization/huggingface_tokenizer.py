"""Tokenizers in folders that Hugging Face's `transformers` has written.

    tokenizer = HuggingFaceTokenizer("model/tokenizer.json")
    tokenizer.encode_with_offsets("The river")

They are computed by the library `tokenizers`, so that the ids are those that the model was trained
with.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import string
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.files import JsonObject
from albert_tf.model.tokenization.characters import is_combining
from albert_tf.model.tokenization.huggingface_files import (
    ALBERT,
    BERT,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    class_of,
    has_segments_of,
    read_files,
    read_options,
)
from albert_tf.model.tokenization.tokenizer import SPECIAL_TOKENS, Tokenizer
from albert_tf.model.tokenization.wordpiece_encoder import UNKNOWN_TOKEN

if TYPE_CHECKING:  # what needs TensorFlow
    import tokenizers
    from tokenizers import normalizers


# Class → options by which it normalizes texts.
_OPTIONS = {
    ALBERT: ("do_lower_case", "keep_accents"),
    BERT: ("do_lower_case", "strip_accents", "tokenize_chinese_chars"),
}
_PROBE = "A"  # a text that every vocabulary has pieces for
_LONGEST = 256  # times as long as a text may be after its normalization; Unicode's NFKD needs 18

Index = NDArray[np.int32]


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
        self._path = path
        self.max_length = max_length
        with naming_library_errors(path):
            self._open(path)

    def _open(self, path: str) -> None:
        """Reads the files of the tokenizer, and finds out what it does."""
        self.vocabulary_files = read_files(path)
        options = read_options(path)
        if os.path.basename(path) == TOKENIZER_FILE:
            content = self.vocabulary_files[TOKENIZER_FILE]
            self._tokenizer = _parse(content, path)
        else:
            content = b"".join(self.vocabulary_files.values())
            from albert_tf.model.tokenization.huggingface_vocabulary import build_from_vocabulary

            self._tokenizer = build_from_vocabulary(path, options)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.vocab = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(self.vocab.values()) + 1
        self.pieces = [""] * self.vocab_size  # ids of repeated lines of a vocabulary have no piece
        for piece, piece_id in self.vocab.items():
            self.pieces[piece_id] = piece
        _check_growth(path, self._tokenizer.normalizer)
        self._find_special_tokens(path)
        self.has_segments = self._check_template(path) and has_segments_of(options)
        self.do_lower_case = self._check_normalization(path, options)
        if not self.has_segments:  # the same file makes other inputs with and without them
            content += b"0"
        self.checksum = hashlib.sha256(content).hexdigest()

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

    def _check_normalization(self, path: str, options: JsonObject) -> bool:
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
        for name in _OPTIONS.get(class_of(options), ()):
            said = options.get(name)
            if said is not None and bool(said) != found[name]:
                raise ValueError(
                    f"{path} contradicts {name}={json.dumps(said)} in {TOKENIZER_CONFIG_FILE}: "
                    "correct the one that is wrong"
                )
        return found["do_lower_case"]

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Returns the ids of each text, as `encode` does."""
        with naming_library_errors(self._path):
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
        encoded = self._encode(text)
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
        return list(self._encode(text).tokens)

    def _encode(self, text: str) -> tokenizers.Encoding:
        with naming_library_errors(self._path):
            return self._tokenizer.encode(text, add_special_tokens=False)


def _check_growth(path: str, normalizer: normalizers.Normalizer | None) -> None:
    """Raises ValueError if a normalizer makes a text hundreds of times as long.

    A step that replaces "a" by "aa" doubles a text: 28 of them do not end.
    """
    from tokenizers import normalizers

    described = [] if normalizer is None else list(_steps_of(json.loads(normalizer.__getstate__())))
    replacing = [step for step in described if step["type"] == "Replace"]
    if math.prod(map(_growth_of, replacing)) <= _LONGEST:
        return
    steps = [normalizers.Sequence([]) for _ in described]
    for step, content in zip(steps, described, strict=True):
        step.__setstate__(json.dumps(content).encode())
    texts = {text for step in replacing for text in (step["content"], *step["pattern"].values())}
    for text in sorted(texts | set(string.printable)):
        longer = text
        for step in steps:
            longer = step.normalize_str(longer)
            if len(longer) > _LONGEST * max(1, len(text)):
                raise ValueError(
                    f"{path}: its normalizer makes {files.quote(text)} more than {_LONGEST} times "
                    "as long: its steps replace what those before them have inserted"
                )


def _growth_of(step: JsonObject) -> float:
    """Returns how many times as long a text can become by a step that replaces a pattern."""
    content = len(step["content"])
    pattern = len(step["pattern"].get("String", ""))  # a regular expression may match nothing
    return max(1.0, content / pattern) if pattern else 1.0 + content


def _steps_of(normalizer: JsonObject) -> Iterator[JsonObject]:
    """Yields the steps of a normalizer in JSON, which may be a sequence of others."""
    if normalizer["type"] != "Sequence":
        yield normalizer
        return
    for step in normalizer["normalizers"]:
        yield from _steps_of(step)


def _require_library(path: str) -> None:
    try:
        import tokenizers  # noqa: F401 - is it installed?
    except ImportError:
        raise ValueError(
            f"{path} requires the package tokenizers: pip install 'albert-tf2[hf]'"
        ) from None


def _parse(content: bytes, path: str) -> tokenizers.Tokenizer:
    import tokenizers

    try:
        return tokenizers.Tokenizer.from_str(content.decode("utf-8"))
    except Exception as error:  # the library raises no other class
        raise ValueError(f"{path}: not a tokenizer of the library tokenizers: {error}") from None


_PANIC = "PanicException"  # of Rust, which is no `Exception`, and which the library does not export
# What the messages of the library have → what is wrong with the file.
_REASONS = {
    "Regex search error": "a regular expression in it takes too many steps for a text",
    "charsmap": "its precompiled_charsmap is damaged",
    "index": "a table in it is damaged, such as its precompiled_charsmap",  # out of bounds
}


@contextlib.contextmanager
def naming_library_errors(path: str) -> Iterator[None]:
    """Converts what the library raises to a ValueError with the file and what is wrong with it.

    Args:
        path: the file of the tokenizer.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != _PANIC and type(error) is not Exception:  # its other errors
            raise
        message = str(error)
        known = (reason for said, reason in _REASONS.items() if said in message)
        reason = next(known, "the library tokenizers cannot use it")
        raise ValueError(f"{path}: {reason} ({message})") from None
