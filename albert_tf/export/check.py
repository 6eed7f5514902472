"""Compares a file for another runtime with the model that it was written from."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from albert_tf.export.runtimes import Array, Batch, Step
from albert_tf.export.signatures import Signature

TOLERANCE = 1e-4  # of float32 weights
_PROBE_SEED = 12345
_PROBE_ROWS = 2
_EXCLUDED = 1e4  # scores that are larger mark what is no answer
_TEXT_LENGTH = 16
_TEXT_TOKENS = 64 * _TEXT_LENGTH
_FIRST_ID = 5  # special tokens come first
# Numbers of beams → what the beams are: some with almost the same score may change places.
_BEAMS = {"end_top_log_probs": "start_top_index"}
_LOG_PROBABILITIES = "_log_probs"  # end of their names; `start_log_prob` has logits, as officially


@dataclasses.dataclass(frozen=True)
class Difference:
    """The largest difference of an output of a file from that of the model.

    Attributes:
        absolute: the difference.
        relative: the largest one as a share of the largest number of the same output.
    """

    absolute: float
    relative: float


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


def random_texts(signature: Signature, is_fixed: bool, vocab_size: int) -> list[Batch]:
    """Returns batches of random texts of the whole vocabulary.

    Quantized weights are compared with them as well as with examples: the few rows of training data
    that a run keeps, of which the model is sure, may show a hundredth of what 200 lines do.

    Args:
        signature: names and shapes of the inputs.
        is_fixed: whether the file takes a single row, of a fixed length.
        vocab_size: size of the vocabulary.
    """
    random = np.random.default_rng(_PROBE_SEED)
    length = signature.inputs["input_ids"].shape[-1] or _TEXT_LENGTH
    rows = max(_PROBE_ROWS, _TEXT_TOKENS // length)
    texts = {}
    for name, spec in signature.inputs.items():
        shape = (rows, *[2] * (spec.shape.rank - 2), length)  # a question has two options
        if name == "input_ids":
            ids = random.integers(_FIRST_ID, vocab_size, shape)
        elif name == "segment_ids":
            ids = random.integers(0, 2, shape)
        else:  # all tokens count, and any of them may start an answer
            ids = np.full(shape, name == "input_mask")
        texts[name] = ids.astype(np.int32)
    size = 1 if is_fixed else rows
    return [
        {name: array[begin : begin + size] for name, array in texts.items()}
        for begin in range(0, rows, size)
    ]


def compare(run: Step, signature: Signature, batches: Iterable[Batch]) -> Difference:
    """Returns the largest difference of an output of a file from that of the model.

    Log probabilities are compared as probabilities: what is unlikely anyway may become less likely.
    """
    absolute: dict[str, float] = collections.defaultdict(float)
    largest: dict[str, float] = collections.defaultdict(float)
    for batch in batches:
        inputs = {name: batch[name] for name in signature.inputs}
        computed = signature.function(*map(tf.constant, inputs.values()))
        expected = {name: value.numpy() for name, value in computed.items()}
        found = run(inputs)
        for name, value in expected.items():
            if value.dtype.kind != "f" or not value.ndim:
                continue
            where = (np.abs(value) < _EXCLUDED) & _same_beams(name, found, expected)
            pair = found[name], value
            if name.endswith(_LOG_PROBABILITIES):
                pair = np.exp(found[name]), np.exp(value)
            difference, size = np.abs(pair[0] - pair[1]), np.abs(pair[1])
            absolute[name] = max(absolute[name], np.max(difference, where=where, initial=0.0))
            largest[name] = max(largest[name], np.max(size, where=where, initial=0.0))
    relative = max(absolute[name] / (largest[name] or 1.0) for name in absolute)
    return Difference(float(max(absolute.values())), float(relative))


def _same_beams(
    name: str, found: Mapping[str, Array], expected: Mapping[str, Array]
) -> Array | bool:
    """Returns which numbers of an output are those of the same beams; True for all of them."""
    if name not in _BEAMS:
        return True
    is_same = found[_BEAMS[name]] == expected[_BEAMS[name]]
    return np.repeat(is_same, expected[name].shape[-1] // is_same.shape[-1], axis=-1)
