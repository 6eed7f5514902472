"""Masks tokens for masked language modeling: n-grams of whole words, replaced 80/10/10.

`mask_batch` is a vectorized form of Google's `create_masked_lm_predictions`. Google's program walks
through a shuffled list of n-grams, one instance at a time; here each NumPy step handles the next
n-gram of every instance in the batch. The masks have the same distribution.

A *candidate* is the unit of masking: a whole word, or a single piece with
`do_whole_word_mask=False`. An *n-gram* is a run of up to `ngram` consecutive candidates.

Shapes: N instances, S sequence length, P prediction slots, C candidates, V vocabulary size.
Source: ALBERT (arXiv 1909.11942), section 4.1, for the n-gram lengths.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import itertools
import logging
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albert_tf.data.settings import MaskingSettings
from albert_tf.model.tokenization import SPIECE_UNDERLINE, BasicTokenizer, Tokenizer

MASK_SHARE = 0.8  # fraction of the chosen tokens replaced by [MASK]
KEPT_SHARE = 0.1  # fraction left unchanged; the others are replaced by random tokens
_PHILOX_BLOCK = 4  # numbers for each step of the counter of NumPy's Philox generator

# As in Google's program, which omits ', = and >: pieces that contain one of these start a word.
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_LETTERS_AND_PUNCTUATION = _PUNCTUATION | frozenset("abcdefghijklmnopqrstuvwxyz")


class RandomStream:
    """The random numbers for masking a batch, in which each row is an instance.

    They come from one generator, so that the numbers of a row depend on the other rows.

    Args:
        rng: the generator.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def uniform(self, rows: NDArray[np.integer]) -> NDArray[np.float64]:
        """Returns the next number in [0, 1) of each row: float64 [n].

        Args:
            rows: [n], indices of instances, ascending. One that is repeated gets several numbers.
        """
        return self._rng.random(len(rows))

    def integers(self, rows: NDArray[np.integer], limit: int) -> NDArray[np.int32]:
        """Returns the next integer in [0, limit) of each row: int32 [n]; `rows` as above."""
        return self._rng.integers(0, limit, len(rows), dtype=np.int32)


class PerInstanceStream(RandomStream):
    """A stream for each numbered instance, which depends only on the seed and that number.

    Row n of an endless table of random numbers belongs to instance n. A batch is the same as a part
    of a larger one, whatever process makes it.

    Args:
        seed: random seed of the table.
        first: number of the first instance in the batch; the others follow it.
        count: number of instances.
        settings: how they are masked.
        seq_length: S.
    """

    def __init__(
        self,
        seed: tuple[int, ...],
        first: int,
        count: int,
        settings: MaskingSettings,
        seq_length: int,
    ) -> None:
        # Two numbers for each candidate that is tried, and two for each prediction; tokens are
        # chosen twice with `do_permutation`, and permuted.
        numbers = 2 * seq_length * (1 + settings.do_permutation) + 3 * settings.prediction_slots
        blocks = -(-numbers // _PHILOX_BLOCK)
        bits = np.random.Philox(seed=np.random.SeedSequence(seed)).advance(first * blocks)
        self._table = np.random.Generator(bits).random((count, blocks * _PHILOX_BLOCK))
        self._used = np.zeros(count, np.int64)  # [N], count of numbers drawn from each row

    def uniform(self, rows: NDArray[np.integer]) -> NDArray[np.float64]:
        """See `RandomStream`."""
        wanted = np.bincount(rows, minlength=len(self._used))  # [N]
        before = wanted.cumsum() - wanted  # [N], count of numbers drawn for earlier rows
        columns = self._used[rows] + np.arange(len(rows)) - before[rows]  # [n]
        self._used += wanted
        drawn: NDArray[np.float64] = self._table[rows, columns]
        return drawn

    def integers(self, rows: NDArray[np.integer], limit: int) -> NDArray[np.int32]:
        """See `RandomStream`."""
        return (self.uniform(rows) * limit).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class _Candidates:
    """The candidates of each instance, numbered from left to right.

    Attributes:
        counts: int64 [N], number of candidates.
        index: int32 [N, S], the candidate to which each maskable position belongs.
        ends: int32 [N, C + ngram + 1], number of maskable positions before each candidate. Entries
            after the last candidate hold the total, so that `ends[i + n] - ends[i]` is the number
            of tokens in the n-gram that starts at candidate i.
    """

    counts: NDArray[np.int64]
    index: NDArray[np.int32]
    ends: NDArray[np.int32]


def starts_word(piece: str) -> bool:
    """Returns whether a SentencePiece piece starts a word, like Google's `is_start_piece_sp`.

    A piece starts a word if it begins with "▁" or "<", is a punctuation mark, or contains a
    character that is neither a letter a-z nor punctuation. Every Chinese piece is therefore a
    separate word.
    """
    return (
        piece.startswith(("\u2581", "<"))
        or piece in _PUNCTUATION
        or not all(char.lower() in _LETTERS_AND_PUNCTUATION for char in piece)
    )


def word_start_table(pieces: list[str], is_sentencepiece: bool) -> NDArray[np.bool_]:
    """Returns which pieces of a vocabulary start a word: bool [V].

    In a WordPiece vocabulary these are the pieces without the prefix "##". For SentencePiece see
    `starts_word`; the entry of the unknown token is meaningless, because all unknown pieces share
    its id.
    """
    if is_sentencepiece:
        return np.array([starts_word(piece) for piece in pieces], bool)
    return np.array([not piece.startswith("##") for piece in pieces], bool)


def ngram_probabilities(ngram: int, favor_shorter_ngram: bool) -> NDArray[np.float64]:
    """Returns the probabilities of the n-gram lengths 1 to `ngram`: float64 [ngram].

    They are proportional to 1/n with `favor_shorter_ngram`, and in reverse order without it.
    """
    shares = 1.0 / np.arange(1, ngram + 1)
    shares /= shares.sum()
    return shares if favor_shorter_ngram else shares[::-1]


def num_to_predict(lengths: NDArray[np.integer], settings: MaskingSettings) -> NDArray[np.int64]:
    """Returns how many tokens to mask in instances of the given lengths: int64 [N].

    Args:
        lengths: [N], number of tokens, [CLS] and [SEP] included.
        settings: the masking probability and the maximum number of predictions.
    """
    if settings.masked_lm_prob == 0:
        return np.zeros(len(lengths), np.int64)
    # np.rint rounds half to even, like Python's `round` in Google's program.
    wanted: NDArray[np.int64] = np.rint(lengths * settings.masked_lm_prob).astype(np.int64)
    return np.minimum(np.maximum(wanted, 1), settings.max_predictions_per_seq)


def _find_candidates(
    word_starts: NDArray[np.bool_], maskable: NDArray[np.bool_], settings: MaskingSettings
) -> _Candidates:
    """Groups the maskable positions into candidates.

    Args:
        word_starts: bool [N, S], whether each token starts a word.
        maskable: bool [N, S], whether each position may be masked.
        settings: whether whole words are masked, and the maximum n-gram length.
    """
    num_rows = len(maskable)
    rows = np.arange(num_rows)
    begins = maskable
    if settings.do_whole_word_mask:
        # A piece inside a word joins the candidate before it, even across the middle [SEP]. The
        # first piece of an instance always starts a candidate, since none precedes it.
        begins = maskable & word_starts
        first = maskable.argmax(axis=1)
        begins[rows, first] = maskable[rows, first]
    index = begins.cumsum(axis=1, dtype=np.int32)  # [N, S]
    counts = index[:, -1].astype(np.int64)
    index -= 1
    before = maskable.cumsum(axis=1, dtype=np.int32)  # [N, S]
    total = before[:, -1:].copy()
    before -= maskable
    # Past the last candidate the count stays constant: n-grams that would extend beyond the end of
    # the instance are cut off there.
    width = counts.max(initial=0) + settings.ngram + 1
    ends = np.repeat(total, width, axis=1)
    ends[np.arange(width) < counts[:, None]] = before[begins]
    return _Candidates(counts, index, ends)


def _choose(
    candidates: _Candidates,
    budget: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    stream: RandomStream,
    taken: NDArray[np.bool_],
) -> None:
    """Chooses n-grams of candidates until the budgets are spent, and marks them in `taken`.

    Each candidate of an instance is tried once, in random order, as the start of an n-gram of
    random length. An n-gram that exceeds the remaining budget is shortened. It is skipped if it
    still exceeds the budget, or if it overlaps a candidate chosen earlier.

    Args:
        candidates: the candidates.
        budget: int64 [N], maximum number of positions to choose.
        probabilities: float64 [ngram], probability of each n-gram length.
        stream: the random numbers.
        taken: bool [N, C + ngram + 1], candidates chosen so far; updated in place.
    """
    width = taken.shape[1]
    flat_taken, flat_ends = taken.reshape(-1), candidates.ends.reshape(-1)
    thresholds = np.cumsum(probabilities)[:-1]
    left = budget.copy()
    counts = candidates.counts
    order = np.tile(np.arange(width, dtype=np.int32), (len(left), 1)).reshape(-1)
    rows = np.flatnonzero((left > 0) & (counts > 0))
    step = 0
    while rows.size:
        # Fisher-Yates shuffle: draws the next candidate of a random permutation of each row.
        base = rows * width
        swap = base + step + (stream.uniform(rows) * (counts[rows] - step)).astype(np.int64)
        candidate = order.take(swap)
        order[swap] = order.take(base + step)

        at = base + candidate
        length = 1 + np.searchsorted(thresholds, stream.uniform(rows), side="right")
        begin, remaining = flat_ends.take(at), left.take(rows)
        size = flat_ends.take(at + length) - begin
        for _ in range(len(thresholds)):
            too_long = (size > remaining) & (length > 1)
            if not too_long.any():
                break
            length -= too_long
            size = flat_ends.take(at + length) - begin
        fits = (size <= remaining) & ~flat_taken.take(at)
        for offset in range(1, len(probabilities)):
            fits &= ~(flat_taken.take(at + offset) & (length > offset))

        at, length = at[fits], length[fits]
        flat_taken[at] = True
        for offset in range(1, len(probabilities)):
            flat_taken[at[length > offset] + offset] = True
        left[rows[fits]] -= size[fits]
        step += 1
        rows = rows[(left.take(rows) > 0) & (counts.take(rows) > step)]


def _positions_of(
    taken: NDArray[np.bool_], candidates: _Candidates, maskable: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Returns the positions of the chosen candidates: ascending indices into the flat batch."""
    rows = np.arange(len(taken))[:, None] * taken.shape[1]
    chosen = taken.reshape(-1).take(candidates.index + rows)  # [N, S]
    return np.flatnonzero(chosen & maskable)


def _replace(
    original: NDArray[np.int32],
    rows: NDArray[np.int64],
    mask_id: int,
    vocab_size: int,
    stream: RandomStream,
) -> NDArray[np.int32]:
    """Returns the tokens that replace the chosen ones: [MASK], the original or a random token.

    The choice is made independently for each token, not once per word.

    Args:
        original: int32 [n], the chosen tokens.
        rows: int64 [n], the instance of each, ascending.
        mask_id: id of [MASK].
        vocab_size: V.
        stream: the random numbers.
    """
    draw = stream.uniform(rows)  # [n]
    # Random tokens come from the whole vocabulary, special tokens included, as in Google's program.
    replaced = stream.integers(rows, vocab_size)  # [n]
    replaced = np.where(draw < MASK_SHARE + KEPT_SHARE, original, replaced)
    return np.where(draw < MASK_SHARE, np.int32(mask_id), replaced)


def _permute_within_rows(
    positions: NDArray[np.int64], seq_length: int, stream: RandomStream
) -> NDArray[np.int64]:
    """Shuffles ascending flat `positions` within each row of the batch."""
    rows = positions // seq_length
    return positions[np.lexsort((stream.uniform(rows), rows))]


def _predictions(
    positions: NDArray[np.int64], labels: NDArray[np.int32], num_slots: int
) -> dict[str, NDArray[Any]]:
    """Packs the chosen positions and their labels into zero-padded features [N, P].

    Args:
        positions: int64, ascending indices into the flat batch.
        labels: int32 [N, S], the ids to predict.
        num_slots: P.

    Returns:
        `masked_lm_positions`, `masked_lm_ids` and `masked_lm_weights`, by name.
    """
    num_rows, seq_length = labels.shape
    row = positions // seq_length
    found = np.bincount(row, minlength=num_rows)
    slot = np.arange(len(positions)) - np.repeat(found.cumsum() - found, found)

    def in_slots(values: NDArray[Any] | float, dtype: type[Any]) -> NDArray[Any]:
        padded = np.zeros((num_rows, num_slots), dtype)
        padded[row, slot] = values
        return padded

    return {
        "masked_lm_positions": in_slots(positions - row * seq_length, np.int32),
        "masked_lm_ids": in_slots(labels.take(positions), np.int32),
        "masked_lm_weights": in_slots(1.0, np.float32),
    }


def mask_batch(
    input_ids: NDArray[np.int32],
    word_starts: NDArray[np.bool_],
    maskable: NDArray[np.bool_],
    budget: NDArray[np.int64],
    settings: MaskingSettings,
    mask_id: int,
    vocab_size: int,
    stream: RandomStream,
    labels: NDArray[np.int32] | None = None,
) -> dict[str, NDArray[Any]]:
    """Chooses the tokens to predict and masks them, or replaces them with random tokens.

    With `do_permutation`, a second set of tokens of about the same size is chosen as well, and
    permuted among their positions; these are predicted too.

    Args:
        input_ids: int32 [N, S], the original tokens; not modified.
        word_starts: bool [N, S], whether each token starts a word.
        maskable: bool [N, S], False at [CLS], [SEP] and padding.
        budget: int64 [N], maximum number of tokens to mask; see `num_to_predict`.
        settings: how tokens are chosen.
        mask_id: id of [MASK].
        vocab_size: V; random tokens are drawn uniformly from the whole vocabulary.
        stream: the random numbers.
        labels: int32 [N, S], the ids to predict; defaults to `input_ids`.

    Returns:
        Features by name:

        * input_ids: int32 [N, S], the tokens after masking.
        * masked_lm_positions: int32 [N, P], ascending, zero-padded.
        * masked_lm_ids: int32 [N, P], the labels at these positions, zero-padded.
        * masked_lm_weights: float32 [N, P], 1 for a prediction, 0 for padding.
    """
    seq_length = input_ids.shape[1]
    labels = input_ids if labels is None else labels
    masked = input_ids.copy()
    probabilities = ngram_probabilities(settings.ngram, settings.favor_shorter_ngram)
    candidates = _find_candidates(word_starts, maskable, settings)
    taken = np.zeros(candidates.ends.shape, bool)

    _choose(candidates, budget, probabilities, stream, taken)
    positions = _positions_of(taken, candidates, maskable)
    masked.reshape(-1)[positions] = _replace(
        input_ids.take(positions), positions // seq_length, mask_id, vocab_size, stream
    )
    if settings.do_permutation:
        _choose(candidates, budget, probabilities, stream, taken)
        both = _positions_of(taken, candidates, maskable)
        moved = np.setdiff1d(both, positions, assume_unique=True)
        source = _permute_within_rows(moved, seq_length, stream)
        masked.reshape(-1)[moved] = input_ids.take(source)
        positions = both
    predictions = _predictions(positions, labels, settings.prediction_slots)
    return {"input_ids": masked} | predictions


# Finds Chinese words, for whole-word masking: which tokens of a sentence continue a word.
#
# Chinese is written without spaces, so a word segmenter (jieba, an optional dependency) has to find
# the words. Two ways of using its output are implemented:
#
# * `ChineseWords` aligns words by position: a character continues a word if the segmenter puts it
#   into the same word as the character before it. Words may have any length, and the labels are the
#   ids of the characters.
# * `AlbertZhWords` reproduces `get_new_segment` of albert_zh, for records like those that its
#   released models were trained on. The words of a sentence form a set; scanning from the left, the
#   longest run of up to 3 tokens whose text is in this set is a word, wherever in the sentence the
#   segmenter found it. The labels of its second and third character are their "##" forms.
#
# Both mark Han characters only. The vocabulary decides where all other words start.

Segmenter = Callable[[str], list[str]]

LONGEST_ALBERT_ZH_WORD = 3  # tokens
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")
_ALBERT_ZH_HAN = re.compile("[\u4e00-\u9fa5]")
_CACHED_WORDS = 200_000


def load_segmenter() -> Segmenter:
    """Returns a function that segments text into words with jieba and its default dictionary.

    Raises:
        ValueError: jieba is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # jieba uses deprecated syntax and pkg_resources
            import jieba
    except ImportError:
        raise ValueError(
            "Chinese word segmentation requires jieba: pip install 'albert-tf2[zh]'"
        ) from None
    jieba.setLogLevel(logging.WARNING)
    segmenter = jieba.Tokenizer()  # not jieba's global one, to which users may have added words
    segment: Segmenter = segmenter.lcut
    return segment


class WordMarker(abc.ABC):
    """Marks the tokens that continue a Chinese word.

    Args:
        tokenizer: the tokenizer that produced the tokens.
        segment: splits a text into words; defaults to jieba.

    Attributes:
        label_table: int32 [V], the label of each token where it continues a word; None if this is
            always the token's own id.
    """

    label_table: NDArray[np.int32] | None = None

    def __init__(self, tokenizer: Tokenizer, segment: Segmenter | None = None):
        self._tokenizer = tokenizer
        self._segment = segment or load_segmenter()

    def continues_word(self, lines: list[str], encoded: list[list[int]]) -> NDArray[np.bool_]:
        """Returns which tokens continue a word: bool [tokens of all lines, concatenated].

        Args:
            lines: sentences.
            encoded: their token ids, as returned by `tokenizer.encode_batch`.
        """
        pairs = zip(lines, encoded, strict=True)
        marks = (mark for line, ids in pairs if ids for mark in self.mark(line, ids))
        return np.fromiter(marks, bool, sum(map(len, encoded)))

    @abc.abstractmethod
    def mark(self, line: str, ids: list[int]) -> list[bool]:
        """Returns which tokens of a sentence continue a word."""


class ChineseWords(WordMarker):
    """Marks words by position; see `WordMarker`. The words of the segmenter form the text."""

    def __init__(self, tokenizer: Tokenizer, segment: Segmenter | None = None):
        super().__init__(tokenizer, segment)
        self._basic = BasicTokenizer(tokenizer.do_lower_case)
        self._size_of = functools.lru_cache(_CACHED_WORDS)(lambda word: len(tokenizer.encode(word)))

    def mark(self, line: str, ids: list[int]) -> list[bool]:
        """See `WordMarker`."""
        text, places = self._spell(line)
        begins = {0, *itertools.accumulate(map(len, self._segment(text)))}
        return [
            place not in begins and bool(_HAN.match(text, place) and _HAN.match(text, place - 1))
            for place in places
        ]

    def _spell(self, line: str) -> tuple[str, list[int]]:
        """Returns the text of a line's tokens, and the offset in it at which each token begins."""
        text = ""
        places: list[int] = []
        if self._tokenizer.is_sentencepiece:
            for piece in self._tokenizer.tokenize(line):
                spelled = piece.replace(SPIECE_UNDERLINE, " ")
                places.append(len(text) + len(spelled) - len(spelled.lstrip()))
                text += spelled
            return text, places
        for word in self._basic.words(line):
            is_han = bool(_HAN.match(word))
            # Spaces between Han characters have no meaning; other spaces separate words.
            if text and not is_han and not _HAN.match(text, len(text) - 1):
                text += " "
            # All pieces of a non-Chinese word share its offset, so that they are never marked.
            places += [len(text)] * (1 if is_han else self._size_of(word))
            text += word
        return text, places


class AlbertZhWords(WordMarker):
    """Marks words as albert_zh does, with "##" labels; see `WordMarker`.

    jieba has one word of up to 3 lower-cased tokens that mixes Han and other characters: 江南style.
    albert_zh labels its last piece "##style"; here the piece keeps its own id.

    Raises:
        ValueError: the vocabulary is not WordPiece, or lacks the "##" form of a Han character.
    """

    def __init__(self, tokenizer: Tokenizer, segment: Segmenter | None = None):
        if tokenizer.is_sentencepiece:
            raise ValueError(
                "albert_zh_compat requires a WordPiece vocabulary: set --vocab_file and not "
                "--spm_model_file"
            )
        missing = [
            piece
            for piece in tokenizer.pieces
            if _ALBERT_ZH_HAN.fullmatch(piece) and "##" + piece not in tokenizer.vocab
        ]
        if missing:
            raise ValueError(
                "albert_zh_compat predicts ##字 for 字 inside a word, but the vocabulary lacks "
                f"{len(missing)} such pieces, for example ##{missing[0]}. Use BERT's Chinese "
                "vocabulary, or omit the flag."
            )
        super().__init__(tokenizer, segment)
        continuation_ids = (
            tokenizer.vocab.get("##" + piece, piece_id)
            for piece_id, piece in enumerate(tokenizer.pieces)
        )
        self.label_table = np.fromiter(continuation_ids, np.int32)

    def mark(self, line: str, ids: list[int]) -> list[bool]:
        """See `WordMarker`; marks the tokens that albert_zh gives a "##"."""
        tokens = self._tokenizer.convert_ids_to_tokens(ids)
        words = set(self._segment("".join(tokens)))
        marks: list[bool] = []
        while (first := len(marks)) < len(tokens):
            size = 1
            if _ALBERT_ZH_HAN.search(tokens[first]):
                size = min(LONGEST_ALBERT_ZH_WORD, len(tokens) - first)
                while size > 1 and "".join(tokens[first : first + size]) not in words:
                    size -= 1
            marks += [False] + [True] * (size - 1)
        return marks
