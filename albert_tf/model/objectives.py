"""The sentence objectives: what a model learns from segment pairs, besides masked words.

A `SentenceObjective` defines how pairs are made and labeled, and the names of its head, loss and
metrics. There are three:

* `sop`, sentence-order prediction: two consecutive segments are in order or swapped. Source: ALBERT
  (arXiv 1909.11942), section 3.1.
* `nsp`, next-sentence prediction: the second segment follows the first, or is from another
  document. Source: BERT.
* `none`: pairs are consecutive segments in order, and only masked words are learned.

`register` adds an objective of your own, whose abbreviation `--sentence_objective` then accepts.
Call it in the main script, because the worker processes import that:

    def make_pair(a, b, rng, random_segment):
        if b is None or rng.random() < 1 / 3:
            return a, random_segment(), 2
        return (b, a, 1) if rng.random() < 0.5 else (a, b, 0)

    classes = ("in order", "swapped", "from another document")
    register(SentenceObjective("sentence_structure", "sop3", classes, make_pair))

TensorFlow is not imported here, because the data program does not need it.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Protocol

SOP = "sop"
NSP = "nsp"
NONE = "none"
SCOPE = "cls/seq_relationship/"  # Google's prefix of the names of the head's weights
_RESERVED = frozenset({"masked_lm", "mlm"})  # the other objective's names in metrics and the log

Segment = tuple[int, int]  # offsets of its first token and of the one after its last
Pair = tuple[Segment, Segment, int]  # first and second segment, and label


class PairRule(Protocol):
    """Function that makes and labels the segment pair of an instance."""

    def __call__(
        self,
        a: Segment,
        b: Segment | None,
        rng: random.Random,
        random_segment: Callable[[], Segment],
        /,
    ) -> Pair:
        """Returns the pair.

        Args:
            a: a segment of the document, of one or more sentences.
            b: the segment that follows it; None after a sentence that is the last one of its
                document or that is as long as an instance. If it is not part of the pair, its
                sentences are used again, for the next pairs.
            rng: random generator, the only source of randomness.
            random_segment: draws a segment from another document.
        """


@dataclasses.dataclass(frozen=True)
class SentenceObjective:
    """A sentence objective.

    Attributes:
        name: name in metrics and outputs: lowercase letters, digits and underscores.
        abbreviation: name in settings, records and the log, with the same characters.
        classes: what each label means, K names, at most 128 because a label is stored in a byte;
            empty if there is nothing to learn from pairs, and therefore no head, loss and metrics.
        make_pair: makes and labels the pairs, see `PairRule`; labels are in [0, K), or 0 without
            classes.
    """

    name: str
    abbreviation: str
    classes: tuple[str, ...]
    make_pair: PairRule

    @property
    def num_classes(self) -> int:
        """K, the number of classes; 0 without a head."""
        return len(self.classes)

    @property
    def has_head(self) -> bool:
        """Whether there is anything to learn from pairs."""
        return bool(self.classes)

    @property
    def logits_name(self) -> str:
        """Key of the model's output."""
        return f"{self.name}_logits"

    @property
    def loss_name(self) -> str:
        """Name of the loss in metrics."""
        return f"{self.name}_loss"

    @property
    def accuracy_name(self) -> str:
        """Name of the accuracy in metrics."""
        return f"{self.name}_accuracy"

    def describe(self, label: int) -> str:
        """Returns a label with its meaning, if it has one, for messages."""
        return f"{label} ({self.classes[label]})" if label < self.num_classes else str(label)


OBJECTIVES: dict[str, SentenceObjective] = {}  # by abbreviation, in the order of registration


def register(objective: SentenceObjective) -> SentenceObjective:
    """Adds an objective to those that settings and models accept, and returns it.

    Raises:
        ValueError: another objective has its name or abbreviation.
    """
    others = [other for other in OBJECTIVES.values() if other != objective]
    taken = _RESERVED.union(*((other.name, other.abbreviation) for other in others))
    for name in (objective.name, objective.abbreviation):
        if name in taken:
            raise ValueError(
                f"sentence objective {name!r}: the name is taken; those in use are "
                f"{', '.join(sorted(taken))}"
            )
    return OBJECTIVES.setdefault(objective.abbreviation, objective)


def find(abbreviation: str) -> SentenceObjective:
    """Returns the objective that has an abbreviation.

    Raises:
        ValueError: there is none. The message lists those that exist.
    """
    if abbreviation not in OBJECTIVES:
        raise ValueError(
            f"sentence_objective={abbreviation!r}: expected one of {', '.join(OBJECTIVES)}, or one "
            "added with albert_tf.model.objectives.register"
        )
    return OBJECTIVES[abbreviation]


def _sentence_order(
    a: Segment, b: Segment | None, rng: random.Random, random_segment: Callable[[], Segment]
) -> Pair:
    if b is None:  # as in Google's program, which has no class of its own for this
        return a, random_segment(), 1
    return (b, a, 1) if rng.random() < 0.5 else (a, b, 0)


def _next_sentence(
    a: Segment, b: Segment | None, rng: random.Random, random_segment: Callable[[], Segment]
) -> Pair:
    if b is None or rng.random() < 0.5:
        return a, random_segment(), 1
    return a, b, 0


def _consecutive(
    a: Segment, b: Segment | None, rng: random.Random, random_segment: Callable[[], Segment]
) -> Pair:
    return a, b or (a[1], a[1]), 0  # a sentence on its own is followed by an empty segment


register(SentenceObjective("sentence_order", SOP, ("in order", "swapped"), _sentence_order))
register(SentenceObjective("next_sentence", NSP, ("next", "random"), _next_sentence))
register(SentenceObjective(NONE, NONE, (), _consecutive))
