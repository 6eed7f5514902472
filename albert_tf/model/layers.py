"""The Keras layers that ALBERT is built from: dense layers, LayerNorm, logits.

Constructors create all weights, under the names used in Google's checkpoints, so a checkpoint is
simply a mapping from names to arrays.

Dimensions: as in `modeling.py`; K number of classes.
"""

from __future__ import annotations

import collections
import contextvars
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.model import ops
from albert_tf.model.config import AlbertConfig
from albert_tf.settings import closest

# Applies shared layers repeatedly, without repeating the overhead, and recomputes activations.
#
# Calling one block twelve times would read and cast its weights twelve times, add up twelve float32
# gradients for each weight, and trace the block twelve times. With `apply_repeatedly`,
#
# * each weight is read and cast once, and the gradients of the calls are added up in the compute
#   dtype, each as soon as it is computed;
# * each block is traced once for all calls with the same signature.
#
# A layer takes part by declaring its weights as `Weight`. Layers of other libraries inside a block,
# such as a wrapper around one of its dense layers, read their variables themselves.

_cast_weights: contextvars.ContextVar[Mapping[int, tf.Tensor]]
_cast_weights = contextvars.ContextVar("_cast_weights", default={})  # noqa: B039, never written to


class Weight:
    """Attribute of a Keras layer that holds a variable.

    It reads as the variable itself, except while `apply_repeatedly` applies the layer: then it
    reads as the tensor, in the compute dtype, that all calls of the layer share.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = f"_weight_{name}"

    def __set__(self, layer: Any, variable: tf.Variable) -> None:
        layer.__dict__[self._key] = variable

    def __get__(self, layer: Any, owner: type | None = None) -> Any:
        if layer is None:
            return self
        variable = self.variable(layer)
        return _cast_weights.get().get(id(variable), variable)

    def __delete__(self, layer: Any) -> None:
        del layer.__dict__[self._key]

    def variable(self, layer: Any) -> Any:
        """Returns the variable of a layer, or raises AttributeError if it has none."""
        try:
            return layer.__dict__[self._key]
        except KeyError:
            name = self._key.removeprefix("_weight_")
            raise AttributeError(f"{type(layer).__name__} has no {name!r}") from None


def _weights_of(block: tf.Module) -> list[tf.Variable]:
    """Returns the variables that the layers of a block declare as `Weight`."""
    variables = {}
    for layer in (block, *block.submodules):
        for base in type(layer).__mro__:
            for attribute in vars(base).values():
                if isinstance(attribute, Weight):
                    variable = attribute.variable(layer)
                    variables[id(variable)] = variable
    return list(variables.values())


@tf.autograph.experimental.do_not_convert  # conversion takes seconds for these loops
def apply_repeatedly(blocks: Sequence[Any], is_recomputed: bool = False) -> Callable[..., Any]:
    """Returns a function `apply(block, x, **others)` that computes `block(x, **others)`.

    Args:
        blocks: Keras layers, each as often as it will be applied. They have no randomness besides
            the seeds that are passed to them.
        is_recomputed: whether to use gradient checkpointing: store only the inputs of each call,
            and recompute the call in the backward pass. The result does not change.

    Returns:
        A function of a block, `x` and the other arguments, differentiable with respect to `x` and
        the weights.
    """
    variables = {id(block): _weights_of(block) for block in blocks}
    uses = collections.Counter(id(x) for block in blocks for x in variables[id(block)])
    weights = {id(variable): variable for own in variables.values() for variable in own}
    copies = {key: _copies(tf.convert_to_tensor(x), uses[key]) for key, x in weights.items()}
    calls = {id(block): _call(block, variables[id(block)], is_recomputed) for block in blocks}

    @tf.autograph.experimental.do_not_convert
    def apply(block: Any, x: tf.Tensor, **others: Any) -> Any:
        weights = [next(copies[id(variable)]) for variable in variables[id(block)]]
        return calls[id(block)](x, weights, **others)

    return apply


def _call(block: Any, variables: list[tf.Variable], is_recomputed: bool) -> Callable[..., Any]:
    """Returns `block` as a function of `x`, its weights and the other arguments."""

    def compute(x, weights, **others):
        pairs = zip(variables, weights, strict=True)
        token = _cast_weights.set({id(variable): tensor for variable, tensor in pairs})
        try:
            return block(x, **others)
        finally:
            _cast_weights.reset(token)

    # XLA needs the values of some inputs when it compiles, such as the permutation of a transpose.
    # If the gradient of a function receives one from the function itself, XLA takes all inputs of
    # that function for such values, and compiles the training step again whenever a weight changes.
    if tf.inside_function() and not ops.is_plain() and not ops.is_inside_xla():
        compute = tf.function(compute, autograph=False)
    return _recomputed(compute) if is_recomputed else compute


def _copies(weight: tf.Tensor, count: int) -> Iterator[tf.Tensor]:
    """Yields a weight `count` times or more, with one addition of gradients per time.

    TensorFlow would keep the gradients of all calls until it adds them up at the end. For the
    xxlarge model (2 x 128 tokens, bfloat16), that needs 3 GB more memory.
    """
    # Vectors take little memory, and each addition takes time to trace.
    for _ in range(count - 1 if weight.shape.rank > 1 else 0):
        copy, weight = _fork(weight)
        yield copy
    while True:
        yield weight


@tf.custom_gradient
def _fork(x):
    """Returns the tensor twice; the gradient is the sum of both gradients."""
    return (tf.identity(x), tf.identity(x)), tf.add


# Used instead of `tf.recompute_grad`, which makes all inputs including the weights depend on `dy`:
# that needs the same memory and 3 % more CPU time.
def _recomputed(function):
    def call(x, weights, **others):
        @tf.custom_gradient
        def run(x, *weights):
            def gradient(*dy, variables=()):
                again = ops.depend_on(x, dy[0])
                sources = [again, *weights, *variables]  # variables of other libraries' layers
                with tf.GradientTape() as tape:
                    tape.watch(sources)
                    y = tf.nest.flatten(function(again, list(weights), **others))
                gradients = tape.gradient(y, sources, list(dy), unconnected_gradients="zero")
                count = 1 + len(weights)
                return (gradients[:count], gradients[count:]) if variables else gradients

            return function(x, list(weights), **others), gradient

        return run(x, *weights)

    return call


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

    def add_kernel(self, name: str, *shape: int, stddev: float | None = None) -> tf.Variable:
        """Adds a matrix or table; the default of `stddev` is the config's `initializer_range`."""
        stddev = self.config.initializer_range if stddev is None else stddev
        initializer = tf_keras.initializers.TruncatedNormal(stddev=stddev)
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
        stddev: standard deviation of the kernel's initializer, as in `add_kernel`.
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
        name, size = f"{scope}output_weights", config.hidden_size
        self.kernel = self.add_kernel(name, num_outputs, size, stddev=stddev)
        self.bias = self.add_weight(f"{scope}output_bias", (num_outputs,), initializer="zeros")

    def call(self, x):
        logits = ops.matmul(x, self.kernel, transpose_b=True) + self.bias  # [..., K]
        return tf.cast(logits, tf.float32)


# Checks of the inputs that the models are called with.
#
# Dimensions: B batch size, S sequence length, E embedding size.

# Hugging Face's names of the inputs → Google's, which are used here.
_SYNONYMS = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}
_NAMES = ("input_ids", "input_mask", "segment_ids", "inputs_embeds")
_UNSUPPORTED = ("position_ids", "head_mask")  # others have these; ignoring them is wrong
_LIKENESS = 0.8  # minimum similarity of a misspelled name; other features have 0.7 or less


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
def read_inputs(input_ids: Any, input_mask: Any = None, segment_ids: Any = None) -> Inputs:
    """Returns the encoder's inputs; the first argument may be a dict that contains them all.

    Returns:
        Those that are given: `input_ids`, int32 or int64 [B, S], or `inputs_embeds`, float
        [B, S, E]; `input_mask`, [B, S]; `segment_ids`, int32 or int64 [B, S].

    Raises:
        ValueError: `input_ids` are missing or not integers; a name is misspelled or given twice;
            or the layer is used in a Keras 3 model. Float ids are rejected because mixed precision
            would round them to the ids of other words.
    """
    _reject_keras_3(input_ids)
    is_dict = isinstance(input_ids, Mapping)
    given = _canonical_names(input_ids) if is_dict else {"input_ids": input_ids}
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
        names = ", ".join(input_ids) if is_dict else "None"
        raise ValueError(f"the inputs are {names}: input_ids is missing")
    return inputs


def _canonical_names(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the encoder's inputs in a dict of features, with Google's names."""
    canonical_inputs: dict[str, Any] = {}
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


def one_of(inputs: Any, name: str, argument: Any) -> Any:
    """Returns an input given in the dict `inputs` or as a separate argument; None if neither.

    Raises:
        ValueError: the input is given both ways.
    """
    if not isinstance(inputs, Mapping) or inputs.get(name) is None:
        return argument
    if argument is not None:
        raise ValueError(f"{name} is given twice: in the dict of inputs and as an argument")
    return inputs[name]


def _reject_keras_3(inputs: Any) -> None:
    """Raises ValueError inside a Keras 3 model, which would not train these weights."""
    keras = sys.modules.get("keras")
    state = sys.modules.get("keras.src.backend.common.global_state")
    if keras is None or state is None:  # Keras 3 has not been imported
        return
    # Called inside a Keras 3 layer, or on a symbolic tensor of Keras 3.
    is_inside = state.get_global_attribute("current_call_ctx") is not None
    if is_inside or any(isinstance(x, keras.KerasTensor) for x in tf.nest.flatten(inputs)):
        raise ValueError(
            "this is a tf_keras layer. A Keras 3 model (TensorFlow's built-in Keras) would neither "
            "train nor save its weights. Build the model from tf_keras layers (import tf_keras), "
            "or set the environment variable TF_USE_LEGACY_KERAS=1 before importing TensorFlow."
        )
