"""Aligns the pieces of a tokenized text with the characters of the original text.

Extractive question answering needs this alignment, because data sets give answers as character
offsets, while models predict positions of pieces.

SentencePiece tokenizes normalized text, and its pieces have no offsets into the original text.
Google's program (`convert_examples_to_features` in `squad_utils.py`) aligns the text with the
joined pieces by computing a longest common subsequence (LCS) cell by cell. The result here is
identical, including ties, but computed faster:

* If both strings agree character by character, as they nearly always do, no LCS table is needed.
* Otherwise each row of the table is a single integer, with a bit for each column that is larger
  than its left neighbor (Allison and Dix, 1986), so that a row takes only five operations.

Google's program compares characters of the text that are normalized one by one. It finds none of a
text whose characters normalization splits and SentencePiece joins again, as in Korean, or joins
from a letter and its marks, and skips the questions about it. Here, such texts are aligned by the
letters that the characters of both consist of.

WordPiece vocabularies, which Google's program does not support, preserve the order of characters,
so that counting characters is sufficient.

Shapes: n characters of the text, m characters of the joined pieces, T pieces.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import unicodedata
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from albert_tf.model.tokenization import (
    SPIECE_UNDERLINE,
    UNKNOWN_TOKEN,
    BasicTokenizer,
    HuggingFaceTokenizer,
    Tokenizer,
    WordpieceTokenizer,
    preprocess_text,
)
from albert_tf.model.tokenization.characters import past_marks

MIN_MATCHED = 0.8  # fraction of the characters; with fewer, Google's program skips the question
BAND_MARGIN = 5
BLOCK_ROWS = 256  # rows of the table in memory at a time
# About a minute of computation: a megabyte of text whose pieces are 3% longer or shorter. The
# table of Google's program would exhaust the memory long before.
MAX_TABLE_BITS = 1 << 37
UNKNOWN = -1  # marks a character without a counterpart
# Stands for a character that normalizes to none or to several. No piece contains it, because
# SentencePiece does not accept lone surrogates.
_NO_CHARACTER = "\udfff"

Index = NDArray[np.int32]


@dataclasses.dataclass(frozen=True, eq=False)
class TokenizedText:
    """The pieces of a text and their alignment with its characters.

    Attributes:
        token_ids: int32 [T].
        first_char, last_char: int32 [T], offsets of the first and the last character (inclusive) of
            each piece; Google's `tok_start_to_orig_index` and `tok_end_to_orig_index`.
        first_token, last_token: int32 [n], for each character, the first piece of an answer that
            starts there and the last piece of an answer that ends there.
    """

    token_ids: Index
    first_char: Index
    last_char: Index
    first_token: Index
    last_token: Index


def tokenize(tokenizer: Tokenizer, text: str) -> TokenizedText | None:
    """Tokenizes a text and aligns the pieces with its characters.

    Marks after a letter that normalization removes, such as the tone marks of Thai, are part of the
    piece before them.

    Args:
        tokenizer: the tokenizer of the model.
        text: the original text, not normalized and without lone surrogates.

    Returns:
        The alignment, or None if the text has no pieces, or if the fraction of characters found in
        the pieces is below MIN_MATCHED (SentencePiece only).
    """
    if isinstance(tokenizer, HuggingFaceTokenizer):
        found = _tokenize_hugging_face(tokenizer, text)
    elif tokenizer.is_sentencepiece:
        found = _tokenize_sentencepiece(tokenizer, text)
    else:
        found = _wordpiece_aligner(tokenizer)(text)
    if found is None or text.isascii():
        return found
    return dataclasses.replace(found, last_char=_include_marks(text, found))


def _include_marks(text: str, found: TokenizedText) -> Index:
    """Returns `last_char` of a text, after the marks that follow the last character of a piece.

    `last_token` needs no marks: at a mark that is in no piece, it is the piece before it.
    """
    begins = [*found.first_char[1:].tolist(), len(text)]  # of the next piece
    ends = zip(found.last_char.tolist(), begins, strict=True)
    return np.array([past_marks(text, last + 1, begin) - 1 for last, begin in ends], np.int32)


def _tokenize_hugging_face(tokenizer: HuggingFaceTokenizer, text: str) -> TokenizedText | None:
    ids, begins, ends = tokenizer.encode_with_offsets(text)
    if not ids:
        return None
    first_char = np.minimum(begins, len(text) - 1)
    last_char = np.maximum(ends - 1, first_char)
    chars = np.arange(len(text))
    # A character can be normalized to several, which may be in several pieces and in another order.
    starts, stops = map(np.maximum.accumulate, (first_char, last_char))
    last_token = np.searchsorted(starts, chars, "right") - 1
    return TokenizedText(
        token_ids=np.array(ids, np.int32),
        first_char=first_char,
        last_char=last_char,
        first_token=np.minimum(np.searchsorted(stops, chars), len(ids) - 1).astype(np.int32),
        last_token=np.maximum(last_token, 0).astype(np.int32),
    )


def convert_index(index: Index, limit: int | None, is_start: bool) -> Index:
    """Fills in the unknown entries of an index; Google's `_convert_index`, vectorized.

    An unknown entry is set to the first (for starts) or last (for ends) position strictly between
    the positions of its known neighbors. If there is none, it is set to the position of the next
    (for starts) or previous (for ends) known neighbor.

    Args:
        index: int32 [n], position → position in the other string, or UNKNOWN. At least one entry
            must be known.
        limit: length of the other string, if its positions after the last known entry may be used;
            None to repeat the last known entry.
        is_start: whether the entries are starts or ends.

    Returns:
        int32 [n], without unknown entries.
    """
    places = np.arange(len(index), dtype=np.int32)
    known = index != UNKNOWN
    if known.all():
        return index
    before = np.maximum.accumulate(np.where(known, places, -1))  # the nearest known place, or -1
    after = np.minimum.accumulate(np.where(known, places, len(index))[::-1])[::-1]
    front = index[np.maximum(before, 0)]
    rear = index[np.minimum(after, len(index) - 1)]
    if is_start:
        result = np.where(rear > front + 1, front + 1, rear)
        at_begin = np.zeros_like(index)
        at_end = front + 1
    else:
        result = np.where(rear > front + 1, rear - 1, front)
        at_begin = np.maximum(rear - 1, 0)
        at_end = np.full_like(index, (limit or 0) - 1)
    has_room = front < (limit or 0) - 1
    result = np.where(after == len(index), np.where(has_room, at_end, front), result)
    result = np.where(before == -1, at_begin, result)
    return np.where(known, index, result).astype(np.int32)


def _tokenize_sentencepiece(tokenizer: Tokenizer, text: str) -> TokenizedText | None:
    pieces = tokenizer.tokenize(text)
    joined = "".join(pieces).replace(SPIECE_UNDERLINE, " ")
    lengths = np.fromiter(map(len, pieces), np.int32, len(pieces))
    last = np.cumsum(lengths) - 1
    token_of_char = np.repeat(np.arange(len(pieces), dtype=np.int32), lengths)
    token_ids = np.array(tokenizer.convert_tokens_to_ids(pieces), np.int32)
    if _only_adds_a_space(text.translate(_normal_forms(tokenizer.do_lower_case)), joined):
        return TokenizedText(
            token_ids=token_ids,
            first_char=np.maximum(last - lengths, 0).astype(np.int32),
            last_char=np.maximum(last - 1, 0).astype(np.int32),
            first_token=token_of_char[1:],
            last_token=token_of_char[1:],
        )
    pairs = _align_as_google(tokenizer, text, joined)
    if pairs is None and _is_recomposed(tokenizer, text):
        pairs = _align_by_letters(tokenizer, text, joined)
    if pairs is None:
        return None
    chars, places = pairs  # the other way round, the last pair of a character counts for starts
    starts, ends = _index(len(text), chars[::-1], places[::-1]), _index(len(text), chars, places)
    joined_starts = _index(len(joined), places[::-1], chars[::-1])
    joined_ends = _index(len(joined), places, chars)
    return TokenizedText(
        token_ids=token_ids,
        first_char=convert_index(joined_starts, len(text), True)[last - lengths + 1],
        last_char=convert_index(joined_ends, len(text), False)[last],
        first_token=token_of_char[convert_index(starts, None, True)],
        last_token=token_of_char[convert_index(ends, None, False)],
    )


def _index(size: int, places: Index, others: Index) -> Index:
    """Returns int32 [size]: place → the last of its counterparts, or UNKNOWN."""
    index = np.full(size, UNKNOWN, np.int32)
    index[places] = others
    return index


def _align_as_google(tokenizer: Tokenizer, text: str, joined: str) -> tuple[Index, Index] | None:
    """Returns the aligned pairs of characters; None if too few characters are aligned.

    Args:
        tokenizer: a tokenizer with SentencePiece.
        text: n characters.
        joined: m characters, the joined pieces.

    Returns:
        Offsets in `text`, int32, in their order, and the offset in `joined` of each.
    """
    aligned = align_characters(text.translate(_normal_forms(tokenizer.do_lower_case)), joined)
    if aligned is None:
        return None
    (matched,) = np.nonzero(aligned != UNKNOWN)
    return matched.astype(np.int32), aligned[matched]


def _align_by_letters(tokenizer: Tokenizer, text: str, joined: str) -> tuple[Index, Index] | None:
    """Returns the aligned pairs of characters that have a letter in common; see `_align_as_google`.

    A character can be in several pairs: one for each of the letters that it consists of.
    """
    forms = [preprocess_text(char, False, tokenizer.do_lower_case) for char in text]
    joined_forms = [unicodedata.normalize("NFKD", char) for char in joined]
    aligned = align_characters("".join(forms), "".join(joined_forms))
    if aligned is None:
        return None
    chars, places = (
        np.repeat(np.arange(len(parts), dtype=np.int32), list(map(len, parts)))
        for parts in (forms, joined_forms)
    )
    (matched,) = np.nonzero(aligned != UNKNOWN)
    return chars[matched], places[aligned[matched]]


def _is_recomposed(tokenizer: Tokenizer, text: str) -> bool:
    """Returns whether too few characters of a text remain for `_align_as_google`.

    This depends on how normalization splits and joins characters, but not on the vocabulary.
    """
    if text.isascii():
        return False
    text = " ".join(text.split())  # spaces that normalization removes are another matter
    forms = text.translate(_normal_forms(tokenizer.do_lower_case))
    normal = preprocess_text(text, lower=tokenizer.do_lower_case)
    joined = unicodedata.normalize("NFKC", normal)
    common = collections.Counter(forms) & collections.Counter(joined)
    return common.total() < MIN_MATCHED * len(forms)


def is_skipped_by_google(tokenizer: Tokenizer, text: str) -> bool:
    """Returns whether Google's program, unlike `tokenize`, cannot align a text.

    Args:
        tokenizer: the tokenizer of the model.
        text: the original text, as for `tokenize`.
    """
    is_google = tokenizer.is_sentencepiece and not isinstance(tokenizer, HuggingFaceTokenizer)
    if not is_google or not _is_recomposed(tokenizer, text):
        return False
    joined = "".join(tokenizer.tokenize(text)).replace(SPIECE_UNDERLINE, " ")
    return (
        _align_as_google(tokenizer, text, joined) is None
        and _align_by_letters(tokenizer, text, joined) is not None
    )


class _NormalForms(dict[int, str]):
    """A table for `str.translate` that normalizes each character separately."""

    def __init__(self, lower: bool):
        super().__init__()
        self._lower = lower

    def __missing__(self, code: int) -> str:
        form = preprocess_text(chr(code), remove_space=False, lower=self._lower)
        self[code] = form if len(form) == 1 else _NO_CHARACTER
        return self[code]


_normal_forms = functools.lru_cache(maxsize=2)(_NormalForms)


def _only_adds_a_space(text: str, joined: str) -> bool:
    """Returns whether the joined pieces are the text after a space, as they nearly always are."""
    return bool(text) and joined == " " + text and not text.startswith(" ")


def align_characters(text: str, joined: str) -> Index | None:
    """Aligns the characters of two strings by a longest common subsequence.

    If there are several, the result is that of Google's program: from the last pair backwards, each
    pair has the earliest possible character of `text`, and then of `joined`. As in that program,
    only a band of the table is computed, and a second one of twice the width if too few characters
    are aligned.

    Args:
        text: n characters, each normalized separately.
        joined: m characters, the joined pieces with spaces in place of "▁".

    Returns:
        int32 [n], position in `text` → position in `joined` or UNKNOWN. None if the aligned
        fraction of `text` is below MIN_MATCHED, or if nothing is aligned.
    """
    if _only_adds_a_space(text, joined):
        return np.arange(1, len(text) + 1, dtype=np.int32)  # the only alignment of this length
    common = collections.Counter(text) & collections.Counter(joined)
    if not common or common.total() < MIN_MATCHED * len(text):
        return None  # a common subsequence cannot be longer than this
    half_width = abs(len(text) - len(joined)) + BAND_MARGIN
    if 2 * half_width * len(text) > MAX_TABLE_BITS:
        return None
    table = _Table(text, joined, half_width)
    if not table.length > MIN_MATCHED * len(text):
        table = _Table(text, joined, 2 * half_width)
    if table.length < MIN_MATCHED * len(text) or not table.length:
        return None
    index = np.full(len(text), UNKNOWN, np.int32)
    for row, column in table.pairs():
        index[row] = column
    return index


class _Table:
    """The table of a banded longest common subsequence; few rows are in memory at a time.

    A row is an integer with a bit for each column, which is 1 if the entry is larger (by one) than
    the entry to its left. Outside the band nothing matches, which has the same effect as the zeros
    there in Google's program.

    Args:
        rows, columns: the two strings.
        half_width: row i covers the columns from i - half_width to i + half_width - 1.

    Attributes:
        length: length of the subsequence.
    """

    def __init__(self, rows: str, columns: str, half_width: int):
        self._rows, self._columns, self._half_width = rows, columns, half_width
        self._states: list[int] = []  # the row above each block, in the columns of the block
        self.length = state = 0
        for first_row in range(0, len(rows), BLOCK_ROWS):
            self._states.append(state)
            state = self._block(first_row)[-1]
            self.length += (state & ((1 << BLOCK_ROWS) - 1)).bit_count()
            state >>= BLOCK_ROWS
        self.length += state.bit_count()

    def _block(self, first_row: int) -> list[int]:
        """Returns the row above a block and its rows; bit 0 is column `first_row - half_width`."""
        last_row = min(first_row + BLOCK_ROWS, len(self._rows))
        low, high = first_row - self._half_width, last_row + self._half_width
        matches: dict[str, int] = collections.defaultdict(int)
        for column in range(max(low, 0), min(high, len(self._columns))):
            matches[self._columns[column]] |= 1 << (column - low)
        row = self._states[first_row // BLOCK_ROWS]
        band = (1 << 2 * self._half_width) - 1
        result = [row]
        for char in self._rows[first_row:last_row]:
            either = row | matches.get(char, 0) & band
            row = either & ((either - (row << 1 | 1)) ^ either)
            result.append(row)
            band <<= 1
        return result

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yields the aligned pairs (row, column), from last to first."""
        column = len(self._columns) - 1
        for block in range(len(self._states) - 1, -1, -1):
            first_row = block * BLOCK_ROWS
            low = first_row - self._half_width
            rows = self._block(first_row)
            for number in range(len(rows) - 1, 0, -1):
                above, row = rows[number - 1], rows[number]
                changed = above ^ row
                # Columns whose entry is larger than the one above: the ranges from each bit that
                # this row sets to the next bit that it clears (or to the end).
                gains = (above & changed) - (row & changed)
                if gains >> (column - low) & 1:
                    column = low + (row & ((2 << (column - low)) - 1)).bit_length() - 1
                    yield first_row + number - 1, column
                    column -= 1
                    if column < 0:
                        return


@functools.lru_cache(maxsize=2)
def _wordpiece_aligner(tokenizer: Tokenizer) -> Callable[[str], TokenizedText | None]:
    """Returns a function that tokenizes and aligns texts with WordPiece, with a cache of words."""
    basic = BasicTokenizer(tokenizer.do_lower_case)
    wordpiece = WordpieceTokenizer(tokenizer.vocab)

    @functools.lru_cache(maxsize=100_000)
    def cut(word: str) -> tuple[list[int], list[int], list[int]]:
        """Returns the ids of the pieces of a word, and the first and last character of each."""
        # Normalization drops some characters (combining accents) and splits others (Hangul).
        origin = [at for at, char in enumerate(word) for _ in "".join(basic.split_word(char))]
        pieces: list[str] = []
        ends = [0]
        for part in basic.split_word(word):
            cut_part = wordpiece.split_word(part)
            pieces += cut_part
            # Pieces after the first begin with "##".
            lengths = [len(piece) - (2 if at else 0) for at, piece in enumerate(cut_part)]
            for length in [len(part)] if cut_part == [UNKNOWN_TOKEN] else lengths:
                ends.append(ends[-1] + length)
        first = [origin[at] for at in ends[:-1]]
        last = [origin[at - 1] for at in ends[1:]]
        return tokenizer.convert_tokens_to_ids(pieces), first, last

    def align(text: str) -> TokenizedText | None:
        words = basic.words(text)
        # Whether the tokenizer keeps a character depends only on the character itself.
        kept = set("".join(words))
        places = [at for at, char in enumerate(text) if char in kept]
        ids: list[int] = []
        first: list[int] = []
        last: list[int] = []
        begin = 0
        for word in words:
            word_ids, word_first, word_last = cut(word)
            ids += word_ids
            first += [places[begin + at] for at in word_first]
            last += [places[begin + at] for at in word_last]
            begin += len(word)
        if not ids:
            return None
        chars = np.arange(len(text))
        first_char, last_char = np.array(first, np.int32), np.array(last, np.int32)
        return TokenizedText(
            token_ids=np.array(ids, np.int32),
            first_char=first_char,
            last_char=last_char,
            first_token=np.searchsorted(last_char, chars).astype(np.int32),
            last_token=(np.searchsorted(first_char, chars, "right") - 1).astype(np.int32),
        )

    return align
