"""Reads and checks the inputs that the models are called with.

Dimensions: B batch size, S sequence length, E embedding size.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from albert_tf.model import keras_3
from albert_tf.spelling import closest

# Hugging Face's names of the inputs → Google's, which are used here.
_SYNONYMS = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}
_NAMES = ("input_ids", "input_mask", "segment_ids", "inputs_embeds")
_UNSUPPORTED = ("position_ids", "head_mask")  # others have these; ignoring them is wrong
_LIKENESS = 0.8  # minimum similarity of a misspelled name; other features have 0.7 or less

_TEXTS = "these are texts: model.{method}(tokenizer(texts), …)"
_LABELS = (
    "these labels are texts: model.{method} takes their numbers, such as "
    "np.array([names.index(label) for label in labels])"
)

Features = Mapping[str, tf.Tensor]  # name → tensor; models may be called with these
Inputs = dict[str, tf.Tensor]  # those that are given, by Google's name, or `inputs_embeds`


def tokens_of(inputs: Inputs) -> tf.Tensor:
    """Returns the `input_ids` or, if there are none, the `inputs_embeds`."""
    return inputs["input_ids"] if "input_ids" in inputs else inputs["inputs_embeds"]


def check_shape(inputs: Inputs, max_position_embeddings: int) -> None:
    """Raises ValueError if the input is no batch of sequences, or longer than the model allows."""
    shape = tf.TensorShape(tokens_of(inputs).shape)
    expected = "[B, S]" if "input_ids" in inputs else "[B, S, E]"
    if shape.rank not in (None, len(expected.split(","))):
        raise ValueError(
            f"the input has the shape {tuple(shape)}: expected {expected}, a row for each text"
        )
    length = (shape[1] if shape.rank else 0) or 0
    if length > max_position_embeddings:
        raise ValueError(
            f"the sequence length {length} exceeds "
            f"max_position_embeddings={max_position_embeddings}"
        )


def are_texts(value: object) -> bool:
    """Returns whether a value is a text, or an array, list, series or tensor of texts.

    Of lists and objects, only the first entry is looked at.
    """
    if isinstance(value, (list, tuple)):
        return bool(value) and are_texts(value[0])
    dtype = getattr(value, "dtype", None)
    if isinstance(value, (str, bytes)) or dtype == tf.string:
        return True
    if not hasattr(value, "__array__") or isinstance(value, tf.Variable) or tf.is_tensor(value):
        return False
    array = np.asarray(value)
    if array.dtype.kind == "O":
        return array.size > 0 and isinstance(array.flat[0], (str, bytes))
    return array.dtype.kind in "SU"


def refuse_texts(method: str, features: object, labels: object = None) -> None:
    """Raises ValueError if a method of a model is given texts in place of their ids.

    Args:
        method: the method, for the message.
        features: its first argument: arrays, a dict of them, or a data set.
        labels: its second one.
    """
    if isinstance(features, tf.data.Dataset):
        spec = features.element_spec
        features, labels = spec[:2] if isinstance(spec, tuple) and len(spec) > 1 else (spec, None)
    if isinstance(features, Mapping):
        # Others, such as a text beside its ids, are not read.
        ids = [features[name] for name in ("input_ids", "inputs_embeds") if name in features]
        features = ids or list(features.values())
    for values, message in ((features, _TEXTS), (labels, _LABELS)):
        if are_texts(values):
            raise ValueError(message.format(method=method))


def as_labels(labels: object) -> object:
    """Returns a list of numbers as an array; Keras takes lists only beside lists."""
    if isinstance(labels, (list, tuple)) and labels and isinstance(labels[0], numbers.Number):
        return np.asarray(labels)
    return labels


@tf.autograph.experimental.do_not_convert  # there is nothing to convert
def read_inputs(
    input_ids: tf.Tensor | Features,
    input_mask: tf.Tensor | None = None,
    segment_ids: tf.Tensor | None = None,
) -> Inputs:
    """Returns the encoder's inputs; the first argument may be a dict that contains them all.

    Returns:
        Those that are given: `input_ids`, int32 or int64 [B, S], or `inputs_embeds`, float
        [B, S, E]; `input_mask`, [B, S]; `segment_ids`, int32 or int64 [B, S].

    Raises:
        ValueError: `input_ids` are missing or not integers; a name is misspelled or given twice;
            they are texts; or the layer is used in a Keras 3 model. Float ids are rejected
            because mixed precision would round them to the ids of other words.
    """
    keras_3.refuse_call(input_ids)
    given: Inputs = {"input_ids": input_ids}
    if isinstance(input_ids, Mapping):
        given = _canonical_names(input_ids)
    given["input_mask"] = one_of(given, "input_mask", input_mask)
    given["segment_ids"] = one_of(given, "segment_ids", segment_ids)
    if are_texts(given.get("input_ids")):
        raise ValueError("these are texts: model(tokenizer(texts))")
    # Keras would make a tensor of each number of a list.
    inputs = {
        name: tf.convert_to_tensor(value) if isinstance(value, (list, tuple)) else value
        for name, value in given.items()
        if value is not None
    }
    if {"input_ids", "inputs_embeds"} <= inputs.keys():
        raise ValueError("the inputs contain input_ids and inputs_embeds: expected one of them")
    if "input_ids" in inputs:
        dtype = tf.as_dtype(inputs["input_ids"].dtype)
        if not dtype.is_integer:
            raise ValueError(
                f"input_ids have the dtype {dtype.name}, expected int32 or int64. In a functional "
                'model, use tf_keras.Input(shape, dtype="int32")'
            )
    elif "inputs_embeds" not in inputs:
        names = ", ".join(input_ids) if isinstance(input_ids, Mapping) else "None"
        raise ValueError(f"the inputs are {names}: input_ids is missing")
    return inputs


def _canonical_names(inputs: Features) -> Inputs:
    """Returns the encoder's inputs in a dict of features, with Google's names."""
    canonical_inputs: Inputs = {}
    for name, value in inputs.items():
        canonical = _SYNONYMS.get(name, name)
        if canonical in canonical_inputs:
            raise ValueError(f"the inputs are {', '.join(inputs)}: two of them are {canonical}")
        if canonical in _NAMES:
            canonical_inputs[canonical] = value
            continue
        if name in _UNSUPPORTED:
            raise ValueError(f"the input {name!r} is not supported by this model")
        similar = closest(name, (*_NAMES, *_SYNONYMS), _LIKENESS)
        if similar:
            raise ValueError(
                f"unknown input {name!r}: is it {similar}? Expected input_ids, input_mask (or "
                "attention_mask) and segment_ids (or token_type_ids)"
            )
    return canonical_inputs


def one_of(inputs: object, name: str, argument: tf.Tensor | None) -> tf.Tensor | None:
    """Returns an input given in the dict `inputs` or as a separate argument; None if neither.

    Raises:
        ValueError: the input is given both ways.
    """
    if not isinstance(inputs, Mapping) or inputs.get(name) is None:
        return argument
    if argument is not None:
        raise ValueError(f"{name} is given twice: in the dict of inputs and as an argument")
    return inputs[name]
