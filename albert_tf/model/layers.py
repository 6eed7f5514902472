"""The Keras layers that ALBERT is built from: dense layers, LayerNorm, logits.

Constructors create all weights, under the names used in Google's checkpoints, so a checkpoint is
simply a mapping from names to arrays. Layers and models are built from an `AlbertConfig`, and are
serialized with it as Keras does.

Dimensions: as in `modeling.py`; K number of classes.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

import tensorflow as tf
import tf_keras

from albert_tf.files import JsonObject
from albert_tf.model import initialization, keras_3, ops
from albert_tf.model.config import AlbertConfig
from albert_tf.model.ops import Seeds
from albert_tf.model.shared_layers import Weight

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

_NOT_STORED = {"self", "kwargs"}  # among the constructors' arguments
register = tf_keras.saving.register_keras_serializable(package="albert_tf")


class LayerOptions(TypedDict, total=False):
    """Arguments of `tf_keras.layers.Layer`, which all layers and models take."""

    name: str | None
    dtype: str | tf_keras.mixed_precision.Policy
    trainable: bool
    autocast: bool


class Configured(tf_keras.layers.Layer):
    """Base class of layers and models built from an `AlbertConfig`, which serializes them.

    Subclasses store every constructor argument in an attribute of the same name.
    """

    config: AlbertConfig

    def __init__(self, **kwargs: Unpack[LayerOptions]) -> None:
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


def check_config(config: object, name: str) -> None:
    """Raises ValueError if the config of a layer or model, whose class has a name, is no config."""
    if not isinstance(config, AlbertConfig):
        raise ValueError(
            f"{name}: config is {config!r:.60}, expected an AlbertConfig, such as "
            'AlbertConfig.for_model("albert_config.json"). albert_tf.from_pretrained opens a folder'
        )


class AlbertLayer(Configured):
    """Base layer with ALBERT's initializers: truncated normal for kernels, zeros for biases.

    Args:
        config: the model configuration.
        **kwargs: `name` and `dtype` of a Keras layer. Sublayers get fixed names: gradients are
            summed in the order of the names, so Keras' automatic numbering would change the last
            bits of the sum from one model of a process to the next.
    """

    def __init__(self, config: AlbertConfig, **kwargs: Unpack[LayerOptions]) -> None:
        check_config(config, type(self).__name__)
        super().__init__(**kwargs)
        self.config = config
        self.built = True  # constructors create all weights

    def add_kernel(self, name: str, *shape: int, stddev: float | None = None) -> tf.Variable:
        """Adds a matrix or table; the default of `stddev` is the config's `initializer_range`."""
        stddev = self.config.initializer_range if stddev is None else stddev
        initializer = tf_keras.initializers.TruncatedNormal(stddev=stddev)
        return initialization.add_weight(self.add_weight, name, shape, initializer)

    def add_bias(self, name: str, size: int, initializer: str = "zeros") -> tf.Variable:
        """Adds a vector that stays float32 in half and in mixed precision."""
        return self.add_weight(
            name, (size,), "float32", initializer=initializer, experimental_autocast=False
        )


@register
class Linear(AlbertLayer):
    """Dense layer: x · kernel + bias over the last axis.

    Args:
        config: the model configuration.
        scope: variable scope; the weights are `scope`/kernel and `scope`/bias.
        input_size: size of the last axis of the input.
        output_size: size of the last axis of the output.
    """

    kernel = Weight()
    bias = Weight()

    def __init__(
        self,
        config: AlbertConfig,
        scope: str,
        input_size: int,
        output_size: int,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(config, **kwargs)
        self.scope = scope
        self.input_size = input_size
        self.output_size = output_size
        self.kernel = self.add_kernel(f"{scope}/kernel", input_size, output_size)
        self.bias = self.add_bias(f"{scope}/bias", output_size)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return ops.dense(x, self.kernel, self.bias)  # [..., output_size]


def call_layer(layer: tf_keras.layers.Layer, x: tf.Tensor, size: int) -> tf.Tensor:
    """Returns `layer(x)`, float [..., size], of any layer that took the place of a `Linear`.

    Raises:
        ValueError: the output has another shape.
    """
    y = layer(x)  # [..., size]
    if y.shape.rank != x.shape.rank or y.shape[-1] != size:
        raise ValueError(
            f"the layer {layer.name!r} returned the shape {y.shape} for an input of {x.shape}: "
            f"expected {(*x.shape[:-1], size)}"
        )
    return tf.cast(y, x.dtype)


class Normalization(AlbertLayer):
    """Base class of layers with the weights of a layer normalization over the last axis.

    Args:
        config: the model configuration.
        scope: variable scope; the weights are `scope`/beta and `scope`/gamma.
        size: size of the last axis.
    """

    gamma = Weight()
    beta = Weight()

    def __init__(
        self, config: AlbertConfig, scope: str, size: int, **kwargs: Unpack[LayerOptions]
    ) -> None:
        kwargs["dtype"], kwargs["autocast"] = "float32", False
        super().__init__(config, **kwargs)
        self.scope = scope
        self.size = size
        self.beta = self.add_bias(f"{scope}/beta", size)
        self.gamma = self.add_bias(f"{scope}/gamma", size, initializer="ones")


@register
class LayerNorm(Normalization):
    """Layer normalization, computed in float32 and returned in x's dtype.

    Args: as in `Normalization`.
    """

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return ops.layer_norm(x, self.gamma, self.beta)  # [..., size]


@register
class AddAndNorm(Normalization):
    """LayerNorm(residual + dropout(x)), which ends both sublayers of a block.

    Call arguments: `x` and `residual` float [B, Q, H]; `training` and `dropout_seed` as in
        `AlbertEncoder`.
    Returns: float [B, Q, H].
    """

    def call(
        self,
        x: tf.Tensor,
        residual: tf.Tensor,
        training: bool | None = False,
        dropout_seed: Seeds = None,
    ) -> tf.Tensor:
        (seed,) = ops.dropout_seeds(training, dropout_seed, 1)  # [2]
        rate = self.config.hidden_dropout_prob
        return ops.add_and_norm(x, residual, self.gamma, self.beta, rate, seed)  # [B, Q, H]


@register
class OutputLayer(AlbertLayer):
    """Computes logits, float32 [..., K], from float [..., H].

    The kernel has the shape [K, H], as in Google's checkpoints.

    Args:
        config: the model configuration.
        scope: prefix of the weights' names, `scope`output_weights and `scope`output_bias.
        num_outputs: K.
        stddev: standard deviation of the kernel's initializer, as in `add_kernel`.
    """

    def __init__(
        self,
        config: AlbertConfig,
        scope: str,
        num_outputs: int,
        stddev: float | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(config, **kwargs)
        self.scope = scope
        self.num_outputs = num_outputs
        self.stddev = stddev
        name, size = f"{scope}output_weights", config.hidden_size
        self.kernel = self.add_kernel(name, num_outputs, size, stddev=stddev)
        self.bias = self.add_weight(f"{scope}output_bias", (num_outputs,), initializer="zeros")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        logits = ops.matmul(x, self.kernel, transpose_b=True) + self.bias  # [..., K]
        return tf.cast(logits, tf.float32)
