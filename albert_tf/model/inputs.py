"""Reads and checks the inputs that the models are called with.

Dimensions: B batch size, S sequence length, E embedding size.
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from albert_tf.model import keras_3
from albert_tf.spelling import closest

# Hugging Face's names of the inputs → Google's, which are used here.
_SYNONYMS = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}
_NAMES = ("input_ids", "input_mask", "segment_ids", "inputs_embeds")
_UNSUPPORTED = ("position_ids", "head_mask")  # others have these; ignoring them is wrong
_LIKENESS = 0.8  # minimum similarity of a misspelled name; other features have 0.7 or less

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
            or the layer is used in a Keras 3 model. Float ids are rejected because mixed precision
            would round them to the ids of other words.
    """
    keras_3.refuse_call(input_ids)
    given: Inputs = {"input_ids": input_ids}
    if isinstance(input_ids, Mapping):
        given = _canonical_names(input_ids)
    given["input_mask"] = one_of(given, "input_mask", input_mask)
    given["segment_ids"] = one_of(given, "segment_ids", segment_ids)
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
