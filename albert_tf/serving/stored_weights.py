"""Models that store their weights in half precision and compute in float32.

A SavedModel of such a model takes half the disk space and memory. Its weights are converted to
float32 once in each call, so that its outputs differ by the rounding of the weights alone.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

FLOAT32 = "float32"
PRECISIONS = (FLOAT32, "bfloat16", "float16")


class _StoredIn(tf_keras.mixed_precision.Policy):
    """The policy of layers with variables of one dtype that compute in float32."""

    def _parse_name(self, name: str) -> tuple[str, str]:
        return FLOAT32, name


def store_in(model: Any, precision: str) -> Any:
    """Returns a model that stores its weights in a precision and computes in float32.

    The parameters of LayerNorm stay in float32: they are few, and its gain is what large
    activations are made of.

    Args:
        model: of `albert_tf.modeling` or `albert_tf.heads`, with float32 weights.
        precision: one of `PRECISIONS`.

    Returns:
        `model` itself for float32; else a copy of it with rounded weights.
    """
    if precision == FLOAT32:
        return model
    config = model.get_config() | {"dtype": _StoredIn(precision)}
    copy = type(model).from_config(config)
    for stored, weight in zip(copy.variables, model.variables, strict=True):
        stored.assign(tf.cast(weight, stored.dtype))
    return copy
