"""The Keras layers that ALBERT is built from: dense layers, LayerNorm, logits.

Constructors create all weights, under the names used in Google's checkpoints, so a checkpoint is
simply a mapping from names to arrays.

Dimensions: as in `modeling.py`; K number of classes.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf import ops
from albert_tf.config import AlbertConfig
from albert_tf.repeated import Weight

_NOT_STORED = {"self", "kwargs"}  # among the constructors' arguments
register = tf_keras.saving.register_keras_serializable(package="albert_tf")


class Configured:
    """Mixin that serializes layers and models built from an `AlbertConfig`.

    Subclasses store every constructor argument in an attribute of the same name.
    """

    config: AlbertConfig

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments in JSON-serializable form."""
        config = tf_keras.layers.Layer.get_config(self)
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
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Any:
        """Returns a new layer or model from the output of `get_config`."""
        layers = {
            name: tf_keras.layers.deserialize(value)
            for name, value in config.items()
            if isinstance(value, Mapping) and "class_name" in value and name != "dtype"
        }
        return cls(**{**config, **layers, "config": AlbertConfig.from_dict(config["config"])})


class AlbertLayer(Configured, tf_keras.layers.Layer):
    """Base layer with ALBERT's initializers: truncated normal for kernels, zeros for biases.

    Args:
        config: the model configuration.
        **kwargs: `name` and `dtype` of a Keras layer. Sublayers get fixed names: gradients are
            summed in the order of the names, so Keras' automatic numbering would change the last
            bits of the sum from one model of a process to the next.
    """

    def __init__(self, config: AlbertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.built = True  # constructors create all weights

    def add_kernel(self, name: str, *shape: int) -> tf.Variable:
        initializer = tf_keras.initializers.TruncatedNormal(stddev=self.config.initializer_range)
        return self.add_weight(name, shape, initializer=initializer)

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
        self, config: AlbertConfig, scope: str, input_size: int, output_size: int, **kwargs: Any
    ) -> None:
        super().__init__(config, **kwargs)
        self.scope = scope
        self.input_size = input_size
        self.output_size = output_size
        self.kernel = self.add_kernel(f"{scope}/kernel", input_size, output_size)
        self.bias = self.add_bias(f"{scope}/bias", output_size)

    def call(self, x):
        return ops.dense(x, self.kernel, self.bias)  # [..., output_size]


def call_layer(layer, x, size):
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


@register
class LayerNorm(AlbertLayer):
    """Layer normalization over the last axis, computed in float32 and returned in x's dtype.

    Args:
        config: the model configuration.
        scope: variable scope; the weights are `scope`/beta and `scope`/gamma.
        size: size of the last axis.
    """

    gamma = Weight()
    beta = Weight()

    def __init__(self, config: AlbertConfig, scope: str, size: int, **kwargs: Any) -> None:
        super().__init__(config, autocast=False, **{**kwargs, "dtype": "float32"})
        self.scope = scope
        self.size = size
        self.beta = self.add_bias(f"{scope}/beta", size)
        self.gamma = self.add_bias(f"{scope}/gamma", size, initializer="ones")

    def call(self, x):
        return ops.layer_norm(x, self.gamma, self.beta)  # [..., size]


@register
class AddAndNorm(LayerNorm):
    """LayerNorm(residual + dropout(x)), which ends both sublayers of a block.

    Call arguments: `x` and `residual` float [B, Q, H]; `training` and `dropout_seed` as in
        `AlbertEncoder`.
    Returns: float [B, Q, H].
    """

    def call(self, x, residual, training=False, dropout_seed=None):
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
        stddev: standard deviation of the kernel's initializer; defaults to the config's
            `initializer_range`.
    """

    def __init__(
        self,
        config: AlbertConfig,
        scope: str,
        num_outputs: int,
        stddev: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        self.scope = scope
        self.num_outputs = num_outputs
        self.stddev = stddev
        initializer = tf_keras.initializers.TruncatedNormal(
            stddev=config.initializer_range if stddev is None else stddev
        )
        shape = num_outputs, config.hidden_size
        self.kernel = self.add_weight(f"{scope}output_weights", shape, initializer=initializer)
        self.bias = self.add_weight(f"{scope}output_bias", (num_outputs,), initializer="zeros")

    def call(self, x):
        logits = ops.matmul(x, self.kernel, transpose_b=True) + self.bias  # [..., K]
        return tf.cast(logits, tf.float32)
