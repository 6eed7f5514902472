"""Compares a file for another runtime with the model that it was written from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from albert_tf.export.runtimes import Array, Batch, Step
from albert_tf.export.signatures import Signature

TOLERANCE = 1e-4  # of float32 weights
_PROBE_SEED = 12345
_PROBE_ROWS = 2
_EXCLUDED = 1e4  # scores that are larger mark what is no answer


@dataclasses.dataclass(frozen=True)
class Difference:
    """The largest difference of an output of a file from that of the model.

    Attributes:
        absolute: the difference.
        relative: the largest one as a share of the largest number of the same output.
    """

    absolute: float = 0.0
    relative: float = 0.0

    def or_of(self, found: Array, expected: Array) -> Difference:
        """Returns the larger of this difference and that of two outputs of a batch."""
        size = np.abs(expected)
        is_compared = size < _EXCLUDED
        absolute = float(np.max(np.abs(found - expected), where=is_compared, initial=0.0))
        largest = float(np.max(size, where=is_compared, initial=0.0))
        relative = absolute / (largest or 1.0)
        return Difference(max(self.absolute, absolute), max(self.relative, relative))


def random_batch(signature: Signature, is_fixed: bool) -> Batch:
    """Returns random ids, of which each row has at least one token.

    Args:
        signature: names and shapes of the inputs.
        is_fixed: whether the file takes a single row.
    """
    random = np.random.default_rng(_PROBE_SEED)
    rows = 1 if is_fixed else _PROBE_ROWS
    batch = {}
    for name, spec in signature.inputs.items():
        shape = [rows, *(size or 7 for size in spec.shape[1:])]
        batch[name] = random.integers(0, 2, shape).astype(np.int32)
        if name == "input_ids":
            batch[name] = random.integers(5, 60, shape).astype(np.int32)
        elif name != "segment_ids":
            batch[name][..., 0] = 1
    return batch


def compare(run: Step, signature: Signature, batches: Iterable[Batch]) -> Difference:
    """Returns the largest difference of an output of a file from that of the model."""
    difference = Difference()
    for batch in batches:
        inputs = {name: batch[name] for name in signature.inputs}
        expected = signature.function(*map(tf.constant, inputs.values()))
        found = run(inputs)
        for name, value in expected.items():
            if value.dtype.is_floating and value.shape.rank:
                difference = difference.or_of(found[name], value.numpy())
    return difference
