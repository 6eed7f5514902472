"""Checks what `fit`, `evaluate` and `predict` are given, before Keras does in sixty lines.

Data sets are known by the types of their elements, and generators not at all.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.model.inputs import are_texts, check_range

_TEXTS = "these are texts: model.{method}(tokenizer(texts), …)"
_LABELS = (
    "these labels are texts: model.{method} takes their numbers, such as "
    "np.array([names.index(label) for label in labels])"
)


def features_and_labels(features: object, labels: object) -> tuple[object, object]:
    """Returns the data of a method, or of a data set the types of its elements."""
    if not isinstance(features, tf.data.Dataset):
        return features, labels
    spec = features.element_spec
    return tuple(spec[:2]) if isinstance(spec, tuple) and len(spec) > 1 else (spec, None)


def refuse_texts(method: str, features: object, labels: object = None) -> None:
    """Raises ValueError if a method of a model is given texts in place of their ids.

    Args:
        method: the method, for the message.
        features: its first argument, or the types of a data set.
        labels: its second one, likewise.
    """
    if isinstance(features, Mapping):
        # Others, such as a text beside its ids, are not read.
        ids = [features[name] for name in ("input_ids", "inputs_embeds") if name in features]
        features = ids or list(features.values())
    for values, message in ((features, _TEXTS), (labels, _LABELS)):
        if are_texts(values):
            raise ValueError(message.format(method=method))


def has_shapes(features: object, method: str) -> bool:
    """Returns whether features are arrays, or a dict of them, with known shapes.

    Raises:
        ValueError: they are a list, which Keras takes for several inputs.
    """
    if isinstance(features, (list, tuple)):
        raise ValueError(
            f"model.{method} takes an array of ids, [B, S], or the dict of tokenizer(texts); got a "
            f"{type(features).__name__}: pass np.array(…) of rows of equal length"
        )
    values = features.values() if isinstance(features, Mapping) else [features]
    return all(hasattr(value, "shape") and hasattr(value, "dtype") for value in values)


def as_labels(labels: object) -> object:
    """Returns a list of numbers as an array; Keras takes lists only beside lists."""
    if isinstance(labels, (list, tuple)) and labels and isinstance(labels[0], numbers.Number):
        return np.asarray(labels)
    return labels


def check_labels(
    labels: object, loss: object, axes: Sequence[str], num_labels: int | None, method: str
) -> None:
    """Checks that labels are there, and are those of the model, if these are ids of classes.

    Args:
        labels: the second argument of a method, or its type in a data set.
        loss: that of `compile`, or None; only a cross-entropy of ids says what labels are.
        axes: those of the ids of a batch, such as ("B",); () if they are not known.
        num_labels: number of classes of the model; None if it is not known.
        method: the method, for the message.

    Raises:
        ValueError: a loss has no labels, they have another shape, or one is no class of the model.
    """
    if labels is None and loss is not None:
        raise ValueError(f"the labels are missing: model.{method}(inputs, labels)")
    if not isinstance(loss, tf_keras.losses.SparseCategoricalCrossentropy) or not axes:
        return
    shape = tf.TensorShape(getattr(labels, "shape", None))
    has_column = shape.rank == len(axes) + 1 and shape[-1] == 1
    if shape.rank not in (None, len(axes)) and not has_column:
        advice = ". Of one-hot labels, pass labels.argmax(-1)" if shape[-1] == num_labels else ""
        raise ValueError(
            f"labels have the shape {tuple(shape)}: expected [{', '.join(axes)}], the number of a "
            f"class each{advice}"
        )
    ignored = loss.get_config().get("ignore_class")
    check_range(labels, "labels", num_labels, f"num_labels={num_labels}", ignored)
