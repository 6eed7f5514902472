"""Advice on how a pre-training run goes: likely mistakes, and losses that have stopped to fall.

Nothing here stops a run or changes it. All functions are pure, and give sentences for the log.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

PAPER_LEARNING_RATE = 0.00176  # with LAMB; section 4.1 of the ALBERT paper
PAPER_BATCH_SIZE = 4096
# A batch "far below" the paper's: at a fourth of it the scaled rate is half of the paper's.
FAR_BELOW = 4

LEAST_LINES = 8  # of the log, for a judgement: single ones are noisy
MASKED_LM_STEPS = 2000
LEAST_FALL = 0.05  # nats, between the means of the two halves of these steps
NEAR_ENTROPY = 0.25  # nats above or below
# Sentence order is learned later than words are.
SENTENCE_ORDER_STEPS = 5000
CHANCE_ACCURACY = 0.52  # at most; the data program swaps every other pair
CHANCE_LOSS = math.log(2) - 0.005  # nats, at least

Line = Mapping[str, Any]


def scaled_learning_rate(
    rate: float, batch_size: int, reference_batch_size: int = PAPER_BATCH_SIZE
) -> float:
    """A learning rate for another batch size, by the square-root rule of the LAMB paper.

    Args:
        rate: what suits batches of `reference_batch_size`.
        batch_size: examples of a step, over all devices.
        reference_batch_size: as above.

    Returns:
        rate · sqrt(batch_size / reference_batch_size).

    Raises:
        ValueError: a batch size is not positive.
    """
    if min(batch_size, reference_batch_size) < 1:
        raise ValueError(
            f"batch sizes of 1 or more expected, got {batch_size} and {reference_batch_size}"
        )
    return rate * math.sqrt(batch_size / reference_batch_size)


def learning_rate_hints(rate: float, batch_size: int) -> list[str]:
    """A warning where the paper's learning rate meets a batch far below the paper's.

    Args:
        rate: the peak learning rate.
        batch_size: examples of a step, over all devices.
    """
    is_papers = math.isclose(rate, PAPER_LEARNING_RATE, rel_tol=1e-3)
    if not is_papers or batch_size * FAR_BELOW > PAPER_BATCH_SIZE:
        return []
    scaled = scaled_learning_rate(rate, batch_size)
    return [
        f"--learning_rate={rate:g} belongs to batches of {PAPER_BATCH_SIZE}, and "
        f"--train_batch_size is {batch_size}. By the square-root rule the rate for it is "
        f"{scaled:.3g}: pass --scale_learning_rate, or --learning_rate={scaled:.3g}."
    ]


def unigram_entropy(ids: NDArray[np.integer]) -> float:
    """Entropy of the distribution of tokens, in nats: the loss of guessing by frequency alone.

    Args:
        ids: a sample of tokens, of any shape. Estimated from n tokens of k kinds, the entropy comes
            out too small by about (k - 1) / 2n (Miller and Madow 1955), which is added here.

    Raises:
        ValueError: there are none.
    """
    if not ids.size:
        raise ValueError("a sample of tokens expected, this one is empty")
    _, counts = np.unique(ids, return_counts=True)
    shares = counts / ids.size
    return float(-(shares * np.log(shares)).sum() + (len(counts) - 1) / (2 * ids.size))


def plateau_hints(history: Sequence[Line], entropy: float | None = None) -> list[str]:
    """Hints where a loss stays at what guessing gives.

    * Masked words: over the last MASKED_LM_STEPS the loss was within NEAR_ENTROPY of `entropy`, and
      its mean over the second half of them less than LEAST_FALL below that over the first.
    * Sentence order: over the last SENTENCE_ORDER_STEPS the mean loss was CHANCE_LOSS or more, and
      the mean accuracy CHANCE_ACCURACY or less.

    At least LEAST_LINES lines are looked at: more steps where the log is sparse.

    Args:
        history: lines of metrics.jsonl, ascending by `step`.
        entropy: `unigram_entropy` of masked words; without it nothing is said of them.
    """
    return [*_masked_lm_hints(history, entropy), *_sentence_order_hints(history)]


def _masked_lm_hints(history: Sequence[Line], entropy: float | None) -> list[str]:
    losses = _last(history, MASKED_LM_STEPS, "masked_lm_loss")
    if entropy is None or losses is None:
        return []
    middle = len(losses) // 2
    fall = losses[:middle].mean() - losses[middle:].mean()
    if abs(losses.mean() - entropy) > NEAR_ENTROPY or fall >= LEAST_FALL:
        return []
    return [
        f"masked_lm_loss has stayed at {losses.mean():.2f} for {MASKED_LM_STEPS} steps or more, "
        f"about the entropy of the masked tokens ({entropy:.2f}): the model guesses them by their "
        "frequency and does not use their context yet. Many runs leave this plateau by "
        "themselves. If this one does not, try a lower --learning_rate, a longer warm-up, or a "
        "larger batch."
    ]


def _sentence_order_hints(history: Sequence[Line]) -> list[str]:
    losses = _last(history, SENTENCE_ORDER_STEPS, "sentence_order_loss")
    hits = _last(history, SENTENCE_ORDER_STEPS, "sentence_order_accuracy")
    if losses is None or hits is None:
        return []
    if losses.mean() < CHANCE_LOSS or hits.mean() > CHANCE_ACCURACY:
        return []
    return [
        f"sentence_order_accuracy has stayed at {hits.mean():.2f}, and its loss at "
        f"{losses.mean():.3f} (ln 2 is 0.693), for {SENTENCE_ORDER_STEPS} steps or more: the model "
        "guesses the order of the segments. It is learned late where documents are short or the "
        "model is small. Look at the records with tools/inspect_records.py, and try a lower "
        "--learning_rate."
    ]


def _last(history: Sequence[Line], steps: int, name: str) -> NDArray[np.float64] | None:
    """A metric over the last `steps`, and LEAST_LINES lines; None where there are not so many."""
    lines = [line for line in history if name in line]
    recent = [line for line in lines if line["step"] > lines[-1]["step"] - steps]
    count = max(len(recent), LEAST_LINES)
    # One more line, before them, says that they are not all that there is.
    if len(lines) <= count:
        return None
    return np.array([line[name] for line in lines[-count:]], np.float64)


class PlateauWatch:
    """Gives each of `plateau_hints` once, as lines of the log come in.

    Args:
        entropy: as in `plateau_hints`.
    """

    def __init__(self, entropy: float | None = None) -> None:
        self.entropy = entropy
        self._history: list[Line] = []
        self._given: set[str] = set()

    def observe(self, line: Line) -> list[str]:
        """The hints that are new with this line, which has a `step` and metrics."""
        self._history.append(line)
        oldest = line["step"] - 2 * max(MASKED_LM_STEPS, SENTENCE_ORDER_STEPS)
        if self._history[0]["step"] < oldest and len(self._history) > 2 * LEAST_LINES:
            del self._history[0]
        new = {
            hint.split()[0]: hint  # by the metric that it is about
            for hint in plateau_hints(self._history, self.entropy)
            if hint.split()[0] not in self._given
        }
        self._given |= new.keys()
        return list(new.values())
