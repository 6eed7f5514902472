"""Serializes layers and models that are built from an `AlbertConfig`, as Keras does."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tf_keras

from albert_tf.files import JsonObject
from albert_tf.model import keras_3
from albert_tf.model.config import AlbertConfig

if TYPE_CHECKING:
    from typing_extensions import Self

_NOT_STORED = {"self", "kwargs"}  # among the constructors' arguments
register = tf_keras.saving.register_keras_serializable(package="albert_tf")


class Configured(tf_keras.layers.Layer):
    """Base class of layers and models built from an `AlbertConfig`, which serializes them.

    Subclasses store every constructor argument in an attribute of the same name.
    """

    config: AlbertConfig

    def __init__(self, **kwargs: Any) -> None:
        keras_3.check_policy(kwargs.get("dtype"))
        super().__init__(**kwargs)

    def __setattr__(self, name: str, value: object) -> None:
        """Sets an attribute, such as a layer in place of another one."""
        if keras_3.is_layer(type(value)):
            keras_3.refuse(value, f"{type(self).__name__}.{name}")
        super().__setattr__(name, value)

    def get_config(self) -> JsonObject:
        """Returns the constructor's arguments in JSON-serializable form."""
        config = tf_keras.layers.Layer.get_config(self)  # that of `Model` is of its graph
        for base in type(self).__mro__:
            if issubclass(base, Configured) and "__init__" in vars(base):
                for name in inspect.signature(base.__init__).parameters.keys() - _NOT_STORED:
                    config[name] = getattr(self, name)
        layers = {
            name: tf_keras.layers.serialize(value)
            for name, value in config.items()
            if isinstance(value, tf_keras.layers.Layer)
        }
        return config | layers | {"config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config: JsonObject, custom_objects: object = None) -> Self:
        """Returns a new layer or model from the output of `get_config`."""
        layers = {
            name: tf_keras.layers.deserialize(value)
            for name, value in config.items()
            if isinstance(value, Mapping) and "class_name" in value and name != "dtype"
        }
        return cls(**{**config, **layers, "config": AlbertConfig.from_dict(config["config"])})
