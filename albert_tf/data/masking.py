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

import dataclasses
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from albert_tf.data.random_streams import RandomStream
    from albert_tf.data.settings import MaskingSettings
    from albert_tf.data.tf_example import Features

Number = TypeVar("Number", bound=np.generic)

MASK_SHARE = 0.8  # fraction of the chosen tokens replaced by [MASK]
KEPT_SHARE = 0.1  # fraction left unchanged; the others are replaced by random tokens


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
) -> Features:
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

    def in_slots(values: NDArray[np.integer] | float, dtype: type[Number]) -> NDArray[Number]:
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
) -> Features:
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
