"""Masking of a batch of instances: whole words, n-grams, 80/10/10.

`mask_batch` does what Google's `create_masked_lm_predictions` does, for many instances at once.
Google's program walks through one shuffled list of n-grams per instance; here one NumPy step
handles the next n-gram of every instance of the batch. The distribution of the results is the same.

A *candidate* is what is masked together: a whole word, or with `do_whole_word_mask=False` a single
piece.

Shapes: N instances, S sequence length, P prediction slots, C candidates, V vocabulary size.
Source: ALBERT (arXiv 1909.11942), section 4.1, for the n-gram lengths.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albert_tf.data.settings import MaskingSettings

MASK_SHARE = 0.8  # of the chosen positions become [MASK]
KEPT_SHARE = 0.1  # keep their token; the rest become a random one

# As in Google's program. The lists lack ', =, and >: pieces with one of these start a word.
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_LETTERS_AND_PUNCTUATION = _PUNCTUATION | frozenset("abcdefghijklmnopqrstuvwxyz")


@dataclasses.dataclass(frozen=True)
class _Candidates:
    """The candidates of every instance, numbered from the left.

    Attributes:
        counts: int64 [N], candidates per instance.
        index: int32 [N, S], the candidate that a maskable position belongs to.
        ends: int32 [N, C + ngram], number of maskable positions before each candidate; after the
            instance's last candidate, the number of all its maskable positions.
    """

    counts: NDArray[np.int64]
    index: NDArray[np.int32]
    ends: NDArray[np.int32]


def starts_word(piece: str) -> bool:
    """Whether a SentencePiece piece starts a word, as Google's `is_start_piece_sp`.

    It does if it begins with "▁" or "<", is a punctuation mark, or has a character that is neither
    a-z nor punctuation (so that every Chinese piece is a word of its own).
    """
    return (
        piece.startswith(("\u2581", "<"))
        or piece in _PUNCTUATION
        or not all(char.lower() in _LETTERS_AND_PUNCTUATION for char in piece)
    )


def word_start_table(pieces: list[str], is_sentencepiece: bool) -> NDArray[np.bool_]:
    """Which pieces of a vocabulary start a word: bool [V].

    WordPiece: those without "##" at the beginning. SentencePiece: see `starts_word`; this does not
    hold for the unknown pieces of a text, which all have the same id.
    """
    if is_sentencepiece:
        return np.array([starts_word(piece) for piece in pieces], bool)
    return np.array([not piece.startswith("##") for piece in pieces], bool)


def ngram_probabilities(ngram: int, favor_shorter_ngram: bool) -> NDArray[np.float64]:
    """Probabilities of the lengths 1 to `ngram`: proportional to 1/n, or these in reverse."""
    shares = 1.0 / np.arange(1, ngram + 1)
    shares /= shares.sum()
    return shares if favor_shorter_ngram else shares[::-1]


def num_to_predict(lengths: NDArray[np.integer], settings: MaskingSettings) -> NDArray[np.int64]:
    """Number of positions to mask in instances of these lengths, with [CLS] and [SEP]: [N]."""
    if settings.masked_lm_prob == 0:
        return np.zeros(len(lengths), np.int64)
    # np.rint rounds halves to even, as Python's round does in Google's program.
    wanted: NDArray[np.int64] = np.rint(lengths * settings.masked_lm_prob).astype(np.int64)
    return np.minimum(np.maximum(wanted, 1), settings.max_predictions_per_seq)


def _find_candidates(
    word_starts: NDArray[np.bool_], maskable: NDArray[np.bool_], settings: MaskingSettings
) -> _Candidates:
    """Groups the maskable positions into candidates. Both arguments are bool [N, S]."""
    num_rows = len(maskable)
    rows = np.arange(num_rows)
    begins = maskable
    if settings.do_whole_word_mask:
        # A piece inside a word joins the candidate before it, even across the middle [SEP]. The
        # first piece of the instance has none before it and begins one.
        begins = maskable & word_starts
        first = maskable.argmax(axis=1)
        begins[rows, first] = maskable[rows, first]
    index = begins.cumsum(axis=1, dtype=np.int32)  # [N, S]
    counts = index[:, -1].astype(np.int64)
    index -= 1
    before = maskable.cumsum(axis=1, dtype=np.int32)  # [N, S]
    total = before[:, -1:].copy()
    before -= maskable
    # The columns after an instance's last candidate add no positions: n-grams that reach over the
    # end have fewer candidates.
    ends = np.repeat(total, counts.max(initial=0) + settings.ngram + 1, axis=1)
    row, column = np.nonzero(begins)
    ends[row, index[row, column]] = before[row, column]
    return _Candidates(counts, index, ends)


def _choose(
    candidates: _Candidates,
    budget: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    rng: np.random.Generator,
    taken: NDArray[np.bool_],
) -> None:
    """Chooses n-grams of candidates until the budgets are used up, and marks them in `taken`.

    Every candidate of an instance is tried once, in random order, as the begin of an n-gram of
    random length. An n-gram over the budget is shortened; if it is still over it, or contains a
    candidate that is taken already, it is skipped.

    Args:
        candidates: the candidates.
        budget: [N], maximum number of positions to take.
        probabilities: [ngram], of the lengths 1 to ngram.
        rng: random generator.
        taken: bool [N, C + ngram + 1], candidates that are taken already; changed in place.
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
        # The next entry of a random permutation of each row's candidates (Fisher and Yates).
        base = rows * width
        swap = base + step + (rng.random(rows.size) * (counts[rows] - step)).astype(np.int64)
        candidate = order.take(swap)
        order[swap] = order.take(base + step)

        at = base + candidate
        length = 1 + np.searchsorted(thresholds, rng.random(rows.size), side="right")
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
    """The positions of the taken candidates: ascending indices into the flattened batch."""
    rows = np.arange(len(taken))[:, None] * taken.shape[1]
    chosen = taken.reshape(-1).take(candidates.index + rows)  # [N, S]
    return np.flatnonzero(chosen & maskable)


def _replace(
    original: NDArray[np.int32], mask_id: int, vocab_size: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Masks, keeps or replaces the chosen tokens; drawn for each position, not for each word."""
    draw = rng.random(len(original))
    # Any id is possible, special tokens included, as in Google's program.
    replaced = rng.integers(0, vocab_size, len(original), dtype=np.int32)
    replaced = np.where(draw < MASK_SHARE + KEPT_SHARE, original, replaced)
    return np.where(draw < MASK_SHARE, np.int32(mask_id), replaced)


def _permute_within_rows(
    positions: NDArray[np.int64], seq_length: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Shuffles `positions`, which ascend, within each row of the batch."""
    keys = rng.random(len(positions))
    return positions[np.lexsort((keys, positions // seq_length))]


def _predictions(
    positions: NDArray[np.int64], labels: NDArray[np.int32], num_slots: int
) -> dict[str, NDArray[Any]]:
    """Lays out `positions`, which ascend, and the ids there in slots: features [N, P] by name."""
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
    rng: np.random.Generator,
    labels: NDArray[np.int32] | None = None,
) -> dict[str, NDArray[Any]]:
    """Chooses the positions to predict, and masks or replaces the tokens there.

    Args:
        input_ids: int32 [N, S].
        word_starts: bool [N, S], whether the piece starts a word.
        maskable: bool [N, S], False at [CLS], [SEP] and padding.
        budget: int64 [N], maximum number of positions to choose; see `num_to_predict`.
        settings: how to choose.
        mask_id: id of [MASK].
        vocab_size: V; random replacements are uniform over the vocabulary.
        rng: random generator.
        labels: int32 [N, S], the ids to predict; `input_ids` by default.

    Returns:
        features by name; the argument `input_ids` is not changed.

        * input_ids: int32 [N, S], the tokens after masking.
        * masked_lm_positions: int32 [N, P], ascending, zero-padded.
        * masked_lm_ids: int32 [N, P], the original tokens there, zero-padded.
        * masked_lm_weights: float32 [N, P], 1 for a prediction, 0 for padding.
    """
    seq_length = input_ids.shape[1]
    labels = input_ids if labels is None else labels
    masked = input_ids.copy()
    probabilities = ngram_probabilities(settings.ngram, settings.favor_shorter_ngram)
    candidates = _find_candidates(word_starts, maskable, settings)
    taken = np.zeros(candidates.ends.shape, bool)

    _choose(candidates, budget, probabilities, rng, taken)
    positions = _positions_of(taken, candidates, maskable)
    masked.reshape(-1)[positions] = _replace(input_ids.take(positions), mask_id, vocab_size, rng)
    if settings.do_permutation:
        _choose(candidates, budget, probabilities, rng, taken)
        both = _positions_of(taken, candidates, maskable)
        moved = np.setdiff1d(both, positions, assume_unique=True)
        source = _permute_within_rows(moved, seq_length, rng)
        masked.reshape(-1)[moved] = input_ids.take(source)
        positions = both
    predictions = _predictions(positions, labels, settings.prediction_slots)
    return {"input_ids": masked} | predictions
