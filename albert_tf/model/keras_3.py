"""Refuses objects of Keras 3 beside these layers and models, which are those of tf_keras (Keras 2).

Both packages may be installed, because TensorFlow requires Keras 3 (`keras`, also `tf.keras`). Some
of its objects work by chance with those of tf_keras, and do nothing: a `keras.layers.Dense` on the
output of the encoder is neither trained nor saved. Others end in an AttributeError inside of Keras.
Each is refused here by a sentence that says which package to import. Keras 3 is never imported for
it: what is not in `sys.modules` has made no object.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras
from absl import logging

_ADVICE = (
    "Import tf_keras in place of keras, or set the environment variable TF_USE_LEGACY_KERAS=1 "
    "before importing TensorFlow, and use tf.keras."
)


def _keras() -> types.ModuleType | None:
    """Returns Keras 3; None if it has not been imported."""
    keras = sys.modules.get("keras")
    return keras if keras is not None and hasattr(keras, "KerasTensor") else None


def _is_layer(kind: type) -> bool:
    """Returns whether a type is a layer or a model of Keras 3."""
    return any(base.__module__.startswith("keras.src.layers.") for base in kind.__mro__)


# Asked for each attribute that a layer sets.
is_layer: Callable[[type], bool] = functools.lru_cache(maxsize=1024)(_is_layer)


def _is_object(value: object) -> bool:
    """Returns whether a value is a layer, an optimizer or another object of Keras 3."""
    return any(base.__module__.startswith("keras.src.") for base in type(value).__mro__)


def _is_inside_a_layer() -> bool:
    """Returns whether a layer of Keras 3 is being called."""
    state = sys.modules.get("keras.src.backend.common.global_state")
    return state is not None and state.get_global_attribute("current_call_ctx") is not None


def refuse(value: object, place: str) -> None:
    """Raises ValueError if a value, or one in a list or dict of values, is of Keras 3.

    Args:
        value: what was given.
        place: the argument or attribute, for the message.
    """
    if _keras() is None:
        return
    for each in tf.nest.flatten(value):
        if _is_object(each):
            raise ValueError(
                f"{place}: {type(each).__name__} is of Keras 3, which does not work with models of "
                f"tf_keras. {_ADVICE}"
            )


def refuse_call(inputs: object) -> None:
    """Raises ValueError inside a Keras 3 model, which would not train the weights of our layers.

    Args:
        inputs: what a layer of ours is called with.
    """
    keras = _keras()
    if keras is None:
        return
    is_symbolic = any(isinstance(x, keras.KerasTensor) for x in tf.nest.flatten(inputs))
    if is_symbolic or _is_inside_a_layer():
        raise ValueError(
            "this is a tf_keras layer. A Keras 3 model (TensorFlow's built-in Keras) would neither "
            f"train nor save its weights. {_ADVICE}"
        )


def check_policy(dtype: object) -> None:
    """Checks the `dtype` of a new layer; without one, warns of a global policy of Keras 3.

    Raises:
        ValueError: it is a policy of Keras 3.
    """
    keras = _keras()
    if keras is None:
        return
    refuse(dtype, "dtype")
    theirs, ours = keras.mixed_precision.dtype_policy(), tf_keras.mixed_precision.global_policy()
    if dtype is None and theirs.name != "float32" and ours.name == "float32":
        logging.log_first_n(
            logging.WARNING,
            "The policy %s was set in Keras 3, and has no effect on this model of tf_keras: call "
            'tf_keras.mixed_precision.set_global_policy("%s").',
            1,
            theirs.name,
            theirs.name,
        )


class _Guarded:
    """A symbolic tensor of tf_keras that layers of Keras 3 with weights refuse.

    Keras 3 takes it for one of TensorFlow, and would make constants of its own weights. Its
    operations on tensors ask for their `dtype`.
    """

    @property
    def dtype(self) -> tf.DType:
        if _is_inside_a_layer():
            raise ValueError(
                "a layer of Keras 3 was called on the output of a tf_keras layer: its weights "
                f"would neither be trained nor saved. {_ADVICE}"
            )
        return super().dtype  # type: ignore[misc]

    @classmethod
    def from_tensor(cls, tensor: tf.Tensor) -> Any:
        """Returns a tensor that stands for one of a graph; Keras would choose its own class."""
        symbolic = super().from_tensor(tensor)  # type: ignore[misc]
        symbolic.__class__ = cls
        return symbolic


def _guard_tensors() -> None:
    """Makes all symbolic tensors of tf_keras such that refuse layers of Keras 3.

    An output of our encoder goes through layers and operations of others before a layer of Keras 3
    may be called on it. tf_keras looks up the class of a tensor in a list, which has no public
    name. Where it is not found, tensors stay unguarded; a test says so.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from tf_keras.src.engine import keras_tensor

        plain = keras_tensor.KerasTensor
        guarded = type(plain.__name__, (_Guarded, plain), {})
        keras_tensor.keras_tensor_classes[:] = [
            (kind, guarded if cls is plain else cls)
            for kind, cls in keras_tensor.keras_tensor_classes
        ]


_guard_tensors()
