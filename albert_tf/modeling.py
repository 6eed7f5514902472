"""ALBERT: the encoder with its shared layers, and the two heads that it is pre-trained with.

Read from the bottom up. `AlbertForPretraining` is an `AlbertEncoder` with two heads; the encoder
embeds the tokens and applies a `TransformerBlock` again and again; a block is `SelfAttention` and a
feed-forward network. Three things make it ALBERT (arXiv 1909.11942, section 3.1):

* **Factorized embedding.** A word needs fewer numbers to be told from other words than to be
  understood in its context. Words are therefore vectors of width E, which one matrix projects to
  the width H of the layers: V·E + E·H weights instead of V·H. With V = 30,000, E = 128 and
  H = 4096 (xxlarge) these are 4.4 million instead of 123 million. See `Embeddings` and
  `AlbertEncoder.embedding_projection`.
* **Cross-layer sharing.** All layers of a group have the same weights, and there is one group
  nearly always: twelve layers at the cost of one. See the loop in `AlbertEncoder.__init__`.
* **Sentence order.** BERT's second task asks whether the second segment follows the first or comes
  from another document. The topics of the two give that away, and masked words teach topics
  already. ALBERT asks whether two consecutive segments are in order or swapped: the topic is the
  same both times, so only coherence tells. See `AlbertForPretraining`.

Everything here is a Keras layer or model. Weights are made by constructors, under the names that
they have in Google's checkpoints, so that a checkpoint is a dictionary from name to array. How
the layers stay fast is in `kernels.py`; brightmart's variant of ALBERT is in `albert_zh.py`.

Letters: B batch, S sequence, V vocabulary, E embedding, H hidden, A heads, D = H/A head size,
I intermediate, Q queries, P masked positions, L layers, N blocks in a layer.
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

DROPOUTS = 3  # in a block
register = tf_keras.saving.register_keras_serializable(package="albert_tf")


class _Configured:
    """Layers and models that are described by an `AlbertConfig` and a few arguments.

    Every argument of a constructor is an attribute of the same name.
    """

    config: AlbertConfig

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, as JSON can hold them."""
        names = inspect.signature(type(self).__init__).parameters.keys()
        arguments = {name: getattr(self, name) for name in names if name not in ("self", "kwargs")}
        return (
            tf_keras.layers.Layer.get_config(self) | arguments | {"config": self.config.to_dict()}
        )

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Any:
        """A new layer or model from what `get_config` returned."""
        return cls(**{**config, "config": AlbertConfig.from_dict(config["config"])})


class AlbertLayer(_Configured, tf_keras.layers.Layer):
    """A layer whose weights start as ALBERT's: truncated normal kernels, zero biases.

    Args:
        config: the architecture.
        **kwargs: `name` and `dtype` of a Keras layer. Layers inside others have fixed names:
            gradients are added up in the order of names, so that a running number in them would
            change the last bits from one model of a process to the next.
    """

    def __init__(self, config: AlbertConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.built = True  # all weights are made in constructors

    def add_kernel(self, name: str, *shape: int) -> tf.Variable:
        initializer = tf_keras.initializers.TruncatedNormal(stddev=self.config.initializer_range)
        return self.add_weight(name, shape, initializer=initializer)

    def add_bias(self, name: str, size: int, initializer: str = "zeros") -> tf.Variable:
        """A vector, float32 even where the computation is in half precision."""
        return self.add_weight(name, (size,), initializer=initializer, experimental_autocast=False)


class AlbertModel(_Configured, tf_keras.Model):
    """A Keras model around an `AlbertEncoder`, its weights made by the constructor.

    Args:
        config: the architecture.
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
        """The encoder's outputs; `inputs` are its first three call arguments."""
        return self.encoder(
            *inputs,
            training=training,
            dropout_seed=dropout_seed,
            positions=positions,
            output_hidden_states=output_hidden_states,
        )


@register
class Linear(AlbertLayer):
    """activation(x · kernel + bias) over the last axis.

    Args:
        config: the architecture.
        scope: of the weights `scope`/kernel and `scope`/bias.
        input_size: width of the input.
        output_size: width of the output.
        activation: one of `kernels.ACTIVATIONS`.
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
    """Normalization over the last axis, computed in float32, returned in the type of `x`.

    Args:
        config: the architecture.
        scope: of the weights `scope`/beta and `scope`/gamma.
        size: width of the input.
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
    """LayerNorm(residual + dropout(x · kernel + bias)): how both halves of a block end.

    One layer, because after the matmul it is one pass over memory (`kernels.add_and_norm`).

    Args:
        config: the architecture.
        scope: of the weights `scope`/kernel and `scope`/bias.
        norm_scope: of `norm_scope`/beta and `norm_scope`/gamma; None for no LayerNorm.
        input_size: width of `x`; the output is H wide.

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
        (seed,) = kernels.dropout_seeds(training, dropout_seed, 1)  # [2]
        norm = None
        if self.norm_scope is not None:
            norm = kernels.value(self.beta), kernels.value(self.gamma)  # [H] each
        rate = self.config.hidden_dropout_prob
        return kernels.add_and_norm(x, kernels.value(self.bias), residual, norm, rate, seed)


@register
class OutputLayer(AlbertLayer):
    """Logits, float32 [..., K], from float [..., H]; the kernel is stored [K, H], as Google's.

    Args:
        config: the architecture.
        scope: of the weights `scope`output_weights and `scope`output_bias.
        num_outputs: K.
        stddev: of the first weights; `initializer_range` of the config if None.
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
        logits = tf.matmul(x, self.kernel, transpose_b=True) + self.bias  # [..., K]
        return tf.cast(logits, tf.float32)


@register
class Embeddings(AlbertLayer):
    """Sum of the word, segment and position embeddings, normalized. Paper section 3.1.

    All of them are E wide, the first part of the factorized embedding: V·E weights for the words.

    Call arguments: `input_ids` int32 [B, S]; `segment_ids` int32 [B, S], default all 0; `training`
        and `dropout_seed` as in `AlbertEncoder`.
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
        """Width of what comes out, and of the segments and positions."""
        return self.config.embedding_size

    def add_words(self, scope: str) -> None:
        """Makes the table of the words."""
        config = self.config
        self.words = self.add_kernel(
            f"{scope}/word_embeddings", config.vocab_size, config.embedding_size
        )

    def embed_words(self, input_ids):
        """The vectors of the words, [B, S, E]."""
        return tf.gather(self.words, input_ids)  # [B, S, E]

    def call(self, input_ids, segment_ids=None, training=False, dropout_seed=None):
        segment_ids = tf.zeros_like(input_ids) if segment_ids is None else segment_ids  # [B, S]
        x = self.embed_words(input_ids)  # [B, S, E]
        x += tf.gather(self.segments, segment_ids)  # [B, S, E]
        x += self.positions[: tf.shape(input_ids)[1]]  # [S, E], the same for every row
        (seed,) = kernels.dropout_seeds(training, dropout_seed, 1)  # [2]
        return kernels.dropout(self.norm(x), self.config.hidden_dropout_prob, seed)  # [B, S, E]

    def logits(self, x):
        """The scalar product with every word: [B, P, E] to [B, P, V]."""
        return tf.matmul(x, self.words, transpose_b=True)  # [B, P, V]


@register
class SelfAttention(AlbertLayer):
    """Multi-head scaled dot-product self-attention, up to the heads side by side.

    The output projection follows in the block, where it is one with the residual.

    Call arguments:
        x: float [B, S, H].
        input_mask: [B, S], 1 = token and 0 = padding, to which nobody attends; default all tokens.
        queries: float [B, Q, H], the rows of `x` that attend; default all of them.
        training, dropout_seed: as in `AlbertEncoder`.
    Returns: float [B, Q, H].
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
        scores = tf.matmul(query, key, transpose_b=True)  # [B, A, Q, S]
        probs = kernels.masked_softmax(scores, input_mask, query.shape[-1])  # [B, A, Q, S]
        (seed,) = kernels.dropout_seeds(training, dropout_seed, 1)  # [2]
        probs = kernels.dropout(probs, self.config.attention_probs_dropout_prob, seed)
        return kernels.merge_heads(tf.matmul(probs, value))  # [B, Q, H]


class BlockScopes(NamedTuple):
    """Where the weights of a block are in a checkpoint."""

    attention: str
    attention_output: str
    attention_norm: str
    intermediate: str
    output: str
    output_norm: str


@register
class TransformerBlock(AlbertLayer):
    """Self-attention, then a feed-forward network, each with a residual and a LayerNorm after it.

    Args:
        config: the architecture.
        group: hidden group, from 0.
        inner: number of the block in its layer, from 0.

    Call arguments:
        x: float [B, S, H].
        input_mask: [B, S], 1 = token and 0 = padding; default all tokens.
        training: whether dropout is on.
        dropout_seeds: int32 [2] for each of the three dropouts: of the attention probabilities, and
            before either residual. Drawn when absent.
        positions: int32 [B, Q], where the output is wanted; default everywhere.
    Returns: float [B, S, H]; with positions, [B, Q, H].

    >>> config = AlbertConfig(97, hidden_size=12, num_attention_heads=4, intermediate_size=20)
    >>> TransformerBlock(config)(tf.zeros((5, 11, 12))).shape
    TensorShape([5, 11, 12])
    """

    def __init__(self, config: AlbertConfig, group: int = 0, inner: int = 0, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.group, self.inner = group, inner
        self.add_layers(self.scopes(), self.dtype_policy)

    def scopes(self) -> BlockScopes:
        """Where the weights are."""
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
        """Makes the layers, and with them the weights."""
        config, H, I = self.config, self.config.hidden_size, self.config.intermediate_size  # noqa: E741
        self.attention = SelfAttention(config, scopes.attention, name="attention", dtype=dtype)
        self.attention_output = ResidualLinear(
            config,
            scopes.attention_output,
            scopes.attention_norm,
            H,
            name="attention_output",
            dtype=dtype,
        )
        self.feed_forward = Linear(
            config, scopes.intermediate, H, I, config.hidden_act, name="feed_forward", dtype=dtype
        )
        self.feed_forward_output = ResidualLinear(
            config, scopes.output, scopes.output_norm, I, name="feed_forward_output", dtype=dtype
        )

    def call(self, x, input_mask=None, training=False, dropout_seeds=None, positions=None):
        seeds = kernels.dropout_seeds(training, dropout_seeds, DROPOUTS)  # [2] each
        queries = kernels.take(x, positions)  # [B, Q, H]; None for all of x
        residual = x if queries is None else queries  # [B, Q, H]
        # Here, x becomes LayerNorm(x + dropout(attention(x))) ...
        y = self.attention(x, input_mask, queries, training, seeds[0])  # [B, Q, H]
        x = self.attention_output(y, residual, training, seeds[1])  # [B, Q, H]
        # ... and here, LayerNorm(x + dropout(feed_forward(x))).
        y = self.feed_forward(x)  # [B, Q, I]
        return self.feed_forward_output(y, x, training, seeds[2])  # [B, Q, H]


class Parts(NamedTuple):
    """The classes that the layouts of ALBERT differ in."""

    embeddings: type[Embeddings]
    block: type[TransformerBlock]
    masked_lm: type[MaskedLMHead]


# Layout → module with a function `parts(config)`. Modules are imported when a config asks for them,
# as brightmart's layout is made of subclasses of what is here.
_LAYOUTS = {"google": __name__, "albert_zh": "albert_tf.albert_zh"}


def parts_of(config: AlbertConfig) -> Parts:
    """The classes that a model with this config is made of."""
    return importlib.import_module(_LAYOUTS[config.layout]).parts(config)


# What Hugging Face's tokenizers call the inputs → what they are called here.
_SYNONYMS = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}
_INPUTS = ("input_ids", "input_mask", "segment_ids")
# What the programs' batches have besides: inputs of some models, and what losses and metrics read.
_OTHERS = frozenset(
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
    """Returns the three inputs of the encoder, where the first may be a dict of them all.

    Raises:
        ValueError: `input_ids` are missing or not integers; a name is unknown, or there twice; or
            this is part of a Keras 3 model. Floats are refused, as half precision would round them
            to the ids of other words.
    """
    _refuse_keras_3(input_ids)
    if isinstance(input_ids, Mapping):
        if "input_ids" not in input_ids:
            raise ValueError(f"no input_ids among the inputs, which are {', '.join(input_ids)}")
        inputs = _by_own_name(input_ids)
        input_mask = one_of(inputs, "input_mask", input_mask)
        segment_ids = one_of(inputs, "segment_ids", segment_ids)
        input_ids = inputs["input_ids"]
    dtype = tf.as_dtype(input_ids.dtype)
    if not dtype.is_integer:
        raise ValueError(
            f"input_ids are {dtype.name}: expected int32 or int64, in a functional model from "
            'tf_keras.Input(shape, dtype="int32")'
        )
    return input_ids, input_mask, segment_ids


def _by_own_name(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns inputs under the names that they have here."""
    found = {}
    for name, value in inputs.items():
        own = _SYNONYMS.get(name, name)
        if own in found:
            raise ValueError(f"the inputs are {', '.join(inputs)}: two of them are {own}")
        if own not in _INPUTS and own not in _OTHERS:
            raise ValueError(
                f"unknown input {name!r}. Expected input_ids, input_mask (or attention_mask) and "
                "segment_ids (or token_type_ids)"
            )
        found[own] = value
    return found


def one_of(inputs: Any, name: str, argument: Any) -> Any:
    """Returns an input that is in a dict of inputs or an argument beside it; None if neither.

    Raises:
        ValueError: it is both.
    """
    if not isinstance(inputs, Mapping) or inputs.get(name) is None:
        return argument
    if argument is not None:
        raise ValueError(f"{name} is in the dict of inputs, and an argument as well")
    return inputs[name]


def _refuse_keras_3(inputs: Any) -> None:
    """Raises ValueError in a model of Keras 3, which would not train these weights."""
    keras = sys.modules.get("keras")
    state = sys.modules.get("keras.src.backend.common.global_state")
    if keras is None or state is None:  # nobody has imported Keras 3
        return
    # A Keras 3 layer that is being called, or its symbolic input.
    is_inside = state.get_global_attribute("current_call_ctx") is not None
    if is_inside or any(isinstance(x, keras.KerasTensor) for x in tf.nest.flatten(inputs)):
        raise ValueError(
            "this is a tf_keras layer, which a model of Keras 3 (TensorFlow's own keras) does not "
            "train or save. Make the model of tf_keras layers (import tf_keras), or set the "
            "environment variable TF_USE_LEGACY_KERAS=1 before TensorFlow is imported."
        )


@register
class AlbertEncoder(AlbertLayer):
    """The ALBERT encoder: L layers that share the weights of a few groups.

    Args:
        config: the architecture.
        recompute: gradient checkpointing: keep the input of each layer instead of everything that
            is computed inside, and compute that again for the gradient. The numbers are the same.

    Call arguments:
        input_ids: int32 [B, S]; or a dict of this and the next two, also under Hugging Face's names
            `attention_mask` and `token_type_ids`. Labels in it are left to losses.
        input_mask: [B, S], 1 = token and 0 = padding; default all tokens.
        segment_ids: int32 [B, S]; default all 0.
        training: whether dropout is on.
        dropout_seed: int32 [2]; the same seed gives the same dropout. Drawn when absent.
        positions: int32 [B, P]; the last layer is computed at [CLS] and there, and nowhere else.
        output_hidden_states: whether to return the output of every layer.

    Returns: dict of
        sequence_output: float [B, S, H], the output of the last layer; not with `positions`.
        pooled_output: float [B, H], tanh of a dense layer at [CLS].
        position_output: float [B, P, H], the output of the last layer at `positions`.
        hidden_states: on request, the embeddings as they enter the first layer and the output of
            each of the L·N blocks, [B, S, H] each.

    Raises: ValueError if S is larger than `max_position_embeddings`, and, on construction, if the
        weights would not fit into the memory of the machine.

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
        # V·E weights here and E·H there, instead of V·H.
        self.embeddings = parts.embeddings(config, name="embeddings", dtype=dtype)
        E = self.embeddings.size
        self.embedding_projection = None
        if E != H:
            scope = "bert/encoder/embedding_hidden_mapping_in"
            self.embedding_projection = Linear(
                config, scope, E, H, name="embedding_projection", dtype=dtype
            )
        # Cross-layer sharing is this loop: a group's blocks are made once, for its first layer,
        # and the others have the same ones.
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
            raise ValueError(f"{input_ids.shape[1]} positions, max_position_embeddings={limit}")

        num_seeds = 1 + DROPOUTS * len(self.blocks)
        seed, *seeds = kernels.dropout_seeds(training, dropout_seed, num_seeds)  # [2] each
        x = self.embeddings(input_ids, segment_ids, training, seed)  # [B, S, E]
        if self.embedding_projection is not None:
            x = self.embedding_projection(x)  # [B, S, H]
        hidden_states = [x]
        # The same as `block(x, ...)`, for less: weights are cast, and blocks traced, once.
        apply = kernels.share(self.blocks, self.recompute)
        for number, block in enumerate(self.blocks):
            own_seeds, wanted = seeds[DROPOUTS * number :][:DROPOUTS], None
            if positions is not None and number == len(self.blocks) - 1:
                wanted = tf.pad(positions, ((0, 0), (1, 0)))  # [B, 1+P], [CLS] before the others
            x = apply(block, x, input_mask, training, own_seeds, wanted)  # [B, S or 1+P, H]
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
    """Scores of the vocabulary at masked positions; the output kernel is the word embeddings.

    Call arguments: `x` float [B, P, H], the encoder's output there; `embeddings`, the layer.
    Returns: float32 [B, P, V].
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
        """Width of the word embeddings."""
        return self.config.embedding_size

    def call(self, x, embeddings):
        x = self.norm(self.transform(x))  # [B, P, E]
        return tf.cast(embeddings.logits(x), tf.float32) + self.bias  # [B, P, V]


@register
class AlbertForPretraining(AlbertModel):
    """ALBERT with the two heads of its pre-training: masked words, and the order of sentences.

    Call arguments: as `AlbertEncoder`, and
        masked_lm_positions: int32 [B, P], here or in the dict; default every position.

    Returns: dict of
        masked_lm_logits: float32 [B, P, V].
        sentence_order_logits: float32 [B, 2]: 0 for segments in order, 1 for swapped ones.
        With `output_hidden_states`, a tuple of this and the encoder's `hidden_states`.

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
    """The classes of Google's layout."""
    return Parts(Embeddings, TransformerBlock, MaskedLMHead)
