"""The step of a `BatchRunner` that TensorFlow computes, traced once for batches of all lengths."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import tensorflow as tf

from albert_tf.finetuning.batch_runner import Step
from albert_tf.training.task import Batch

Compute: TypeAlias = Callable[[Batch], Mapping[str, tf.Tensor]]  # batch → outputs


def tensorflow_step(
    compute: Compute, signature: Mapping[str, tf.TensorSpec], outputs: Iterable[str]
) -> Step:
    """Returns a step that computes some outputs of batches of a signature.

    Args:
        compute: computes the outputs of a batch.
        signature: name → TensorSpec of a batch.
        outputs: names of the outputs that the step returns.
    """
    # A partial: TensorFlow counts the traces of functions with the same code together, and would
    # warn of the fifth predictor in a process.
    step = functools.partial(only(compute, outputs))
    return tf.function(step, input_signature=[signature])


def only(compute: Compute, outputs: Iterable[str]) -> Callable[[Batch], dict[str, tf.Tensor]]:
    """Returns a function that computes some of the outputs, and no others in a graph."""
    names = tuple(outputs)

    def compute_some(batch: Batch) -> dict[str, tf.Tensor]:
        computed = compute(batch)
        return {name: computed[name] for name in names}

    return compute_some
