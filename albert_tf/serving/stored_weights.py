"""Models that store their weights in half precision and compute in float32.

A SavedModel of such a model needs half the disk space and memory. Each call casts the weights to
float32, so that the outputs differ only by the rounding of the weights.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

FLOAT32 = "float32"
PRECISIONS = (FLOAT32, "bfloat16", "float16")


class _StoredIn(tf_keras.mixed_precision.Policy):
    """Policy of layers whose variables have the given dtype and that compute in float32."""

    def _parse_name(self, name: str) -> tuple[str, str]:
        return FLOAT32, name


def store_in(model: Any, precision: str) -> Any:
    """Returns a model that stores its weights in the given precision and computes in float32.

    LayerNorm parameters stay in float32: there are few of them, and large activations result from
    its scale.

    Args:
        model: a model of `albert_tf.modeling` or `albert_tf.heads` with float32 weights.
        precision: one of `PRECISIONS`.

    Returns:
        `model` itself for float32; otherwise, a copy with rounded weights.
    """
    if precision == FLOAT32:
        return model
    config = model.get_config() | {"dtype": _StoredIn(precision)}
    copy = type(model).from_config(config)
    for stored, weight in zip(copy.variables, model.variables, strict=True):
        stored.assign(tf.cast(weight, stored.dtype))
    return copy
