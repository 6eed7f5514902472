"""Refuses losses and metrics that expect probabilities, or labels, of models that return logits.

Keras computes all of them from any numbers. A cross-entropy whose `from_logits` is False clips
logits to [0, 1], and the model learns nothing; a metric with a threshold of 0.5 counts something
else. Each is named here with what to pass in its place. Hinge losses, the categorical accuracies,
those of the top k and the losses of numbers take logits, or scores, as they are.

Losses of Keras 3 work with models of tf_keras, and are held to the same. Your own functions and
subclasses are not looked into.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from types import ModuleType

import tensorflow as tf
import tf_keras

from albert_tf.spelling import did_you_mean

_KERAS = ("tf_keras.", "keras.")  # beginnings of the names of their modules
_SIGMOID = (
    "there is no from_logits: pass an object of a subclass whose update_state calls "
    "super().update_state(labels, tf.sigmoid(logits), sample_weight)"
)
_SOFTMAX = "there is no from_logits: pass a function that calls it with tf.nn.softmax(logits)"
_LABELS = 'it compares labels: pass "accuracy", which finds the largest logit'
_SET_FROM_LOGITS = "pass tf_keras.{place}.{name}(from_logits=True)"
_THRESHOLD = "pass tf_keras.metrics.{name}(threshold=0.0), because sigmoid(0) = 0.5"

# What to do about an object, by the name of its class, and about a function, by its own name.
_ADVICE = {
    "KLDivergence": _SOFTMAX,
    "kl_divergence": _SOFTMAX,
    # Of Keras 3 only.
    "CategoricalGeneralizedCrossEntropy": _SOFTMAX,
    "categorical_generalized_cross_entropy": _SOFTMAX,
    "Dice": _SOFTMAX,
    "dice": _SOFTMAX,
    "Tversky": _SOFTMAX,
    "tversky": _SOFTMAX,
    "Accuracy": _LABELS,
    "BinaryAccuracy": _THRESHOLD,
    "BinaryIoU": _THRESHOLD,
    "binary_accuracy": _THRESHOLD,
    "F1Score": "leave out threshold, and it compares the largest logit with one-hot labels",
    "FBetaScore": "leave out threshold, and it compares the largest logit with one-hot labels",
    "IoU": "pass it sparse_y_pred=False",
    "MeanIoU": "pass it sparse_y_pred=False",
    "OneHotIoU": "pass it sparse_y_pred=False",
    "OneHotMeanIoU": "pass it sparse_y_pred=False",
}
_WITH_THRESHOLDS = (
    *("FalseNegatives", "FalsePositives", "TrueNegatives", "TruePositives"),
    *("Precision", "PrecisionAtRecall", "Recall", "RecallAtPrecision"),
    *("SensitivityAtSpecificity", "SpecificityAtSensitivity"),
)
_ADVICE |= dict.fromkeys(_WITH_THRESHOLDS, _SIGMOID)
# Functions with an argument from_logits → the class that has it.
_CROSS_ENTROPIES = {
    "binary_crossentropy": "BinaryCrossentropy",
    "binary_focal_crossentropy": "BinaryFocalCrossentropy",
    "categorical_crossentropy": "CategoricalCrossentropy",
    "categorical_focal_crossentropy": "CategoricalFocalCrossentropy",
    "sparse_categorical_crossentropy": "SparseCategoricalCrossentropy",
}
_PROBLEM = "does not expect logits, which this model returns"
_ACCURACY, _CROSS_ENTROPY = ("accuracy", "acc"), ("crossentropy", "ce")  # chosen by Keras for data


def problems(losses: object, metrics: object, num_outputs: int | None = None) -> list[str]:
    """Returns a sentence about each loss and metric that would be wrong for logits, or unknown.

    Args:
        losses: the loss of `compile`: a name, an object, a function, or a list or dict of these.
        metrics: the metrics of `compile`, in the same forms.
        num_outputs: number of logits of an example; None if it depends on the example.
    """
    said = []
    for each in tf.nest.flatten(losses):
        if unknown := _unknown(each, tf_keras.losses):
            said.append(f"loss: {unknown}")
        elif advice := _advice(each, "losses", tf_keras.losses.get):
            said.append(f"loss: {_shown(each)} {_PROBLEM}; {advice}")
    for each in tf.nest.flatten(metrics):
        meant = _meant(each, num_outputs) if isinstance(each, str) else each
        if unknown := _unknown(meant, tf_keras.metrics):
            said.append(f"metrics: {unknown}")
        elif advice := _advice(meant, "metrics", tf_keras.metrics.get):
            said.append(f"metrics: {_shown(each)} {_PROBLEM}; {advice}")
    return said


def _unknown(value: object, module: ModuleType) -> str:
    """Returns what is wrong with a name that Keras does not have; "" for anything else.

    Keras itself says so in the first step, in more than twenty lines.
    """
    if not isinstance(value, str):
        return ""
    with contextlib.suppress(ValueError):
        if not isinstance(module.get(value), str):  # what it returns for an unknown metric
            return ""
    meant = did_you_mean(value, [name for name in vars(module) if name[0] != "_"])
    place = module.__name__.rpartition(".")[2]
    return f"{value!r} is no name in tf_keras.{place}. {meant or 'Pass an object in its place'}"


def _meant(name: str, num_outputs: int | None) -> str:
    """Returns the name of the metric that Keras chooses for a name which leaves it the choice."""
    if name.lower() in _CROSS_ENTROPY:
        return "sparse_categorical_crossentropy"
    if name.lower() in _ACCURACY:
        return "binary_accuracy" if num_outputs == 1 else "categorical_accuracy"
    return name


def _advice(value: object, place: str, get: Callable[[object], object]) -> str:
    """Returns what to pass in place of a loss or a metric; "" if it is right for logits."""
    if isinstance(value, str):
        value = get(value)
    options: dict[str, object] = {}
    if isinstance(value, functools.partial):
        options = dict(value.keywords)
        value = value.func
    if not _is_of_keras(value):
        return ""
    if hasattr(value, "get_config"):
        options = value.get_config()
        if callable(options.get("fn")):  # an object that computes the mean of a function
            value = options["fn"]
    name = _name(value)
    if name in _CROSS_ENTROPIES or "from_logits" in options:
        if options.get("from_logits"):
            return ""
        return _SET_FROM_LOGITS.format(place=place, name=_CROSS_ENTROPIES.get(name, name))
    if name in _ADVICE and not _suits_logits(name, options):
        return _ADVICE[name].format(name="BinaryAccuracy" if name == "binary_accuracy" else name)
    return ""


def _suits_logits(name: str, options: dict[str, object]) -> bool:
    """Returns whether the options of an object of `_ADVICE` make it right for logits."""
    if name in ("F1Score", "FBetaScore"):
        return options.get("threshold") is None
    if name.endswith("IoU") and name != "BinaryIoU":
        return not options.get("sparse_y_pred", True)
    threshold = options.get("threshold")
    return isinstance(threshold, (int, float)) and not 0 < threshold < 1


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, str) else _name(value)


def _name(value: object) -> str:
    return getattr(value, "__name__", type(value).__name__)


def _is_of_keras(value: object) -> bool:
    """Returns whether Keras computes a loss or a metric, and not a function or class of yours."""
    kind = type(value)
    method = getattr(kind, "update_state", None) or getattr(kind, "call", None)
    is_object = method is not None and hasattr(kind, "get_config")
    return str(getattr(method if is_object else value, "__module__", "")).startswith(_KERAS)
