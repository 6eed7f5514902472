"""The ALBERT model: the encoder with cross-layer parameter sharing, and the pre-training heads.

Start reading at the bottom of the file. `AlbertForPretraining` is an `AlbertEncoder` with two
heads. The encoder embeds the tokens and applies the same `TransformerBlock` repeatedly; a block
consists of `SelfAttention` and a `FeedForward` network. ALBERT differs from BERT in three ways
(arXiv 1909.11942, section 3.1):

* **Factorized embedding parameterization.** Telling words apart takes fewer dimensions than
  representing them in context. Word embeddings therefore have size E, and one matrix projects them
  to the hidden size H: V·E + E·H weights instead of V·H. With V = 30,000, E = 128 and H = 4096
  (xxlarge), that is 4.4 million weights instead of 123 million. See `Embeddings` and
  `AlbertEncoder.embedding_projection`.
* **Cross-layer parameter sharing.** All layers of a hidden group share their weights, and nearly
  every model has a single group: twelve layers with the parameters of one. See the loop in
  `AlbertEncoder.__init__`.
* **Sentence-order prediction (SOP).** In BERT's next-sentence prediction, the second segment either
  follows the first or comes from another document. The topics of the segments reveal which, and
  masked language modeling already teaches topics. ALBERT predicts whether two consecutive segments
  are in order or swapped: the topic is the same either way, so the model has to learn coherence.
  See `AlbertForPretraining`.

Everything here is a Keras layer or model. Constructors create the weights under the names used in
Google's checkpoints, so a checkpoint is simply a mapping from names to arrays. The optimized
operations are in `kernels.py`; brightmart's variant of ALBERT is in `albert_zh.py`.

Dimensions: B batch size, S sequence length, V vocabulary size, E embedding size, H hidden size,
A attention heads, D = H/A head size, I intermediate size, Q queries, P masked positions, L layers,
N blocks per layer.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

from albert_tf import kernels
from albert_tf.config import AlbertConfig

DROPOUTS = 3  # per block
register = tf_keras.saving.register_keras_serializable(package="albert_tf")


class _Configured:
    """Mixin that serializes layers and models built from an `AlbertConfig`.

    Subclasses store every constructor argument in an attribute of the same name.
    """

    config: AlbertConfig

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments in JSON-serializable form."""
        names = inspect.signature(type(self).__init__).parameters.keys()
        arguments = {name: getattr(self, name) for name in names if name not in ("self", "kwargs")}
        return (
            tf_keras.layers.Layer.get_config(self) | arguments | {"config": self.config.to_dict()}
        )

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Any:
        """Returns a new layer or model from the output of `get_config`."""
        return cls(**{**config, "config": AlbertConfig.from_dict(config["config"])})


class AlbertLayer(_Configured, tf_keras.layers.Layer):
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


class AlbertModel(_Configured, tf_keras.Model):
    """Base class of Keras models with an `AlbertEncoder`; the constructor creates the weights.

    Args:
        config: the model configuration.
        **kwargs: `name` and `dtype` of a Keras model.

    Attributes:
        encoder: the `AlbertEncoder`.
    """

    def __init__(self, config: AlbertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.encoder = AlbertEncoder(config, name="encoder", dtype=self.dtype_policy)
        self.built = True

    def encode(self, inputs, training, dropout_seed, output_hidden_states, positions=None):
        """Returns the encoder's outputs; `inputs` are its first three call arguments."""
        return self.encoder(
            *inputs,
            training=training,
            dropout_seed=dropout_seed,
            positions=positions,
            output_hidden_states=output_hidden_states,
        )


@register
class Linear(AlbertLayer):
    """Dense layer: activation(x · kernel + bias) over the last axis.

    Args:
        config: the model configuration.
        scope: variable scope; the weights are `scope`/kernel and `scope`/bias.
        input_size: size of the last axis of the input.
        output_size: size of the last axis of the output.
        activation: a key of `kernels.ACTIVATIONS`.
    """

    def __init__(
        self,
        config: AlbertConfig,
        scope: str,
        input_size: int,
        output_size: int,
        activation: str = "linear",
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        self.scope, self.activation = scope, activation
        self.input_size, self.output_size = input_size, output_size
        self.kernel = self.add_kernel(f"{scope}/kernel", input_size, output_size)
        self.bias = self.add_bias(f"{scope}/bias", output_size)

    def call(self, x):
        x = kernels.matmul(x, kernels.value(self.kernel))  # [..., output_size]
        return kernels.activate(x, kernels.value(self.bias), self.activation)  # same shape


@register
class LayerNorm(AlbertLayer):
    """Layer normalization over the last axis, computed in float32 and returned in x's dtype.

    Args:
        config: the model configuration.
        scope: variable scope; the weights are `scope`/beta and `scope`/gamma.
        size: size of the last axis.
    """

    def __init__(self, config: AlbertConfig, scope: str, size: int, **kwargs: Any) -> None:
        super().__init__(config, autocast=False, **{**kwargs, "dtype": "float32"})
        self.scope, self.size = scope, size
        self.beta = self.add_bias(f"{scope}/beta", size)
        self.gamma = self.add_bias(f"{scope}/gamma", size, initializer="ones")

    def call(self, x):
        beta, gamma = kernels.value(self.beta), kernels.value(self.gamma)  # [size] each
        return kernels.layer_norm(x, beta, gamma)  # [..., size]


@register
class ResidualLinear(AlbertLayer):
    """LayerNorm(residual + dropout(x · kernel + bias)), which ends both sublayers of a block.

    This is a single layer because everything after the matmul is one pass over memory
    (`kernels.add_and_norm`).

    Args:
        config: the model configuration.
        scope: variable scope; the weights are `scope`/kernel and `scope`/bias.
        norm_scope: variable scope of beta and gamma; None disables LayerNorm.
        input_size: size of the last axis of `x`; that of the output is H.

    Call arguments: `x` float [B, Q, input_size]; `residual` float [B, Q, H]; `training` and
        `dropout_seed` as in `AlbertEncoder`.
    Returns: float [B, Q, H].
    """

    def __init__(
        self, config: AlbertConfig, scope: str, norm_scope: str | None, input_size: int, **kwargs
    ) -> None:
        super().__init__(config, **kwargs)
        self.scope, self.norm_scope, self.input_size = scope, norm_scope, input_size
        self.kernel = self.add_kernel(f"{scope}/kernel", input_size, config.hidden_size)
        self.bias = self.add_bias(f"{scope}/bias", config.hidden_size)
        if norm_scope is not None:
            self.beta = self.add_bias(f"{norm_scope}/beta", config.hidden_size)
            self.gamma = self.add_bias(f"{norm_scope}/gamma", config.hidden_size, "ones")

    def call(self, x, residual, training=False, dropout_seed=None):
        x = kernels.matmul(x, kernels.value(self.kernel))  # [B, Q, H]
        return self.add_and_norm(x, residual, training, dropout_seed)

    def add_and_norm(self, x, residual, training, dropout_seed):
        """Returns LayerNorm(residual + dropout(x + bias)), float [B, Q, H]."""
        (seed,) = kernels.dropout_seeds(training, dropout_seed, 1)  # [2]
        norm = None
        if self.norm_scope is not None:
            norm = kernels.value(self.beta), kernels.value(self.gamma)  # [H] each
        rate = self.config.hidden_dropout_prob
        return kernels.add_and_norm(x, kernels.value(self.bias), residual, norm, rate, seed)


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
        self.scope, self.num_outputs, self.stddev = scope, num_outputs, stddev
        initializer = tf_keras.initializers.TruncatedNormal(
            stddev=config.initializer_range if stddev is None else stddev
        )
        shape = num_outputs, config.hidden_size
        self.kernel = self.add_weight(f"{scope}output_weights", shape, initializer=initializer)
        self.bias = self.add_weight(f"{scope}output_bias", (num_outputs,), initializer="zeros")

    def call(self, x):
        logits = kernels.matmul(x, self.kernel, transpose_b=True) + self.bias  # [..., K]
        return tf.cast(logits, tf.float32)


@register
class Embeddings(AlbertLayer):
    """Normalized sum of word, segment and position embeddings (section 3.1 of the paper).

    All three have the embedding size E. This is the first factor of the factorized embedding, with
    V·E weights for the words.

    Call arguments: `input_ids` int32 [B, S]; `segment_ids` int32 [B, S], zeros by default;
        `training` and `dropout_seed` as in `AlbertEncoder`.
    Returns: float [B, S, E].
    """

    def __init__(self, config: AlbertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        scope, size = "bert/embeddings", self.size
        self.add_words(scope)
        self.segments = self.add_kernel(
            f"{scope}/token_type_embeddings", config.type_vocab_size, size
        )
        self.positions = self.add_kernel(
            f"{scope}/position_embeddings", config.max_position_embeddings, size
        )
        self.norm = LayerNorm(config, f"{scope}/LayerNorm", size, name="norm")

    @property
    def size(self) -> int:
        """Size of the output, and of the segment and position embeddings."""
        return self.config.embedding_size

    def add_words(self, scope: str) -> None:
        """Creates the word embedding table."""
        config = self.config
        self.words = self.add_kernel(
            f"{scope}/word_embeddings", config.vocab_size, config.embedding_size
        )

    def embed_words(self, input_ids):
        """Returns the word embeddings, float [B, S, E]."""
        return tf.gather(self.words, input_ids)  # [B, S, E]

    def embed_segments(self, segment_ids):
        """Returns the segment embeddings, float [B, S, E]."""
        return tf.gather(self.segments, segment_ids)  # [B, S, E]

    def call(self, input_ids, segment_ids=None, training=False, dropout_seed=None):
        segment_ids = tf.zeros_like(input_ids) if segment_ids is None else segment_ids  # [B, S]
        x = self.embed_words(input_ids)  # [B, S, E]
        x += self.embed_segments(segment_ids)  # [B, S, E]
        x += self.positions[: tf.shape(input_ids)[1]]  # [S, E], broadcast over the batch
        (seed,) = kernels.dropout_seeds(training, dropout_seed, 1)  # [2]
        return kernels.dropout(self.norm(x), self.config.hidden_dropout_prob, seed)  # [B, S, E]

    def logits(self, x):
        """Returns the dot product with every word embedding: [B, P, E] → [B, P, V]."""
        return kernels.matmul(x, self.words, transpose_b=True)  # [B, P, V]


@register
class SelfAttention(AlbertLayer):
    """Multi-head scaled dot-product self-attention, without the output projection.

    The block applies the output projection together with the residual connection
    (`ResidualLinear`).

    Call arguments:
        x: float [B, S, H].
        input_mask: attention mask, [B, S], 1 for tokens and 0 for padding; all tokens by default.
        queries: float [B, Q, H], the rows of `x` to compute the output for; all by default.
        training, dropout_seed: as in `AlbertEncoder`.
    Returns: float [B, Q, H], the concatenated heads.
    """

    def __init__(self, config: AlbertConfig, scope: str = "attention/self", **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.scope, H, dtype = scope, config.hidden_size, self.dtype_policy
        self.query = Linear(config, f"{scope}/query", H, H, name="query", dtype=dtype)
        self.key = Linear(config, f"{scope}/key", H, H, name="key", dtype=dtype)
        self.value = Linear(config, f"{scope}/value", H, H, name="value", dtype=dtype)

    def call(self, x, input_mask=None, queries=None, training=False, dropout_seed=None):
        A = self.config.num_attention_heads
        layers = self.query, self.key, self.value
        kernel = tf.concat([kernels.value(layer.kernel) for layer in layers], -1)  # [H, 3·H]
        bias = tf.concat([kernels.value(layer.bias) for layer in layers], -1)  # [3·H]
        # Queries [B, A, Q, D], keys and values [B, A, S, D].
        query, key, value = kernels.project_heads(x, queries, kernel, bias, A)
        (seed,) = kernels.dropout_seeds(training, dropout_seed, 1)  # [2]
        rate = self.config.attention_probs_dropout_prob
        return kernels.attend(query, key, value, input_mask, rate, seed)  # [B, Q, H]


@register
class FeedForward(AlbertLayer):
    """LayerNorm(residual + dropout(activation(x · kernel + bias) · kernel + bias)).

    This is a single layer because the output of the activation, [B, Q, I], is not stored for the
    backward pass (`kernels.feed_forward`).

    Args:
        config: the model configuration.
        scope: variable scope of the first kernel and bias.
        output_scope: variable scope of the second kernel and bias.
        norm_scope: variable scope of beta and gamma; None disables LayerNorm.

    Call arguments: `x` and `residual` float [B, Q, H]; `training` and `dropout_seed` as in
        `AlbertEncoder`.
    Returns: float [B, Q, H].
    """

    def __init__(
        self, config: AlbertConfig, scope: str, output_scope: str, norm_scope: str | None, **kwargs
    ) -> None:
        super().__init__(config, **kwargs)
        self.scope, self.output_scope, self.norm_scope = scope, output_scope, norm_scope
        H, I, dtype = config.hidden_size, config.intermediate_size, self.dtype_policy  # noqa: E741
        self.intermediate = Linear(config, scope, H, I, name="intermediate", dtype=dtype)
        self.projection = ResidualLinear(
            config, output_scope, norm_scope, I, name="projection", dtype=dtype
        )

    def call(self, x, residual, training=False, dropout_seed=None):
        first, second = self.intermediate, self.projection
        weights = map(kernels.value, (first.kernel, first.bias, second.kernel))
        kernel, bias, output_kernel = weights  # [H, I], [I], [I, H]
        x = kernels.feed_forward(x, kernel, bias, self.config.hidden_act, output_kernel)
        return second.add_and_norm(x, residual, training, dropout_seed)  # [B, Q, H]


class BlockScopes(NamedTuple):
    """Variable scopes of a block's weights in checkpoints."""

    attention: str
    attention_output: str
    attention_norm: str
    intermediate: str
    output: str
    output_norm: str


@register
class TransformerBlock(AlbertLayer):
    """Self-attention and a feed-forward network, each with a residual connection and LayerNorm.

    Args:
        config: the model configuration.
        group: index of the hidden group.
        inner: index of the block within its layer.

    Call arguments:
        x: float [B, S, H].
        input_mask: attention mask, [B, S], 1 for tokens and 0 for padding; all tokens by default.
        training: whether to apply dropout.
        dropout_seeds: three seeds, int32 [2] each: for the attention probabilities, and for the
            outputs of attention and feed-forward network. Drawn at random by default.
        positions: int32 [B, Q], positions to compute the output for; all by default.
    Returns: float [B, S, H], or [B, Q, H] with `positions`.

    >>> config = AlbertConfig(97, hidden_size=12, num_attention_heads=4, intermediate_size=20)
    >>> TransformerBlock(config)(tf.zeros((5, 11, 12))).shape
    TensorShape([5, 11, 12])
    """

    def __init__(self, config: AlbertConfig, group: int = 0, inner: int = 0, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.group, self.inner = group, inner
        self.add_layers(self.scopes(), self.dtype_policy)

    def scopes(self) -> BlockScopes:
        """Returns the variable scopes of this block."""
        block = f"bert/encoder/transformer/group_{self.group}/inner_group_{self.inner}"
        return BlockScopes(
            attention=f"{block}/attention_1/self",
            attention_output=f"{block}/attention_1/output/dense",
            attention_norm=f"{block}/LayerNorm",
            intermediate=f"{block}/ffn_1/intermediate/dense",
            output=f"{block}/ffn_1/intermediate/output/dense",
            output_norm=f"{block}/LayerNorm_1",
        )

    def add_layers(self, scopes: BlockScopes, dtype: Any) -> None:
        """Creates the sublayers and their weights."""
        config, H = self.config, self.config.hidden_size
        self.attention = SelfAttention(config, scopes.attention, name="attention", dtype=dtype)
        self.attention_output = ResidualLinear(
            config,
            scopes.attention_output,
            scopes.attention_norm,
            H,
            name="attention_output",
            dtype=dtype,
        )
        self.feed_forward = FeedForward(
            config,
            scopes.intermediate,
            scopes.output,
            scopes.output_norm,
            name="feed_forward",
            dtype=dtype,
        )

    def call(self, x, input_mask=None, training=False, dropout_seeds=None, positions=None):
        seeds = kernels.dropout_seeds(training, dropout_seeds, DROPOUTS)  # [2] each
        queries = kernels.take(x, positions)  # [B, Q, H], or None for all positions
        residual = x if queries is None else queries  # [B, Q, H]
        # First sublayer: x becomes LayerNorm(x + dropout(attention(x))).
        y = self.attention(x, input_mask, queries, training, seeds[0])  # [B, Q, H]
        x = self.attention_output(y, residual, training, seeds[1])  # [B, Q, H]
        # Second sublayer: returns LayerNorm(x + dropout(feed_forward(x))).
        return self.feed_forward(x, x, training, seeds[2])  # [B, Q, H]


class Parts(NamedTuple):
    """The classes in which Google's and brightmart's layouts of ALBERT differ."""

    embeddings: type[Embeddings]
    block: type[TransformerBlock]
    masked_lm: type[MaskedLMHead]


# Layout → module with a function `parts(config)`. The modules are imported on first use because
# `albert_zh` subclasses the classes in this module.
_LAYOUTS = {"google": __name__, "albert_zh": "albert_tf.albert_zh"}


def parts_of(config: AlbertConfig) -> Parts:
    """Returns the classes that a model with this config is built from."""
    return importlib.import_module(_LAYOUTS[config.layout]).parts(config)


# Hugging Face's names of the inputs → Google's, which are used here.
_SYNONYMS = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}
_INPUTS = ("input_ids", "input_mask", "segment_ids")
# Other features in the programs' batches: inputs of some heads, labels, and metrics' inputs.
_OTHER_FEATURES = frozenset(
    [
        "masked_lm_positions",
        "masked_lm_ids",
        "masked_lm_weights",
        "next_sentence_labels",
        "token_boundary",
        "label_ids",
        "unique_ids",
        "p_mask",
        "start_positions",
        "end_positions",
        "is_impossible",
    ]
)


def unpack(input_ids: Any, input_mask: Any, segment_ids: Any) -> tuple[Any, Any, Any]:
    """Returns the encoder's three inputs; the first may be a dict that contains them all.

    Raises:
        ValueError: `input_ids` are missing or not integers; a name is unknown or given twice; or
            the layer is used in a Keras 3 model. Float ids are rejected because mixed precision
            would round them to the ids of other words.
    """
    _reject_keras_3(input_ids)
    if isinstance(input_ids, Mapping):
        if "input_ids" not in input_ids:
            raise ValueError(f"the inputs are {', '.join(input_ids)}: input_ids is missing")
        inputs = _canonical_names(input_ids)
        input_mask = one_of(inputs, "input_mask", input_mask)
        segment_ids = one_of(inputs, "segment_ids", segment_ids)
        input_ids = inputs["input_ids"]
    dtype = tf.as_dtype(input_ids.dtype)
    if not dtype.is_integer:
        raise ValueError(
            f"input_ids have the dtype {dtype.name}, expected int32 or int64. In a functional "
            'model, use tf_keras.Input(shape, dtype="int32")'
        )
    return input_ids, input_mask, segment_ids


def _canonical_names(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the inputs with Hugging Face's names replaced by Google's."""
    found = {}
    for name, value in inputs.items():
        canonical = _SYNONYMS.get(name, name)
        if canonical in found:
            raise ValueError(f"the inputs are {', '.join(inputs)}: two of them are {canonical}")
        if canonical not in _INPUTS and canonical not in _OTHER_FEATURES:
            raise ValueError(
                f"unknown input {name!r}. Expected input_ids, input_mask (or attention_mask) and "
                "segment_ids (or token_type_ids)"
            )
        found[canonical] = value
    return found


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


@register
class AlbertEncoder(AlbertLayer):
    """The ALBERT encoder: L layers that share the weights of one or a few hidden groups.

    Args:
        config: the model configuration.
        recompute: whether to use gradient checkpointing (rematerialization): store only the input
            of each layer in the forward pass and recompute its activations in the backward pass.
            This saves memory at the cost of time and does not change the result.

    Call arguments:
        input_ids: int32 [B, S]; or a dict of `input_ids`, `input_mask` and `segment_ids`. The dict
            may use Hugging Face's names `attention_mask` and `token_type_ids`, and may contain
            labels, which are ignored.
        input_mask: attention mask, [B, S], 1 for tokens and 0 for padding; all tokens by default.
        segment_ids: int32 [B, S]; zeros by default.
        training: whether to apply dropout.
        dropout_seed: int32 [2]; the same seed drops the same elements. Drawn at random by default.
        positions: int32 [B, P]; computes the last layer only at these positions and at [CLS].
        output_hidden_states: whether to return the output of every layer.

    Returns: dict of
        sequence_output: float [B, S, H], the output of the last layer; absent with `positions`.
        pooled_output: float [B, H], the output of a dense tanh layer at [CLS].
        position_output: float [B, P, H], the output of the last layer at `positions`.
        hidden_states: with `output_hidden_states`, a tuple of the input of the first layer and the
            output of each of the L·N blocks, float [B, S, H] each.

    Raises:
        ValueError: S exceeds `max_position_embeddings`, or, in the constructor, the weights do not
            fit into the machine's memory.

    >>> config = AlbertConfig(97, hidden_size=12, num_attention_heads=4, intermediate_size=20)
    >>> outputs = AlbertEncoder(config)(tf.constant([[2, 45, 61, 3], [2, 77, 3, 0]]))
    >>> {name: tuple(value.shape) for name, value in outputs.items()}
    {'sequence_output': (2, 4, 12), 'pooled_output': (2, 12)}
    """

    def __init__(self, config: AlbertConfig, recompute: bool = False, **kwargs: Any) -> None:
        config.check_memory()
        super().__init__(config, **kwargs)
        self.recompute = recompute
        H, dtype, parts = config.hidden_size, self.dtype_policy, parts_of(config)
        # Factorized embedding: V·E weights in `embeddings` and E·H in `embedding_projection`,
        # instead of V·H.
        self.embeddings = parts.embeddings(config, name="embeddings", dtype=dtype)
        E = self.embeddings.size
        self.embedding_projection = None
        if E != H:
            scope = "bert/encoder/embedding_hidden_mapping_in"
            self.embedding_projection = Linear(
                config, scope, E, H, name="embedding_projection", dtype=dtype
            )
        # Cross-layer parameter sharing: the blocks of a group are created for its first layer and
        # reused by all others.
        self.blocks, groups = [], {}
        for layer in range(config.num_hidden_layers):
            group = config.group_of_layer(layer)
            if group not in groups:
                groups[group] = [
                    parts.block(config, group, n, name=f"group_{group}_block_{n}", dtype=dtype)
                    for n in range(config.inner_group_num)
                ]
            self.blocks += groups[group]
        self.pooler = Linear(config, "bert/pooler/dense", H, H, "tanh", name="pooler", dtype=dtype)

    def call(
        self,
        input_ids,
        input_mask=None,
        segment_ids=None,
        training=False,
        dropout_seed=None,
        positions=None,
        output_hidden_states=False,
    ):
        input_ids, input_mask, segment_ids = unpack(input_ids, input_mask, segment_ids)  # [B, S]
        limit = self.config.max_position_embeddings
        if (input_ids.shape[1] or 0) > limit:
            raise ValueError(
                f"the sequence length {input_ids.shape[1]} exceeds max_position_embeddings={limit}"
            )

        num_seeds = 1 + DROPOUTS * len(self.blocks)
        seed, *seeds = kernels.dropout_seeds(training, dropout_seed, num_seeds)  # [2] each
        x = self.embeddings(input_ids, segment_ids, training, seed)  # [B, S, E]
        if self.embedding_projection is not None:
            x = self.embedding_projection(x)  # [B, S, H]
        hidden_states = [x]
        # Equivalent to `block(x, ...)`, but casts each weight and traces each block only once.
        apply = kernels.share(self.blocks, self.recompute)
        for number, block in enumerate(self.blocks):
            block_seeds, rows = seeds[DROPOUTS * number :][:DROPOUTS], None
            if positions is not None and number == len(self.blocks) - 1:
                rows = tf.pad(positions, ((0, 0), (1, 0)))  # [B, 1+P], [CLS] first
            x = apply(block, x, input_mask, training, block_seeds, rows)  # [B, S or 1+P, H]
            hidden_states.append(x)

        pooled = self.pooler(x[:, 0])  # [B, H]
        if positions is None:
            outputs = {"sequence_output": x, "pooled_output": pooled}
        else:
            outputs = {"pooled_output": pooled, "position_output": x[:, 1:]}  # [B, P, H]
        if output_hidden_states:
            outputs["hidden_states"] = tuple(hidden_states)
        return outputs


@register
class MaskedLMHead(AlbertLayer):
    """Masked language modeling head; its output kernel is tied to the word embeddings.

    Call arguments: `x` float [B, P, H], the encoder's output at the masked positions;
        `embeddings`, the encoder's `Embeddings` layer.
    Returns: logits, float32 [B, P, V].
    """

    def __init__(self, config: AlbertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        scope, size, dtype = "cls/predictions", self.size, self.dtype_policy
        self.transform = Linear(
            config,
            f"{scope}/transform/dense",
            config.hidden_size,
            size,
            config.hidden_act,
            name="transform",
            dtype=dtype,
        )
        self.norm = LayerNorm(config, f"{scope}/transform/LayerNorm", size, name="norm")
        self.bias = self.add_bias(f"{scope}/output_bias", config.vocab_size)

    @property
    def size(self) -> int:
        """Size of the word embeddings."""
        return self.config.embedding_size

    def call(self, x, embeddings):
        x = self.norm(self.transform(x))  # [B, P, E]
        logits = tf.cast(embeddings.logits(x), tf.float32)  # [B, P, V]
        return kernels.add_bias(logits, kernels.value(self.bias))  # [B, P, V]


@register
class AlbertForPretraining(AlbertModel):
    """ALBERT with its pre-training heads: masked language modeling and sentence order.

    Call arguments: as in `AlbertEncoder`, and
        masked_lm_positions: int32 [B, P], as an argument or in the dict; all positions by default.

    Returns: dict of
        masked_lm_logits: float32 [B, P, V].
        sentence_order_logits: float32 [B, 2]; class 0 is segments in order, class 1 swapped.
        With `output_hidden_states`, a tuple of this dict and the encoder's `hidden_states`.

    >>> config = AlbertConfig(97, hidden_size=12, num_attention_heads=4, intermediate_size=20)
    >>> ids, positions = tf.ones((5, 11), tf.int32), tf.ones((5, 7), tf.int32)
    >>> outputs = AlbertForPretraining(config)(ids, masked_lm_positions=positions)
    >>> outputs["masked_lm_logits"].shape, outputs["sentence_order_logits"].shape
    (TensorShape([5, 7, 97]), TensorShape([5, 2]))
    """

    def __init__(self, config: AlbertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        dtype = self.dtype_policy
        self.masked_lm = parts_of(config).masked_lm(config, name="masked_lm", dtype=dtype)
        self.sentence_order = OutputLayer(
            config, "cls/seq_relationship/", 2, name="sentence_order", dtype=dtype
        )

    def call(
        self,
        input_ids,
        input_mask=None,
        segment_ids=None,
        masked_lm_positions=None,
        training=False,
        dropout_seed=None,
        output_hidden_states=False,
    ):
        masked_lm_positions = one_of(input_ids, "masked_lm_positions", masked_lm_positions)
        inputs = input_ids, input_mask, segment_ids
        encoded = self.encode(
            inputs, training, dropout_seed, output_hidden_states, masked_lm_positions
        )
        x = encoded["sequence_output" if masked_lm_positions is None else "position_output"]
        outputs = {
            "masked_lm_logits": self.masked_lm(x, self.encoder.embeddings),  # [B, P, V]
            "sentence_order_logits": self.sentence_order(encoded["pooled_output"]),  # [B, 2]
        }
        return (outputs, encoded["hidden_states"]) if output_hidden_states else outputs


def parts(config: AlbertConfig) -> Parts:
    """Returns the classes of Google's layout."""
    return Parts(Embeddings, TransformerBlock, MaskedLMHead)
