"""Compares a file for another runtime with the model that it was written from."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from albert_tf.export.runtimes import Step
from albert_tf.export.signatures import Signature

TOLERANCE = 1e-4  # of float32 weights
_PROBE_SEED = 12345
_PROBE_ROWS = 2


def compare(run: Step, signature: Signature, is_fixed: bool) -> float:
    """Returns the largest difference of an output of a file from that of the model."""
    random = np.random.default_rng(_PROBE_SEED)
    rows = 1 if is_fixed else _PROBE_ROWS
    batch = {}
    for name, spec in signature.inputs.items():
        shape = [rows, *(size or 7 for size in spec.shape[1:])]
        batch[name] = random.integers(0, 2, shape).astype(np.int32)
        if name == "input_ids":
            batch[name] = random.integers(5, 60, shape).astype(np.int32)
        elif name != "segment_ids":
            batch[name][..., 0] = 1  # a row has at least one token
    expected = signature.function(*map(tf.constant, batch.values()))
    found = run(batch)
    return max(
        float(np.max(np.abs(found[name] - value.numpy()), initial=0.0))
        for name, value in expected.items()
        if value.dtype.is_floating and value.shape.rank
    )
