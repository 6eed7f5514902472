"""What all tokenizers have in common: texts to the model's inputs, and ids back to text."""

from __future__ import annotations

import abc
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.model.tokenization.sentencepiece_encoder import SPIECE_UNDERLINE

if TYPE_CHECKING:
    import tensorflow as tf

# The special tokens that ALBERT's vocabularies have.
MASK_TOKEN = "[MASK]"
SPECIAL_TOKENS = ("[CLS]", "[SEP]", MASK_TOKEN)
PAD_ID = 0  # the official programs pad with 0 regardless of the vocabulary
# Values of arguments of a tokenizer's call, which are those of transformers.
CHOICES = {
    "padding": (True, "longest", "max_length"),
    "truncation": (True, False, "longest_first"),
    "return_tensors": (None, "np", "tf"),
}
# Spaces that detokenization removes: next to Chinese and full-width characters, and before
# punctuation that follows a word.
_ADDED_SPACE = re.compile(
    r" (?=[\u3000-\u303f\u3400-\u9fff\uf900-\ufaff\uff00-\uffef.,;:!?])"
    r"|(?<=[\u3000-\u303f\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]) "
)


def truncated_lengths(first: int, second: int, max_tokens: int) -> tuple[int, int]:
    """Returns the lengths of a pair truncated to `max_tokens` (official `_truncate_seq_pair`).

    Tokens are removed one by one from the end of the longer text, or of the second if both are
    equally long.
    """
    if first + second <= max_tokens:
        return first, second
    if second <= max_tokens // 2:
        return max_tokens - second, second
    if first <= max_tokens - max_tokens // 2:
        return first, max_tokens - first
    return max_tokens - max_tokens // 2, max_tokens // 2


class Tokenizer(abc.ABC):
    """Base class of tokenizers: texts to the model's inputs, and ids back to text.

    Calling a tokenizer with texts returns a batch for the model; `encode` and `tokenize` return the
    ids and pieces of a single text without special tokens. All of them normalize the text first.

    Attributes:
        vocab: dict, piece → id.
        pieces: list, id → piece.
        vocab_size: number of ids; also the length of the tokenizer.
        is_sentencepiece: whether pieces mark a preceding space by "▁", rather than the continuation
            of a word by "##".
        do_lower_case: whether texts are lowercased.
        max_length: default of `max_length` in calls.
        cls_id, sep_id, mask_id, pad_id, unk_id: ids of the special tokens.
        has_segments: whether the second text of a pair has segment 1; otherwise it has segment 0,
            like the first.
        checksum: SHA-256 of the files, in hexadecimal.
        vocabulary_files: name → content of the files that a folder needs for the same tokenizer.
        save_pretrained: writes the tokenizer to a folder; only of those from `from_pretrained`.
    """

    vocab: dict[str, int]
    pieces: list[str]
    vocab_size: int
    is_sentencepiece: bool
    do_lower_case: bool
    max_length: int
    cls_id: int
    sep_id: int
    mask_id: int
    unk_id: int
    pad_id = PAD_ID
    has_segments = True
    checksum: str
    vocabulary_files: dict[str, bytes]
    save_pretrained: Callable[[files.PathLike], None]

    @abc.abstractmethod
    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Returns the ids of each text, as `encode` does."""

    @abc.abstractmethod
    def encode_and_spell(
        self, texts: Iterable[str]
    ) -> tuple[list[list[int]], dict[int, list[str]]]:
        """Returns the ids of each text, and the spelling of unknown pieces, which share one id.

        Returns:
            The ids of each text, as from `encode_batch`; and index of a text → its pieces, for all
            texts with unknown pieces, and perhaps for others. It is empty for WordPiece, where all
            unknown pieces are spelled `[UNK]`.
        """

    @abc.abstractmethod
    def encode_masked(self, text: str) -> tuple[list[int], list[int]]:
        """Returns the ids of a text in which "[MASK]" is the mask token, and its positions."""

    @abc.abstractmethod
    def tokenize_preprocessed(self, text: str) -> list[str]:
        """Returns the pieces of text that `preprocess` has normalized, like Google's `tokenize`."""

    def encode_preprocessed(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of texts that `preprocess` has normalized."""
        return [self.convert_tokens_to_ids(self.tokenize_preprocessed(text)) for text in texts]

    def preprocess(self, text: str) -> str:
        """Returns `text` as `tokenize_preprocessed` expects it."""
        return text

    def __len__(self) -> int:
        """Returns the number of pieces."""
        return self.vocab_size

    @property
    def cls_token(self) -> str:
        """The piece at the beginning of a sequence, "[CLS]"."""
        return self.pieces[self.cls_id]

    @property
    def sep_token(self) -> str:
        """The piece after each text, "[SEP]"."""
        return self.pieces[self.sep_id]

    @property
    def mask_token(self) -> str:
        """The piece of a token to predict, "[MASK]"."""
        return self.pieces[self.mask_id]

    @property
    def unk_token(self) -> str:
        """The piece of what the vocabulary does not have."""
        return self.pieces[self.unk_id]

    @property
    def pad_token(self) -> str:
        """The piece of padding."""
        return self.pieces[self.pad_id]

    def __repr__(self) -> str:
        """Returns a line with the size of the vocabulary, case and length."""
        return (
            f"<{type(self).__name__} of {self.vocab_size} pieces, "
            f"do_lower_case={self.do_lower_case}, max_length={self.max_length}>"
        )

    def __call__(
        self,
        texts: str | Sequence[str] | Sequence[Sequence[str]],
        text_pair: str | Sequence[str] | None = None,
        max_length: int | None = None,
        padding: bool | str = "longest",
        pad_to_multiple: int = 1,
        truncation: bool | str = True,
        return_tensors: str | None = None,
    ) -> dict[str, NDArray[np.int32] | tf.Tensor]:
        """Returns the model's inputs for a batch of texts or text pairs.

        A row is `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, truncated as in Google's fine-tuning
        programs: the longer text of a pair is truncated first. An empty second text is treated as
        missing.

            >>> tokenizer("The river")["input_ids"].shape
            (1, 4)
            >>> batch = tokenizer(["The river", "A boat at sea"], max_length=5)
            >>> batch["input_mask"]
            array([[1, 1, 1, 1, 0],
                   [1, 1, 1, 1, 1]], dtype=int32)

        Args:
            texts: a text, a list of texts, or a list of text pairs (a, b).
            text_pair: the second text, or a list with one for each of `texts`.
            max_length: maximum length of a row with special tokens; None for `self.max_length`.
            padding: "longest" or True pads to the longest row, "max_length" to `max_length`.
            pad_to_multiple: with "longest", rounds the length up to a multiple of this, which
                limits the number of different shapes.
            truncation: True or "longest_first" truncates longer rows; False refuses them.
            return_tensors: "tf" for tensors, "np" or None for arrays.

        Returns:
            A dict of `input_ids`, `input_mask` (the attention mask, 1 for tokens and 0 for padding)
            and `segment_ids` (1 for the second text and its `[SEP]`), int32 [B, S] each.

        Raises:
            ValueError: an input is not a text, `text_pair` and `texts` differ in length, a row is
                too long and `truncation` is False, or another argument is invalid.
        """
        limit = self.max_length if max_length is None else max_length
        _check_choices(padding=padding, truncation=truncation, return_tensors=return_tensors)
        if limit < 3:
            raise ValueError(f"max_length={limit}: expected 3 or more")
        rows = self.sequences(texts, text_pair, limit if truncation else sys.maxsize)
        longest = max((len(ids) for ids, _ in rows), default=0)
        if longest > limit:
            raise ValueError(
                f"a row has {longest} tokens with the special ones, more than max_length={limit}: "
                "pass truncation=True to cut it"
            )
        length = min(-(-longest // pad_to_multiple) * pad_to_multiple, limit)
        padded = _pad(rows, limit if padding == "max_length" else length)
        batch = dict(zip(("input_ids", "input_mask", "segment_ids"), padded, strict=True))
        if return_tensors == "tf":
            import tensorflow as tf

            return {name: tf.constant(values) for name, values in batch.items()}
        return batch

    def sequences(
        self,
        texts: str | Sequence[str] | Sequence[Sequence[str]],
        text_pair: str | Sequence[str] | None,
        max_length: int,
    ) -> list[tuple[list[int], int]]:
        """Returns the rows of a batch without padding: ids, and the number of ids in segment 0.

        Args:
            texts: as in `__call__`.
            text_pair: as in `__call__`.
            max_length: maximum length of a row including special tokens.
        """
        return self.pair_sequences(*split_pairs(texts, text_pair), max_length)

    def pair_sequences(
        self, firsts: Sequence[str], seconds: Sequence[str], max_length: int
    ) -> list[tuple[list[int], int]]:
        """Returns the rows of texts that need no check; see `sequences`.

        Args:
            firsts: the first or only text of each row.
            seconds: the second one of each row; "" if there is none.
            max_length: as in `sequences`.
        """
        ids_of_seconds = (
            self.encode_batch(seconds) if any(seconds) else [self.encode("")] * len(seconds)
        )
        rows = []
        for first, second in zip(self.encode_batch(firsts), ids_of_seconds, strict=True):
            room = max(max_length - (3 if second else 2), 0)
            if len(first) + len(second) > room:
                kept = truncated_lengths(len(first), len(second), room)
                first, second = first[: kept[0]], second[: kept[1]]
            rows.append(self.join(first, second))
        return rows

    def join(self, first: Sequence[int], second: Sequence[int]) -> tuple[list[int], int]:
        """Returns the ids of one or two texts with special tokens, and their number in segment 0.

        These are `[CLS] first [SEP]`, or `[CLS] first [SEP] second [SEP]` unless `second` is empty.
        """
        ids = [self.cls_id, *first, self.sep_id]
        if not second:
            return ids, len(ids)
        joined = [*ids, *second, self.sep_id]
        return joined, len(ids) if self.has_segments else len(joined)

    def tokenize(self, text: str) -> list[str]:
        """Normalizes `text` and returns its pieces.

        Text that is already normalized by `preprocess_text`, as in Google's programs, results in
        the same pieces.
        """
        return self.tokenize_preprocessed(self.preprocess(text))

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Returns readable text for ids. Case and accents removed by normalization are lost.

        Args:
            ids: int [S], such as a row of `input_ids`.
            skip_special_tokens: whether to omit [CLS], [SEP] and padding.

        Raises:
            ValueError: an id is outside [0, vocab_size).
        """
        left_out = {self.cls_id, self.sep_id, self.pad_id} if skip_special_tokens else set()
        kept = [int(token_id) for token_id in ids if int(token_id) not in left_out]
        return self.detokenize(self.convert_ids_to_tokens(kept))

    def batch_decode(
        self, rows: Iterable[Iterable[int]], skip_special_tokens: bool = True
    ) -> list[str]:
        """Returns the text of each row of ids, as `decode` does; ids are int [B, S]."""
        return [self.decode(ids, skip_special_tokens) for ids in rows]

    def detokenize(self, tokens: Iterable[str]) -> str:
        """Joins pieces into readable text."""
        if self.is_sentencepiece:
            return "".join(tokens).replace(SPIECE_UNDERLINE, " ").strip()
        return _ADDED_SPACE.sub("", " ".join(tokens).replace(" ##", ""))

    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text`: normalizes, tokenizes and looks up; adds no special tokens."""
        return self.encode_batch([text])[0]

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Returns the ids of tokens; with SentencePiece, unknown tokens get `unk_id`.

        Raises:
            ValueError: a token is not in the WordPiece vocabulary.
        """
        if self.is_sentencepiece:
            return [self.vocab.get(token, self.unk_id) for token in tokens]
        try:
            return [self.vocab[token] for token in tokens]
        except KeyError as error:
            raise ValueError(f"token {error} is not in the vocabulary") from None

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the pieces for ids.

        Raises:
            ValueError: an id is outside [0, vocab_size).
        """
        ids = list(ids)
        if ids and not 0 <= min(ids) <= max(ids) < self.vocab_size:
            raise ValueError(f"ids {min(ids)} to {max(ids)}; expected 0 to {self.vocab_size - 1}")
        return [self.pieces[token_id] for token_id in ids]


def split_pairs(
    texts: str | Sequence[str] | Sequence[Sequence[str]],
    text_pair: str | Sequence[str] | None = None,
) -> tuple[list[str], list[str]]:
    """Returns the first and the second texts of a tokenizer's arguments; "" if there is no second.

    Raises:
        ValueError: an input is not a text or cannot be written in UTF-8, or `text_pair` and `texts`
            differ in length.
    """
    if type(texts).__module__.startswith("tensorflow."):
        raise ValueError(
            "texts are a tensor: expected str. albert_tf.TokenizerLayer(tokenizer) takes tensors, "
            "also in the map of a dataset"
        )
    if isinstance(texts, str):
        texts = [texts]
        text_pair = [text_pair] if isinstance(text_pair, str) else text_pair
    elif isinstance(texts, tuple) and texts and all(isinstance(text, str) for text in texts):
        raise ValueError(
            "a tuple of texts is ambiguous: pass [(a, b)] for one pair, or a list of texts for a "
            "batch"
        )
    else:
        check_list(texts, "texts", "a str, a list of them, or a list of pairs of them")
    rows = [(text, "") if isinstance(text, str) else text for text in texts]
    if text_pair is not None:
        if not isinstance(text_pair, str):
            check_list(text_pair, "text_pair", f"a list of {len(rows)} str, like texts")
        if isinstance(text_pair, str) or len(text_pair) != len(rows):
            raise ValueError(
                f"text_pair={text_pair!r:.60}: expected a list of {len(rows)}, like texts"
            )
        rows = [(row[0], pair) for row, pair in zip(rows, text_pair, strict=True)]
    for number, row in enumerate(rows):
        is_pair = isinstance(row, Sequence) and len(row) == 2
        if not (is_pair and all(isinstance(text, str) for text in row)):
            raise ValueError(f"texts[{number}] is {row!r:.60}: expected a str, or a pair of them")
        check_text(row[0], f"texts[{number}]")
        check_text(row[1], f"texts[{number}]")
    return [row[0] for row in rows], [row[1] for row in rows]


def check_list(values: object, name: str, expected: str) -> None:
    """Raises ValueError if iterating values does not give texts in their order.

    A dict gives its keys, and a DataFrame the names of its columns.

    Args:
        values: the values.
        name: what they are called in the message.
        expected: what is expected.
    """
    if hasattr(values, "columns"):
        raise ValueError(
            f"{name} are a {type(values).__name__}: expected {expected}. Pass a column of it, such "
            'as data["text"], or list(zip(data["text_a"], data["text_b"])) for pairs'
        )
    if isinstance(values, (Mapping, Set, bytes)) or not isinstance(values, Iterable):
        raise ValueError(f"{name} are a {type(values).__name__}: expected {expected}")


def check_tokenizer(value: object) -> None:
    """Raises ValueError if a value, such as the path of a vocabulary, is no tokenizer."""
    if not isinstance(value, Tokenizer):
        raise ValueError(
            f"tokenizer={value!r:.60}: expected that of from_pretrained, or one such as "
            "albert_tf.FullTokenizer(spm_model_file=…)"
        )


def check_text(text: str, name: str) -> None:
    """Raises ValueError if a text has a half of a surrogate pair, which is no character.

    Args:
        text: the text.
        name: what it is called in the message.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} has {text[error.start]!r} at character {error.start}, half of a surrogate "
            "pair: decode the text from UTF-8 or UTF-16 before"
        ) from None


def _check_choices(**arguments: object) -> None:
    """Raises ValueError, which names the argument, for a value that is none of its `CHOICES`."""
    for name, value in arguments.items():
        if value not in CHOICES[name]:
            expected = ", ".join(map(repr, CHOICES[name]))
            raise ValueError(f"{name}={value!r}: expected one of {expected}")


def _pad(rows: Sequence[tuple[list[int], int]], length: int) -> NDArray[np.int32]:
    """Returns ids, mask and segments, [3, B, S], of rows (ids, number of ids in segment 0)."""
    batch = np.zeros((3, len(rows), length), np.int32)
    batch[0] = PAD_ID
    for number, (ids, first_length) in enumerate(rows):
        batch[0, number, : len(ids)] = ids
        batch[1, number, : len(ids)] = 1
        batch[2, number, first_length : len(ids)] = 1
    return batch
