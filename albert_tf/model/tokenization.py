"""Tokenization compatible with google-research/albert: text to tokens and ids.

One class, `FullTokenizer` at the bottom of the file, supports both kinds of vocabularies:

* SentencePiece (English models): `preprocess_text`, then `encode_pieces`.
* WordPiece (Chinese models): `BasicTokenizer`, then `WordpieceTokenizer`, as in BERT.

It produces the same tokens and ids as google-research/albert for every text, with two differences:
`tokenize` normalizes the text itself (in Google's class callers have to do so, or "Hello" becomes
`<unk>`), and a vocabulary that lacks a special token raises an error.

    >>> from albert_tf import FullTokenizer
    >>> tokenizer = FullTokenizer(spm_model_file="30k-clean.model")
    >>> tokenizer.tokenize("The  RIVER")
    ['▁the', '▁river']
    >>> batch = tokenizer([("The river", "A boat"), ("The sea", "")])
    >>> batch["segment_ids"]
    array([[0, 0, 0, 0, 1, 1, 1],
           [0, 0, 0, 0, 0, 0, 0]], dtype=int32)
    >>> tokenizer.decode(batch["input_ids"][0])
    'the river a boat'
"""

from __future__ import annotations

import abc
import functools
import hashlib
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from albert_tf import files

SPIECE_UNDERLINE = "\u2581"  # "▁", SentencePiece's symbol for a space
MASK_TOKEN = "[MASK]"
SPECIAL_TOKENS = ("[CLS]", "[SEP]", MASK_TOKEN)
UNKNOWN_TOKEN = "[UNK]"
# Names of the vocabulary in runs and Hugging Face folders.
SENTENCEPIECE_NAME = "spiece.model"
WORDPIECE_NAME = "vocab.txt"
PAD_ID = 0  # the official programs pad with 0 regardless of the vocabulary
MAX_INPUT_CHARS_PER_WORD = 200  # longer words become one unknown token
MAX_REMEMBERED = 200_000  # words in the cache, about 40 MB
# Values of arguments of a tokenizer's call, which are those of transformers.
CHOICES = {
    "padding": (True, "longest", "max_length"),
    "truncation": (True, False, "longest_first"),
    "return_tensors": (None, "np", "tf"),
}
_PUNCTUATION_IN_WORD = re.compile(r"(?<=a)\.(?=a)")
_WORD = re.compile(r"a+|[c.]")

# The code points that BERT surrounds with spaces; kana and hangul are not among them.
_CJK = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)
# All characters for which a predicate below may be true. This excludes surrogates, rare Chinese
# characters that BERT does not know either, unassigned planes, and private use planes.
_CODE_POINTS = (*range(0xD800), *range(0xE000, 0x30000), *range(0xE0000, 0xE0200))
# Spaces that detokenization removes: next to Chinese and full-width characters, and before
# punctuation that follows a word.
_ADDED_SPACE = re.compile(
    r" (?=[\u3000-\u303f\u3400-\u9fff\uf900-\ufaff\uff00-\uffef.,;:!?])"
    r"|(?<=[\u3000-\u303f\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]) "
)


def is_whitespace(char: str) -> bool:
    """Returns whether BERT treats `char` as whitespace: tab, newline, return or category Zs."""
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def is_control(char: str) -> bool:
    """Returns whether BERT drops `char` as a control character: Cc or Cf except tab, newline."""
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def is_cjk(char: str) -> bool:
    """Returns whether `char` is a Chinese character, which BERT makes a separate word."""
    return _CJK.match(char) is not None


def is_punctuation(char: str) -> bool:
    """Returns whether BERT splits at `char`: category P* or any ASCII symbol, even "$" and "^"."""
    if char.isascii():
        return char.isprintable() and not char.isalnum() and char != " "
    return unicodedata.category(char).startswith("P")


def is_dropped(char: str) -> bool:
    """Returns whether BERT removes `char`: a control character, NUL or U+FFFD."""
    is_removed = char in "\0\ufffd" or is_control(char)
    return is_removed and not is_whitespace(char)


def is_mark(char: str) -> bool:
    """Returns whether BERT strips `char` as an accent: category Mn."""
    return unicodedata.category(char) == "Mn"


def is_combining(char: str) -> bool:
    """Returns whether `preprocess_text` strips `char`: its combining class is not 0."""
    return unicodedata.combining(char) != 0


def find_words(text: str) -> list[tuple[str, int]]:
    """Returns the words of a text, and the index of the first character of each.

    A Chinese character is a word, and so is punctuation, except within a word.

    >>> find_words("U.N. officials (北京)")
    [('U.N', 0), ('.', 3), ('officials', 5), ('(', 15), ('北', 16), ('京', 17), (')', 18)]
    """
    kinds = _PUNCTUATION_IN_WORD.sub("a", "".join(map(word_kind, text)))
    return [(text[slice(*match.span())], match.start()) for match in _WORD.finditer(kinds)]


def word_kind(char: str) -> str:
    """Returns " " for a space, "c" for a Chinese character, "." for punctuation, or else "a"."""
    if char.isspace():
        return " "
    if is_cjk(char):
        return "c"
    return "." if is_punctuation(char) else "a"


@functools.cache
def character_class(contains: Callable[[str], bool]) -> str:
    """Returns a regular expression's character class of all characters accepted by a predicate.

    The syntax is valid in both RE2 and Oniguruma.

    Args:
        contains: the predicate, true for at least one of `_CODE_POINTS`; only these are tested.
    """
    runs: list[list[int]] = []
    for code in _CODE_POINTS:
        if not contains(chr(code)):
            continue
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in runs) + "]"


class _Memory(dict[Any, Any]):
    """A cache of a function's results; can be used as a table for `str.translate`."""

    def __init__(self, function: Callable[[Any], Any]):
        super().__init__()
        self._function = function

    def __missing__(self, key: Any) -> Any:
        if len(self) >= MAX_REMEMBERED:
            self.clear()
        value = self[key] = self._function(key)
        return value


def _clean(code: int) -> str | None:
    char = chr(code)
    if is_whitespace(char):
        return " "
    if is_dropped(char):
        return None
    return f" {char} " if is_cjk(char) else char


_CLEAN_AND_SPACE_CJK = _Memory(_clean)
_SPACE_PUNCTUATION = _Memory(lambda c: f" {chr(c)} " if is_punctuation(chr(c)) else c)
_DROP_COMBINING = _Memory(lambda c: None if is_combining(chr(c)) else c)
_DROP_MARKS = _Memory(lambda c: None if is_mark(chr(c)) else c)


def preprocess_text(text: str, remove_space: bool = True, lower: bool = False) -> str:
    """Normalizes text for a SentencePiece vocabulary (official `preprocess_text`).

    Accents are removed even for cased models. As in the official program, whitespace is collapsed
    before NFKD, so characters that decompose to a space (such as U+00B4, the acute accent) leave
    one.

    Args:
        text: any text.
        remove_space: whether to collapse runs of whitespace to one space and strip both ends.
        lower: whether to lowercase the text.

    Returns:
        The text in NFKD without combining characters.
    """
    if remove_space:
        text = " ".join(text.split())
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text).translate(_DROP_COMBINING)
    return text.lower() if lower else text


def has_number_comma(piece: str) -> bool:
    """Returns whether a piece ends in a digit and a comma, such as "▁1999,"."""
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def encode_pieces(sp: Any, text: str) -> list[str]:
    """Returns the pieces of `text`, splitting numbers from a comma (official `encode_pieces`).

    A piece such as "▁1999," is encoded again without the comma, which becomes a separate piece. The
    second encoding adds a "▁" in front even in the middle of a word. The official program is meant
    to remove it but never does, and models have been trained with it.

    Args:
        sp: a `sentencepiece.SentencePieceProcessor`.
        text: text normalized by `preprocess_text`.
    """
    return _split_number_commas(sp, sp.encode(text, out_type=str))


def _split_number_commas(sp: Any, pieces: list[str]) -> list[str]:
    """Returns the pieces of a text, with numbers split from a comma; see `encode_pieces`."""
    result: list[str] = []
    for piece in pieces:
        if has_number_comma(piece):
            body = piece[:-1].replace(SPIECE_UNDERLINE, "")
            result += [*sp.encode(body, out_type=str), ","]
        else:
            result.append(piece)
    return result


def load_vocab(path: str) -> dict[str, int]:
    """Reads a vocabulary file with one token per line; returns token → id in file order.

    As in the official `load_vocab`, the token is the first field of its line (so `.vocab` files
    with scores can be read), a blank line is the token " ", and a repeated token gets no new id.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is empty or not UTF-8.
    """
    try:
        text = files.read_text(path)
    except ValueError as error:
        raise ValueError(f"{error} Pass a SentencePiece .model as --spm_model_file.") from None
    if not text:
        raise ValueError(f"{path}: the file is empty; expected a vocabulary, one token per line")
    lines = text.removesuffix("\n").split("\n")
    tokens = dict.fromkeys((line.split() or [" "])[0] for line in lines)
    return {token: token_id for token_id, token in enumerate(tokens)}


class BasicTokenizer:
    """Splits text into words, punctuation and single CJK characters (BERT's BasicTokenizer).

    Args:
        do_lower_case: whether to lowercase and strip accents.
    """

    def __init__(self, do_lower_case: bool = True):
        self.do_lower_case = do_lower_case

    def tokenize(self, text: str) -> list[str]:
        """Returns the tokens of `text`."""
        return [part for word in self.words(text) for part in self.split_word(word)]

    def words(self, text: str) -> list[str]:
        """Splits `text` at whitespace and CJK characters, before case and punctuation."""
        return text.translate(_CLEAN_AND_SPACE_CJK).split()

    def split_word(self, word: str) -> list[str]:
        """Normalizes one of `words` if `do_lower_case`, and splits it at punctuation."""
        if self.do_lower_case:
            word = word.lower()
            if not word.isascii():
                word = unicodedata.normalize("NFD", word).translate(_DROP_MARKS)
        return word.translate(_SPACE_PUNCTUATION).split()


class WordpieceTokenizer:
    """Splits words into the longest pieces of a vocabulary (BERT's WordpieceTokenizer).

    Args:
        vocab: token → id; pieces inside a word start with "##".
    """

    def __init__(self, vocab: dict[str, int]):
        self.vocab = vocab
        self._longest = max(map(len, vocab), default=0)

    def tokenize(self, text: str) -> list[str]:
        """Returns the pieces of the whitespace-separated words of `text`."""
        return [piece for word in text.split() for piece in self.split_word(word)]

    def split_word(self, word: str) -> list[str]:
        """Returns the pieces of a word by greedy longest-match-first from the left.

        A word that cannot be split into pieces, or is too long, becomes one unknown token.
        """
        if len(word) > MAX_INPUT_CHARS_PER_WORD:
            return [UNKNOWN_TOKEN]
        pieces: list[str] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(min(len(word), start + self._longest), start, -1):
                piece = prefix + word[start:end]
                if piece in self.vocab:
                    break
            else:
                return [UNKNOWN_TOKEN]
            pieces.append(piece)
            start = end
        return pieces


class _SentencePieceEncoder:
    """Converts normalized text to pieces and ids with a SentencePiece model."""

    def __init__(self, path: str, content: bytes):
        try:
            self.sp = sentencepiece.SentencePieceProcessor(model_proto=content)
        except RuntimeError:
            content = b""
        if not content:  # an empty file, too, because sentencepiece accepts it as "no model yet"
            raise ValueError(
                f"{path}: not a SentencePiece model. --spm_model_file expects the binary .model "
                "file; pass a .vocab or vocab.txt file as --vocab_file."
            )
        try:
            pieces = self.sp.id_to_piece(list(range(self.sp.get_piece_size())))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}: this SentencePiece model is damaged: a piece is not UTF-8 "
                f"({error.reason}). Restore it from a backup."
            ) from None
        self.vocab: dict[str, int] = {piece: piece_id for piece_id, piece in enumerate(pieces)}
        self.unk_id = int(self.sp.unk_id())
        # The model's ids differ from the official program's only if they contain one of these: a
        # piece that ends in a digit and a comma; or an unknown piece, which may also end that way,
        # or spell a special token, whose id the official program then uses.
        commas = (
            piece_id
            for piece, piece_id in self.vocab.items()
            if piece.endswith(",") and has_number_comma(piece)
        )
        self._doubtful = frozenset((self.unk_id, *commas))
        self._has_number_comma = _Memory(has_number_comma)
        self._ids_of = _Memory(self._id_of)

    def tokenize(self, text: str) -> list[str]:
        return encode_pieces(self.sp, text)

    def encode_and_spell(self, texts: list[str]) -> tuple[list[list[int]], dict[int, list[str]]]:
        """Returns the ids of each text; and index → pieces of those with an unknown piece or more.

        The second may contain other texts.
        """
        ids = self._encode(texts, int)
        doubtful = [
            row for row, row_ids in enumerate(ids) if not self._doubtful.isdisjoint(row_ids)
        ]
        spelled = self._encode([texts[row] for row in doubtful], str)
        pieces_of = {
            row: _split_number_commas(self.sp, pieces)
            if any(map(self._has_number_comma.__getitem__, pieces))
            else pieces
            for row, pieces in zip(doubtful, spelled, strict=True)
        }
        for row, pieces in pieces_of.items():
            ids[row] = list(map(self._ids_of.__getitem__, pieces))
        return ids, pieces_of

    def _id_of(self, piece: str) -> int:
        return self.vocab.get(piece, self.unk_id)

    def _encode(self, texts: list[str], out_type: type[Any]) -> list[Any]:
        """Returns the ids or the pieces of each text, as the model gives them."""
        if not texts[1:]:  # encoding a single text as a batch is slow
            return [self.sp.encode(text, out_type=out_type) for text in texts]
        # One thread, because the data program runs a process on every core.
        encoded: list[Any] = self.sp.encode(texts, out_type=out_type, num_threads=1)
        return encoded


class _WordPieceEncoder:
    """Converts text to pieces and ids with a WordPiece vocabulary, caching words."""

    def __init__(self, path: str, do_lower_case: bool):
        self.vocab = load_vocab(path)
        self.unk_id = self.vocab.get(UNKNOWN_TOKEN, -1)
        self._basic = BasicTokenizer(do_lower_case)
        self._wordpiece = WordpieceTokenizer(self.vocab)
        self._pieces = list(self.vocab)
        self._ids_of = _Memory(self._cut)

    def _cut(self, word: str) -> list[int]:
        parts = self._basic.split_word(word)
        return [self.vocab[piece] for part in parts for piece in self._wordpiece.split_word(part)]

    def tokenize(self, text: str) -> list[str]:
        ((ids,), _) = self.encode_and_spell([text])
        return [self._pieces[token_id] for token_id in ids]

    def encode_and_spell(self, texts: list[str]) -> tuple[list[list[int]], dict[int, list[str]]]:
        """Returns the ids of each text, and no spelling."""
        ids_of = self._ids_of
        words = self._basic.words
        ids = [[token_id for word in words(text) for token_id in ids_of[word]] for text in texts]
        return ids, {}


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

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Returns the ids of each text, as `encode` does."""
        return self.encode_and_spell(texts)[0]

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

    def preprocess(self, text: str) -> str:
        """Returns `text` as `tokenize_preprocessed` expects it."""
        return text

    def __len__(self) -> int:
        """Returns the number of pieces."""
        return self.vocab_size

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
    ) -> dict[str, Any]:
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
        firsts, seconds = split_pairs(texts, text_pair)
        rows = []
        for first, second in zip(
            self.encode_batch(firsts), self.encode_batch(seconds), strict=True
        ):
            room = max(max_length - (3 if second else 2), 0)
            kept = truncated_lengths(len(first), len(second), room)
            rows.append(self.join(first[: kept[0]], second[: kept[1]]))
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


class FullTokenizer(Tokenizer):
    """Tokenizer with a SentencePiece model (English) or a WordPiece vocabulary (Chinese).

    Args:
        vocab_file: WordPiece vocabulary. As in Google's programs, it is ignored if there is a
            SentencePiece model.
        do_lower_case: whether to lowercase; with WordPiece, also whether to strip accents.
        spm_model_file: SentencePiece model; takes precedence over `vocab_file`.
        max_length: default of `max_length` in calls.

    >>> tokenizer = FullTokenizer(spm_model_file="30k-clean.model")
    >>> tokenizer.encode("The sea") == tokenizer.convert_tokens_to_ids(["▁the", "▁sea"])
    True
    >>> tokenizer.pieces[tokenizer.mask_id]
    '[MASK]'

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: no vocabulary is given, it is damaged, or it lacks special tokens.
    """

    def __init__(
        self,
        vocab_file: str | None = None,
        do_lower_case: bool = True,
        spm_model_file: str | None = None,
        max_length: int = 512,
    ):
        if not vocab_file and not spm_model_file:
            raise ValueError(
                "a vocabulary is required: --spm_model_file (English) or --vocab_file (Chinese)"
            )
        self.do_lower_case = do_lower_case
        self.max_length = max_length
        self.is_sentencepiece = bool(spm_model_file)
        path = str(spm_model_file or vocab_file)
        content = files.read_bytes(path)
        self._encoder = (
            _SentencePieceEncoder(path, content)
            if self.is_sentencepiece
            else _WordPieceEncoder(path, do_lower_case)
        )
        self.vocab = self._encoder.vocab
        self.checksum = hashlib.sha256(content).hexdigest()
        self.pieces = list(self.vocab)
        self.vocab_size = len(self.vocab)
        needed = SPECIAL_TOKENS if spm_model_file else (UNKNOWN_TOKEN, *SPECIAL_TOKENS)
        missing = [token for token in needed if token not in self.vocab]
        if missing:
            raise ValueError(
                f"{path}: the vocabulary of {self.vocab_size} pieces lacks {', '.join(missing)}. "
                "Vocabularies of albert train-vocabulary have them"
            )
        self.cls_id, self.sep_id, self.mask_id = (self.vocab[token] for token in SPECIAL_TOKENS)
        self.unk_id = self._encoder.unk_id
        name = SENTENCEPIECE_NAME if self.is_sentencepiece else WORDPIECE_NAME
        self.vocabulary_files = {name: content}

    @property
    def sentencepiece_model(self) -> bytes:
        """The serialized SentencePiece model; empty for a WordPiece vocabulary."""
        return self.vocabulary_files.get(SENTENCEPIECE_NAME, b"")

    def preprocess(self, text: str) -> str:
        """Normalizes `text` with `preprocess_text` for SentencePiece; no change for WordPiece."""
        return preprocess_text(text, lower=self.do_lower_case) if self.is_sentencepiece else text

    def tokenize_preprocessed(self, text: str) -> list[str]:
        """Returns the pieces of text that `preprocess` has normalized, like Google's `tokenize`."""
        return self._encoder.tokenize(text)

    def encode_and_spell(
        self, texts: Iterable[str]
    ) -> tuple[list[list[int]], dict[int, list[str]]]:
        """Returns the ids of each text, and the spelling of unknown pieces."""
        return self._encoder.encode_and_spell([self.preprocess(text) for text in texts])

    def encode_masked(self, text: str) -> tuple[list[int], list[int]]:
        """Returns the ids of a text in which "[MASK]" is the mask token, and its positions."""
        parts = text.split(MASK_TOKEN)
        ids = self.encode(parts[0])
        places = []
        for part, part_ids in zip(parts[1:], self.encode_batch(parts[1:]), strict=True):
            places.append(len(ids))
            ids.append(self.mask_id)
            if self.is_sentencepiece and part[:1].strip() and part_ids:
                # "[MASK]." has no space before ".", and therefore no "▁" in the piece.
                body = self.pieces[part_ids[0]].removeprefix(SPIECE_UNDERLINE)
                part_ids[:1] = [self.vocab.get(body, part_ids[0])] if body else []
            ids += part_ids
        return ids, places


def split_pairs(
    texts: str | Sequence[str] | Sequence[Sequence[str]],
    text_pair: str | Sequence[str] | None = None,
) -> tuple[list[str], list[str]]:
    """Returns the first and the second texts of a tokenizer's arguments; "" if there is no second.

    Raises:
        ValueError: an input is not a text, or `text_pair` and `texts` differ in length.
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
    rows = [(text, "") if isinstance(text, str) else text for text in texts]
    if text_pair is not None:
        if isinstance(text_pair, str) or len(text_pair) != len(rows):
            raise ValueError(
                f"text_pair={text_pair!r:.60}: expected a list of {len(rows)}, like texts"
            )
        rows = [(row[0], pair) for row, pair in zip(rows, text_pair, strict=True)]
    for number, row in enumerate(rows):
        is_pair = isinstance(row, Sequence) and len(row) == 2
        if not (is_pair and all(isinstance(text, str) for text in row)):
            raise ValueError(f"texts[{number}] is {row!r:.60}: expected a str, or a pair of them")
    return [row[0] for row in rows], [row[1] for row in rows]


def _check_choices(**arguments: Any) -> None:
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
