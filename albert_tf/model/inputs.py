"""Reads and checks the inputs that the models are called with.

Dimensions: B batch size, S sequence length, E embedding size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.model import keras_3
from albert_tf.model.config import AlbertConfig
from albert_tf.spelling import closest

# Hugging Face's names of the inputs → Google's, which are used here.
_SYNONYMS = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}
_ARGUMENTS = ("input_ids", "input_mask", "segment_ids")  # of a call, in this order
_NAMES = (*_ARGUMENTS, "inputs_embeds")
_UNSUPPORTED = ("position_ids", "head_mask")  # others have these; ignoring them is wrong
_LIKENESS = 0.8  # minimum similarity of a misspelled name; other features have 0.7 or less

Features = Mapping[str, tf.Tensor]  # name → tensor; models may be called with these
Inputs = dict[str, tf.Tensor]  # those that are given, by Google's name, or `inputs_embeds`


class TakesInputs(tf_keras.layers.Layer):
    """Base class of layers and models that are called with ids, which are checked before Keras is.

    Keras says in twelve lines, and in `fit` in sixty, what is wrong with an argument.

    Attributes:
        config: the model's config.
        input_axes: the axes of ids.
    """

    config: AlbertConfig
    input_axes: tuple[str, ...] = ("B", "S")

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Calls the layer, as in Keras.

        Raises:
            ValueError: see `check_inputs`.
        """
        given = dict(zip(_ARGUMENTS, args, strict=False))
        given |= {name: kwargs[name] for name in _ARGUMENTS if name in kwargs}
        if given and self._is_called_as_here and not tf.inside_function():
            self.check_inputs(**given)
        return super().__call__(*args, **kwargs)

    @property
    def _is_called_as_here(self) -> bool:
        """Whether no subclass has a `call` of its own, which may take other inputs."""
        call = getattr(type(self), "call", None)
        return getattr(call, "__module__", "").startswith("albert_tf.")

    def check_inputs(
        self, input_ids: object, input_mask: object = None, segment_ids: object = None
    ) -> None:
        """Checks the inputs of a call: arrays, tensors or types of them, or a dict of these.

        Raises:
            ValueError: they are texts, or see `read_inputs`; they are no batch of sequences, too
                long, or differ in their shapes; or an id is none of the model.
        """
        inputs = read_inputs(input_ids, input_mask, segment_ids)
        check_shape(inputs, self.config.max_position_embeddings, self.input_axes)
        check_ids(inputs, self.config.vocab_size, self.config.type_vocab_size)


def tokens_of(inputs: Inputs) -> tf.Tensor:
    """Returns the `input_ids` or, if there are none, the `inputs_embeds`."""
    return inputs["input_ids"] if "input_ids" in inputs else inputs["inputs_embeds"]


def check_shape(
    inputs: Inputs, max_position_embeddings: int, axes: Sequence[str] = ("B", "S")
) -> None:
    """Raises ValueError if inputs are no batch of sequences, too long, or differ in their shapes.

    Args:
        inputs: as `read_inputs` returns them.
        max_position_embeddings: the largest length.
        axes: the expected axes of ids, of which the last one is that of the sequence.
    """
    shape = tf.TensorShape(tokens_of(inputs).shape)
    if "inputs_embeds" in inputs:
        axes = (*axes, "E")
    if shape.rank not in (None, len(axes)):
        raise ValueError(
            f"the input has the shape {tuple(shape)}: expected [{', '.join(axes)}], a row for each "
            "text"
        )
    place = axes.index("S")
    length = (shape[place] if shape.rank else 0) or 0
    if length > max_position_embeddings:
        raise ValueError(
            f"the sequence length {length} exceeds "
            f"max_position_embeddings={max_position_embeddings}. Truncate the texts: "
            f"tokenizer(texts, max_length={max_position_embeddings})"
        )
    for name in inputs.keys() & {"input_mask", "segment_ids"}:
        found = tf.TensorShape(inputs[name].shape)
        if not found.is_compatible_with(shape[: place + 1]):
            raise ValueError(
                f"{name} has the shape {tuple(found)}, the input {tuple(shape)}: expected one "
                "number for each token"
            )


def check_ids(inputs: Inputs, vocab_size: int, type_vocab_size: int) -> None:
    """Raises ValueError if inputs whose values are known have ids that the model has not.

    A GPU would take zeros for them, without an error.
    """
    limits = {"input_ids": ("vocab_size", vocab_size)}
    limits["segment_ids"] = ("type_vocab_size", type_vocab_size)
    for name, (setting, count) in limits.items():
        if name in inputs:
            check_range(inputs[name], name, count, f"{setting}={count}")


def check_range(
    ids: object, name: str, count: int | None, reason: str, ignored: int | None = None
) -> None:
    """Raises ValueError if an array or an eager tensor has other numbers than 0 to `count` - 1.

    Args:
        ids: the numbers; those of symbolic tensors are not known.
        name: what they are called, for the message.
        count: how many there are; None if it is not known.
        reason: the setting that says so, for the message.
        ignored: another number that they may have.
    """
    is_eager = tf.is_tensor(ids) and hasattr(ids, "numpy") and tf.executing_eagerly()
    if count is None or not (is_eager or isinstance(ids, np.ndarray)):
        return
    values = np.asarray(ids)
    is_id = (values >= 0) & (values < count) & (values == np.floor(values))
    wrong = values[~is_id & (values != ignored)]
    if wrong.size:
        raise ValueError(f"{name} contain {wrong.flat[0]}: expected 0 to {count - 1} ({reason})")


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
