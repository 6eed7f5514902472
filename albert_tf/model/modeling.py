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
* **Cross-layer parameter sharing.** A layer is a pair of an attention module and a feed-forward
  module, which other layers use as well. Nearly every model has one of each: twelve layers with
  the parameters of one. See `AlbertEncoder.make_blocks`.
* **Sentence-order prediction (SOP).** In BERT's next-sentence prediction, the second segment either
  follows the first or comes from another document. The topics of the segments reveal which, and
  masked language modeling already teaches topics. ALBERT predicts whether two consecutive segments
  are in order or swapped: the topic is the same either way, so the model has to learn coherence.
  See `AlbertForPretraining`.

Everything here is a Keras layer or model, whose weights have the names used in Google's
checkpoints. The arithmetic is in `ops.py`, the layers that it is wrapped in are in `layers.py`,
and which layers share which modules is in `sharing.py`.

brightmart's variant of ALBERT (https://github.com/brightmart/albert_zh), the layout "albert_zh" of
the config, differs in three places, each marked here by that name: word embeddings are projected to
H before the others are added, weights have BERT's names, and models may be pre-LN.

Dimensions: B batch size, S sequence length, V vocabulary size, E embedding size, H hidden size,
A attention heads, D = H/A head size, I intermediate size, Q queries, P masked positions, L layers,
N blocks per layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras
from absl import logging

from albert_tf.files import JsonObject
from albert_tf.model import (
    dispatch,
    expects_probabilities,
    keras_3,
    kernels,  # noqa: F401, registers the kernels
    objectives,
    ops,
)
from albert_tf.model.config import AlbertConfig
from albert_tf.model.fit_data import (
    as_labels,
    check_labels,
    features_and_labels,
    has_shapes,
    refuse_texts,
)
from albert_tf.model.fit_schedule import add_beginning
from albert_tf.model.inputs import Features, TakesInputs, check_shape, one_of, read_inputs
from albert_tf.model.layers import (
    AddAndNorm,
    AlbertLayer,
    Configured,
    LayerNorm,
    LayerOptions,
    Linear,
    Normalization,
    OutputLayer,
    call_layer,
    check_config,
    register,
)
from albert_tf.model.ops import Seed, Seeds
from albert_tf.model.shared_layers import apply_repeatedly

if TYPE_CHECKING:
    from typing_extensions import Unpack

DROPOUTS = 3  # per block
AUTO = "auto"  # the argument of `compile` that leaves loss and metrics to the head

# Name → tensor; `hidden_states` and `attentions` are tuples of tensors.
Outputs = dict[str, tf.Tensor]


@register
class Embeddings(AlbertLayer):
    """Normalized sum of word, segment and position embeddings (section 3.1 of the paper).

    All three have the embedding size E. The word embeddings are the first factor of the factorized
    embedding, with V·E weights. In albert_zh's layout, the second factor, `projection`, is applied
    to the words before the other embeddings are added, which then have the size H.

    Attributes:
        has_one_hot_segments: whether the gradient of the segment table is that of a product with
            one-hot rows, as in albert_zh's layout; see `embed_segments`.

    Call arguments: `input_ids` int32 [B, S]; `segment_ids` int32 [B, S], zeros by default;
        `inputs_embeds` float [B, S, E], used instead of the word embeddings of `input_ids`;
        `training` and `dropout_seed` as in `AlbertEncoder`.
    Returns: float [B, S, E].
    """

    def __init__(self, config: AlbertConfig, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(config, **kwargs)
        scope, E, H = "bert/embeddings", config.embedding_size, config.hidden_size
        self.word_table = self.add_kernel(f"{scope}/word_embeddings", config.vocab_size, E)
        self.projection, self.size = None, E
        if config.layout == "albert_zh":
            self.projection, self.size = self.add_kernel(f"{scope}/word_embeddings_2", E, H), H
        self.segment_table = self.add_kernel(
            f"{scope}/token_type_embeddings", config.type_vocab_size, self.size
        )
        self.position_table = self.add_kernel(
            f"{scope}/position_embeddings", config.max_position_embeddings, self.size
        )
        self.has_one_hot_segments = config.layout == "albert_zh"
        self.norm = LayerNorm(config, f"{scope}/LayerNorm", self.size, name="norm")

    def call(
        self,
        input_ids: tf.Tensor | None,
        segment_ids: tf.Tensor | None = None,
        inputs_embeds: tf.Tensor | None = None,
        training: bool | None = False,
        dropout_seed: Seeds = None,
    ) -> tf.Tensor:
        x = tf.gather(self.word_table, input_ids) if inputs_embeds is None else inputs_embeds
        shape = tf.shape(x)[:2]
        if self.projection is not None:
            x = ops.matmul(x, self.projection)  # [B, S, H]
        x += self.embed_segments(tf.zeros(shape, tf.int32) if segment_ids is None else segment_ids)
        x += self.position_table[: shape[1]]  # [S, E], broadcast over the batch
        (seed,) = ops.dropout_seeds(training, dropout_seed, 1)  # [2]
        return ops.dropout(self.norm(x), self.config.hidden_dropout_prob, seed)  # [B, S, E]

    def embed_segments(self, segment_ids: tf.Tensor) -> tf.Tensor:
        """Returns the segment embeddings, float [B, S, E].

        With `has_one_hot_segments`, the gradient of the table is dense, as in albert_zh, which
        multiplies one-hot rows by it. This affects clipping by the global norm: the gradients of a
        segment's tokens are added up before they are squared. With `tf.IndexedSlices`, they are
        squared one by one.
        """
        if not self.has_one_hot_segments:
            return tf.gather(self.segment_table, segment_ids)  # [B, S, E]
        # The gradient of a reshape is dense. It is added up in float32.
        table = tf.cast(self.segment_table, tf.float32)  # [types, H]
        table = tf.reshape(table, table.shape)
        return tf.cast(tf.gather(table, segment_ids), self.compute_dtype)  # [B, S, H]

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the dot product with every word embedding: [B, P, E] → [B, P, V]."""
        if self.projection is not None:
            x = ops.matmul(x, self.projection, transpose_b=True)  # [B, P, H] → [B, P, E]
        return ops.matmul(x, self.word_table, transpose_b=True)  # [B, P, V]


# Scopes of the weights of a block, and in it of both sublayers. albert_zh has BERT's names.
BLOCK_SCOPES = {
    "google": "bert/encoder/transformer/group_{group}/inner_group_{inner}",
    "albert_zh": "bert/encoder/layer_shared",
}
ATTENTION_SCOPES = {
    "google": ("attention_1/self", "attention_1/output/dense", "LayerNorm"),
    "albert_zh": ("attention/self", "attention/output/dense", "attention/output/LayerNorm"),
}
FEED_FORWARD_SCOPES = {
    "google": ("ffn_1/intermediate/dense", "ffn_1/intermediate/output/dense", "LayerNorm_1"),
    "albert_zh": ("intermediate/dense", "output/dense", "output/LayerNorm"),
}


class Sublayer(AlbertLayer):
    """Base class of the two sublayers of a block: dense layers, and a LayerNorm.

    The LayerNorm follows the sum with the residual (post-LN). In albert_zh's pre-LN models, it
    precedes the dense layers instead.

    Args:
        config: the model configuration.
        group: number of this module in the variable scopes, Google's hidden group.
        inner: index of the block within its layer.
    """

    def __init__(
        self, config: AlbertConfig, group: int = 0, inner: int = 0, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(config, **kwargs)
        self.group, self.inner = group, inner
        self.block_scope = BLOCK_SCOPES[config.layout].format(group=group, inner=inner)
        self.is_pre_ln = config.ln_type == "preln"

    def make_linear(self, name: str, scope: str, input_size: int, output_size: int) -> Linear:
        """Returns a new dense layer."""
        scope = f"{self.block_scope}/{scope}"
        options = {"name": name, "dtype": self.dtype_policy}
        return Linear(self.config, scope, input_size, output_size, **options)

    def make_norm(self, scope: str) -> Normalization:
        """Returns a new LayerNorm."""
        kind = LayerNorm if self.is_pre_ln else AddAndNorm
        scope = f"{self.block_scope}/{scope}"
        return kind(self.config, scope, self.config.hidden_size, name="norm")

    def add(self, x: tf.Tensor, residual: tf.Tensor, seed: Seed) -> tf.Tensor:
        """Returns residual + dropout(x), float [B, Q, H]."""
        return residual + ops.dropout(x, self.config.hidden_dropout_prob, seed)  # [B, Q, H]


@register
class SelfAttention(Sublayer):
    """LayerNorm(x + dropout(attention(x))), with multi-head scaled dot-product self-attention.

    Args: as in `Sublayer`.

    Call arguments:
        x: float [B, S, H].
        input_mask: attention mask, [B, S], 1 for tokens and 0 for padding; all tokens by default.
        output_positions: int32 [B, Q], positions to compute the output for; all by default.
        training: whether to apply dropout.
        dropout_seeds: two seeds, int32 [2] each: for the attention probabilities and the output.
    Returns: float [B, Q, H].
    """

    def __init__(
        self, config: AlbertConfig, group: int = 0, inner: int = 0, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(config, group, inner, **kwargs)
        config.check_heads()
        H, (heads, output, norm) = config.hidden_size, ATTENTION_SCOPES[config.layout]
        self.query = self.make_linear("query", f"{heads}/query", H, H)
        self.key = self.make_linear("key", f"{heads}/key", H, H)
        self.value = self.make_linear("value", f"{heads}/value", H, H)
        self.projection = self.make_linear("projection", output, H, H)
        self.norm = self.make_norm(norm)

    def call(
        self,
        x: tf.Tensor,
        input_mask: tf.Tensor | None = None,
        output_positions: tf.Tensor | None = None,
        training: bool | None = False,
        dropout_seeds: Seeds = None,
    ) -> tf.Tensor:
        attention_seed, seed = ops.dropout_seeds(training, dropout_seeds, 2)  # [2] each
        rate = self.config.attention_probs_dropout_prob
        queries = residual = ops.gather_positions(x, output_positions)  # [B, Q, H]
        if self.is_pre_ln:
            x = self.norm(x)  # [B, S, H]
            queries = ops.gather_positions(x, output_positions)  # [B, Q, H]
        # Queries [B, A, Q, D], keys and values [B, A, S, D].
        query, key, value = self.project_heads(queries, x)
        y = ops.attention(query, key, value, input_mask, rate, attention_seed)  # [B, Q, H]
        y = call_layer(self.projection, y, self.config.hidden_size)  # [B, Q, H]
        if self.is_pre_ln:
            return self.add(y, residual, seed)  # [B, Q, H]
        return self.norm(y, residual, training, seed)  # [B, Q, H]

    def probs(
        self,
        x: tf.Tensor,
        input_mask: tf.Tensor | None = None,
        output_positions: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the attention probabilities before dropout, float32 [B, A, Q, S]."""
        x = self.norm(x) if self.is_pre_ln else x  # [B, S, H]
        query, key, _ = self.project_heads(ops.gather_positions(x, output_positions), x)
        return ops.attention_probs(query, key, input_mask)

    def project_heads(self, queries: tf.Tensor, x: tf.Tensor) -> list[tf.Tensor]:
        """Returns the heads of `queries`, and keys and values of `x`, by one matmul if possible."""
        H, A = self.config.hidden_size, self.config.num_attention_heads
        layers = self.query, self.key, self.value
        if all(type(layer) is Linear for layer in layers):
            kernels, biases = zip(*((layer.kernel, layer.bias) for layer in layers), strict=True)
            return ops.project_heads(queries, x, kernels, biases, A)
        inputs = zip(layers, (queries, x, x), strict=True)
        return [ops.split_heads(call_layer(layer, y, H), A) for layer, y in inputs]


@register
class FeedForward(Sublayer):
    """LayerNorm(x + dropout(projection(activation(intermediate(x))))).

    Args: as in `Sublayer`.

    Call arguments: `x` float [B, Q, H]; `training` and `dropout_seed` as in `AlbertEncoder`.
    Returns: float [B, Q, H].
    """

    def __init__(
        self, config: AlbertConfig, group: int = 0, inner: int = 0, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(config, group, inner, **kwargs)
        H, I = config.hidden_size, config.intermediate_size  # noqa: E741
        intermediate, output, norm = FEED_FORWARD_SCOPES[config.layout]
        self.intermediate = self.make_linear("intermediate", intermediate, H, I)
        self.projection = self.make_linear("projection", output, I, H)
        self.norm = self.make_norm(norm)

    def call(
        self, x: tf.Tensor, training: bool | None = False, dropout_seed: Seeds = None
    ) -> tf.Tensor:
        (seed,) = ops.dropout_seeds(training, dropout_seed, 1)  # [2]
        if self.is_pre_ln:
            return self.add(self.transform(self.norm(x)), x, seed)  # [B, Q, H]
        return self.norm(self.transform(x), x, training, seed)  # [B, Q, H]

    def transform(self, x: tf.Tensor) -> tf.Tensor:
        """Returns projection(activation(intermediate(x))), float [B, Q, H]."""
        first, second, name = self.intermediate, self.projection, self.config.hidden_act
        if type(first) is type(second) is Linear:
            weights = first.kernel, first.bias, name, second.kernel, second.bias
            return ops.feed_forward(x, *weights)  # [B, Q, H]
        x = call_layer(first, x, self.config.intermediate_size)  # [B, Q, I]
        return call_layer(second, ops.ACTIVATIONS[name](x), self.config.hidden_size)  # [B, Q, H]


@register
class TransformerBlock(AlbertLayer):
    """Self-attention followed by a feed-forward network.

    Args:
        config: the model configuration.
        attention: the first sublayer; a new `SelfAttention` by default.
        feed_forward: the second sublayer; a new `FeedForward` by default.

    Call arguments:
        x: float [B, S, H].
        input_mask: attention mask, [B, S], 1 for tokens and 0 for padding; all tokens by default.
        output_positions: int32 [B, Q], positions to compute the output for; all by default.
        training: whether to apply dropout.
        dropout_seeds: three seeds, int32 [2] each: for the attention probabilities, and for the
            outputs of attention and feed-forward network. Drawn at random by default.
    Returns: float [B, Q, H]; [B, S, H] without `output_positions`.

    >>> config = AlbertConfig(97, hidden_size=12, num_attention_heads=4, intermediate_size=20)
    >>> TransformerBlock(config)(tf.zeros((5, 11, 12))).shape
    TensorShape([5, 11, 12])
    """

    def __init__(
        self,
        config: AlbertConfig,
        attention: SelfAttention | None = None,
        feed_forward: FeedForward | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(config, **kwargs)
        dtype = self.dtype_policy
        self.attention = attention or SelfAttention(config, name="attention", dtype=dtype)
        self.feed_forward = feed_forward or FeedForward(config, name="feed_forward", dtype=dtype)

    def call(
        self,
        x: tf.Tensor,
        input_mask: tf.Tensor | None = None,
        output_positions: tf.Tensor | None = None,
        training: bool | None = False,
        dropout_seeds: Seeds = None,
    ) -> tf.Tensor:
        *seeds, seed = ops.dropout_seeds(training, dropout_seeds, DROPOUTS)  # [2] each
        x = self.attention(
            x,
            input_mask=input_mask,
            output_positions=output_positions,
            training=training,
            dropout_seeds=seeds,
        )  # [B, Q, H]
        return self.feed_forward(x, training=training, dropout_seed=seed)  # [B, Q, H]


@register
class AlbertEncoder(TakesInputs, AlbertLayer):
    """The ALBERT encoder: L layers that share the weights of one or a few modules.

    Args:
        config: the model configuration.
        recompute: whether to use gradient checkpointing (rematerialization): store only the input
            of each layer in the forward pass and recompute its activations in the backward pass.
            This saves memory at the cost of time and does not change the result.
        add_pooling_layer: whether to have the dense layer at [CLS]. Without it, there is no
            `pooled_output`, and Keras has no weights to warn of that no loss depends on.

    Call arguments:
        input_ids: int32 [B, S]; or a dict of `input_ids`, `input_mask` and `segment_ids`. The dict
            may use Hugging Face's names `attention_mask` and `token_type_ids`. Instead of
            `input_ids`, it may contain `inputs_embeds`, float [B, S, E], which replace the word
            embeddings. Other entries, such as labels, are ignored.
        input_mask: attention mask, [B, S], 1 for tokens and 0 for padding; all tokens by default.
        segment_ids: int32 [B, S]; zeros by default.
        training: whether to apply dropout.
        dropout_seed: int32 [2]; the same seed drops the same elements. Drawn at random by default.
        output_positions: int32 [B, P]; computes the last layer only at these positions and at
            [CLS].
        output_hidden_states: whether to return the output of every layer.
        output_attentions: whether to return the attention probabilities of every layer.

    Returns: dict of
        sequence_output: float [B, S, H], the output of the last layer; absent with
            `output_positions`.
        pooled_output: float [B, H], the output of a dense tanh layer at [CLS]; absent without
            `add_pooling_layer`.
        position_output: float [B, P, H], the output of the last layer at `output_positions`.
        hidden_states: with `output_hidden_states`, a tuple of the input of the first layer and the
            output of each of the L·N blocks, float [B, S, H] each.
        attentions: with `output_attentions`, a tuple of the probabilities of each block, before
            dropout, float32 [B, A, S, S] each; [B, A, 1+P, S] in the last one with
            `output_positions`.

    Raises:
        ValueError: the hidden units cannot be divided among the heads; S exceeds
            `max_position_embeddings`; or the inputs are not as described.

    >>> config = AlbertConfig(97, hidden_size=12, num_attention_heads=4, intermediate_size=20)
    >>> outputs = AlbertEncoder(config)(tf.constant([[2, 45, 61, 3], [2, 77, 3, 0]]))
    >>> {name: tuple(value.shape) for name, value in outputs.items()}
    {'sequence_output': (2, 4, 12), 'pooled_output': (2, 12)}
    """

    def __init__(
        self,
        config: AlbertConfig,
        recompute: bool = False,
        add_pooling_layer: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(config, **kwargs)
        self.recompute, self.add_pooling_layer = recompute, add_pooling_layer
        H, dtype = config.hidden_size, self.dtype_policy
        # Factorized embedding: V·E weights in `embeddings` and E·H in `embedding_projection`,
        # instead of V·H.
        self.embeddings = Embeddings(config, name="embeddings", dtype=dtype)
        E = self.embeddings.size
        self.embedding_projection: tf_keras.layers.Layer | None = None
        if E != H:
            scope = "bert/encoder/embedding_hidden_mapping_in"
            self.embedding_projection = Linear(
                config, scope, E, H, name="embedding_projection", dtype=dtype
            )
        self.blocks = self.make_blocks()
        self.pooler: tf_keras.layers.Layer | None = None
        if add_pooling_layer:
            self.pooler = Linear(config, "bert/pooler/dense", H, H, name="pooler", dtype=dtype)

    def make_blocks(self) -> list[TransformerBlock]:
        """Returns the blocks of all layers, [L·N].

        Layers with the same module of attention or feed-forward network share its weights; layers
        with the same pair of modules share the block.
        """
        config, dtype = self.config, self.dtype_policy
        # By the number of the module, or of both modules, and that of the block in its layer.
        attentions: dict[tuple[int, int], SelfAttention] = {}
        feed_forwards: dict[tuple[int, int], FeedForward] = {}
        blocks: dict[tuple[int, int, int], TransformerBlock] = {}
        used = []
        for a, f in zip(*config.modules_of_layers(), strict=True):
            for n in range(config.inner_group_num):
                if (a, n) not in attentions:
                    name = f"attention_{a}_{n}"
                    attentions[a, n] = SelfAttention(config, a, n, name=name, dtype=dtype)
                if (f, n) not in feed_forwards:
                    name = f"feed_forward_{f}_{n}"
                    feed_forwards[f, n] = FeedForward(config, f, n, name=name, dtype=dtype)
                if (a, f, n) not in blocks:
                    modules = attentions[a, n], feed_forwards[f, n]
                    name = f"block_{a}_{f}_{n}"
                    blocks[a, f, n] = TransformerBlock(config, *modules, name=name, dtype=dtype)
                used.append(blocks[a, f, n])
        return used

    def call(
        self,
        input_ids: tf.Tensor | Features,
        input_mask: tf.Tensor | None = None,
        segment_ids: tf.Tensor | None = None,
        training: bool | None = False,
        dropout_seed: Seeds = None,
        output_positions: tf.Tensor | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> Outputs:
        inputs = read_inputs(input_ids, input_mask, segment_ids)
        check_shape(inputs, self.config.max_position_embeddings)
        num_seeds = 1 + DROPOUTS * len(self.blocks)
        seed, *seeds = ops.dropout_seeds(training, dropout_seed, num_seeds)  # [2] each
        x = self.embeddings(
            inputs.get("input_ids"),
            inputs.get("segment_ids"),
            inputs.get("inputs_embeds"),
            training,
            seed,
        )  # [B, S, E]
        if self.embedding_projection is not None:
            x = self.embedding_projection(x)  # [B, S, H]
        hidden_states, attentions = [x], []
        # Equivalent to `block(x, ...)`, but casts each weight and traces each block only once.
        apply = apply_repeatedly(self.blocks, self.recompute)
        everywhere = None
        if output_positions is not None and dispatch.is_uncompiled():
            # Then the last layer needs no function of its own, which takes time to trace.
            everywhere = tf.tile(tf.range(tf.shape(x)[1])[None], (tf.shape(x)[0], 1))  # [B, S]
        for number, block in enumerate(self.blocks):
            positions = everywhere
            if output_positions is not None and number == len(self.blocks) - 1:
                positions = tf.pad(output_positions, ((0, 0), (1, 0)))  # [B, 1+P], [CLS] first
            options = {"input_mask": inputs.get("input_mask"), "output_positions": positions}
            if output_attentions:
                attentions.append(block.attention.probs(x, **options))  # [B, A, S or 1+P, S]
            block_seeds = seeds[DROPOUTS * number :][:DROPOUTS]
            x = apply(block, x, **options, training=training, dropout_seeds=block_seeds)
            hidden_states.append(x)  # [B, S or 1+P, H]

        outputs = {"sequence_output": x} if output_positions is None else {}  # [B, S, H]
        if self.pooler is not None:
            outputs["pooled_output"] = tf.math.tanh(self.pooler(x[:, 0]))  # [B, H]
        if output_positions is not None:
            outputs["position_output"] = x[:, 1:]  # [B, P, H]
        if output_hidden_states:
            outputs["hidden_states"] = tuple(hidden_states)
        if output_attentions:
            outputs["attentions"] = tuple(attentions)
        return outputs


@register
class MaskedLMHead(AlbertLayer):
    """Masked language modeling head; its output kernel is tied to the word embeddings.

    Call arguments: `x` float [B, P, H], the encoder's output at the masked positions;
        `embeddings`, the encoder's `Embeddings` layer.
    Returns: logits, float32 [B, P, V].
    """

    def __init__(self, config: AlbertConfig, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(config, **kwargs)
        scope, H, dtype = "cls/predictions/transform", config.hidden_size, self.dtype_policy
        E = H if config.layout == "albert_zh" else config.embedding_size
        self.transform = Linear(config, f"{scope}/dense", H, E, name="transform", dtype=dtype)
        self.norm = LayerNorm(config, f"{scope}/LayerNorm", E, name="norm")
        self.bias = self.add_bias("cls/predictions/output_bias", config.vocab_size)

    def call(self, x: tf.Tensor, embeddings: Embeddings) -> tf.Tensor:
        x = ops.ACTIVATIONS[self.config.hidden_act](self.transform(x))  # [B, P, E]
        logits = tf.cast(embeddings.logits(self.norm(x)), tf.float32)  # [B, P, V]
        return ops.add_bias(logits, self.bias)  # [B, P, V]


def add_layer_outputs(answer: tf.Tensor | Outputs, encoded: Outputs) -> tf.Tensor | Outputs:
    """Returns a model's answer, as a dict with `hidden_states` and `attentions` if there are any.

    Args:
        answer: the output of a head: logits, which the dict calls `logits`, or a dict.
        encoded: the output of the encoder.
    """
    added = {name: encoded[name] for name in ("hidden_states", "attentions") if name in encoded}
    if not added:
        return answer
    named = answer if isinstance(answer, Mapping) else {"logits": answer}
    return {**named, **added}


def _is_auto(value: object) -> bool:
    return isinstance(value, str) and value == AUTO


class AlbertModel(TakesInputs, Configured, tf_keras.Model):
    """Base class of Keras models with an `AlbertEncoder`; the constructor creates the weights.

    Each model lists its call arguments, because Keras reads them, and would add to `**kwargs`.

    Args:
        config: the model configuration.
        **kwargs: `name` and `dtype` of a Keras model.

    Attributes:
        encoder: the `AlbertEncoder`.
        uses_pooler: whether an output depends on the encoder's pooler. If not, its weights are in
            checkpoints, but not among the trainable ones, so that optimizers have no moments for
            them, as in Google's programs, which skip weights without a gradient.
        returns_logits: whether `compile` refuses losses and metrics that expect probabilities; a
            subclass whose `call` returns these sets it to False.
    """

    uses_pooler = True
    returns_logits = True
    label_axes: tuple[str, ...] = ()  # of the ids of classes, where these are the labels

    def __init__(self, config: AlbertConfig, **kwargs: Unpack[LayerOptions]) -> None:
        check_config(config, type(self).__name__)
        super().__init__(**kwargs)
        self.config = config
        self.encoder = AlbertEncoder(config, name="encoder", dtype=self.dtype_policy)
        self.built = True

    def compile(
        self,
        optimizer: object = "rmsprop",
        loss: object = AUTO,
        metrics: object = AUTO,
        loss_weights: object = None,
        weighted_metrics: object = None,
        **kwargs: object,
    ) -> None:
        """Configures training, as `tf_keras.Model.compile` does.

        Args:
            optimizer: as in Keras.
            loss: as in Keras; "auto" is that of the head, with its accuracy as the metric.
            metrics: as in Keras; "auto" is that of the head if the loss is, and else none.
            loss_weights: as in Keras.
            weighted_metrics: as in Keras.
            **kwargs: others of `tf_keras.Model.compile`.

        Raises:
            ValueError: the optimizer or a metric is of Keras 3, or a loss or metric expects
                probabilities, while the model returns logits.
        """
        keras_3.refuse(optimizer, "optimizer")
        keras_3.refuse([metrics, weighted_metrics], "metrics")
        given = {
            "loss": loss,
            "metrics": metrics,
            "loss_weights": loss_weights,
            "weighted_metrics": weighted_metrics,
        }
        given = self._completed(given)
        for problem in self._problems(given):
            raise ValueError(problem)
        super().compile(optimizer, **given, **kwargs)

    def compile_defaults(self) -> dict[str, object]:
        """Returns the loss, metrics and loss weights of the head, as `compile` takes them."""
        return {}

    def _completed(self, given: dict[str, object]) -> dict[str, object]:
        """Returns arguments of `compile` with those of the head in place of "auto"."""
        plain = {name: None if _is_auto(value) else value for name, value in given.items()}
        if not _is_auto(given["loss"]):
            return plain
        defaults = self.compile_defaults()
        if not _is_auto(given["metrics"]):
            defaults = {
                name: value for name, value in defaults.items() if not name.endswith("metrics")
            }
        return {name: defaults.get(name) if x is None else x for name, x in plain.items()}

    def _problems(self, given: Mapping[str, object]) -> list[str]:
        """Returns a sentence about each loss and metric that expects probabilities of logits."""
        if not self.returns_logits:
            return []
        metrics = [given.get("metrics"), given.get("weighted_metrics")]
        count = getattr(self, "num_labels", None)
        return expects_probabilities.problems(given.get("loss"), metrics, count)

    def compile_from_config(self, config: JsonObject) -> None:
        """Configures training as before a model was saved; Keras asks for it beside `compile`.

        What `compile` refuses is only warned of, so that a model which was saved before opens.
        """
        arguments = tf_keras.saving.deserialize_keras_object(config)
        for problem in self._problems(arguments):
            logging.warning("The model was compiled with a %s", problem)
        super().compile(**arguments)
        self.optimizer.build(self.trainable_variables)

    def fit(
        self,
        x: object = None,
        y: object = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: str | int = "auto",
        callbacks: object = None,
        *args: object,
        **kwargs: object,
    ) -> tf_keras.callbacks.History:
        """Trains the model, as `tf_keras.Model.fit` does, without callbacks of Keras 3.

        A `FitSchedule` of the optimizer, as `fine_tuning_optimizer` makes, begins here.

        Raises:
            ValueError: the data are texts, not ids, or have other shapes, ids or classes than the
            model; or a callback is of Keras 3.
        """
        y = self._checked_labels("fit", x, y)
        held_out = kwargs.get("validation_data")
        if isinstance(held_out, (tuple, list)) and len(held_out) > 1:  # after an epoch otherwise
            self._checked_labels("fit", *held_out[:2])
        keras_3.refuse(callbacks, "callbacks")
        callbacks = add_beginning(getattr(self, "optimizer", None), callbacks)
        return super().fit(x, y, batch_size, epochs, verbose, callbacks, *args, **kwargs)

    def evaluate(self, x: object = None, y: object = None, *args: object, **kwargs: object) -> Any:
        """Evaluates the model, as `tf_keras.Model.evaluate` does; raises what `fit` raises."""
        y = self._checked_labels("evaluate", x, y)
        keras_3.refuse(kwargs.get("callbacks"), "callbacks")
        return super().evaluate(x, y, *args, **kwargs)

    def predict(self, x: object, *args: object, **kwargs: object) -> Any:
        """Predicts, as `tf_keras.Model.predict` does; raises what `fit` raises."""
        self._check_data("predict", x)
        keras_3.refuse(kwargs.get("callbacks"), "callbacks")
        return super().predict(x, *args, **kwargs)

    def train_on_batch(self, x: object, y: object = None, *args: object, **kwargs: object) -> Any:
        """Takes a step, as `tf_keras.Model.train_on_batch` does; raises what `fit` raises."""
        y = self._checked_labels("train_on_batch", x, y)
        return super().train_on_batch(x, y, *args, **kwargs)

    def test_on_batch(self, x: object, y: object = None, *args: object, **kwargs: object) -> Any:
        """Evaluates, as `tf_keras.Model.test_on_batch` does; raises what `fit` raises."""
        y = self._checked_labels("test_on_batch", x, y)
        return super().test_on_batch(x, y, *args, **kwargs)

    def predict_on_batch(self, x: object) -> Any:
        """Predicts, as `tf_keras.Model.predict_on_batch` does; raises what `fit` raises."""
        self._check_data("predict_on_batch", x)
        return super().predict_on_batch(x)

    def _checked_labels(self, method: str, features: object, labels: object) -> Any:
        """Returns labels as Keras takes them, after a check of the data of a method."""
        labels = as_labels(labels)
        self._check_data(method, features, labels, has_labels=True)
        return labels

    def _check_data(
        self, method: str, features: object, labels: object = None, has_labels: bool = False
    ) -> None:
        """Raises ValueError about data that the model cannot take; Keras would say it in 60 lines.

        A `call` of a subclass may take others.
        """
        if not self._is_called_as_here:
            return
        features, labels = features_and_labels(features, labels)
        refuse_texts(method, features, labels)
        if not has_shapes(features, method):  # a generator
            return
        self.check_inputs(features)
        if has_labels and type(self).train_step is tf_keras.Model.train_step:
            num_labels = getattr(self, "num_labels", None)
            loss = getattr(self, "loss", None)
            check_labels(labels, loss, self.label_axes, num_labels, method)

    @property
    def trainable_weights(self) -> list[tf.Variable]:
        """The weights that are trained."""
        unused = {id(weight) for weight in self._unused_weights()}
        return [weight for weight in super().trainable_weights if id(weight) not in unused]

    @property
    def non_trainable_weights(self) -> list[tf.Variable]:
        """The weights that are not trained: frozen, or without an effect on the output."""
        return [*super().non_trainable_weights, *self._unused_weights()]

    def _unused_weights(self) -> list[tf.Variable]:
        """Returns the trainable weights of the pooler if the output does not depend on it."""
        pooler = self.encoder.pooler
        if self.uses_pooler or not isinstance(pooler, tf_keras.layers.Layer):  # or it is replaced
            return []
        return pooler.trainable_weights


@register
class AlbertForPretraining(AlbertModel):
    """ALBERT with its pre-training heads: masked language modeling and a sentence objective.

    Args:
        config: the model configuration.
        sentence_objective: abbreviation of a `SentenceObjective`: sop, nsp, none, or that of a
            registered objective of your own.

    Raises:
        ValueError: there is no such sentence objective.

    Call arguments: as in `AlbertEncoder`, and
        masked_lm_positions: int32 [B, P], as an argument or in the dict; all positions by default.

    Returns: dict of
        masked_lm_logits: float32 [B, P, V].
        `<name>_logits`: float32 [B, K], for the K classes of the sentence objective. The default is
            `sentence_order_logits`, with class 0 for segments in order and class 1 for swapped
            ones. Absent with "none".
        hidden_states, attentions: as in `AlbertEncoder`, if asked for.

    >>> config = AlbertConfig(97, hidden_size=12, num_attention_heads=4, intermediate_size=20)
    >>> ids, positions = tf.ones((5, 11), tf.int32), tf.ones((5, 7), tf.int32)
    >>> outputs = AlbertForPretraining(config)(ids, masked_lm_positions=positions)
    >>> outputs["masked_lm_logits"].shape, outputs["sentence_order_logits"].shape
    (TensorShape([5, 7, 97]), TensorShape([5, 2]))
    """

    def __init__(
        self,
        config: AlbertConfig,
        sentence_objective: str = objectives.SOP,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(config, **kwargs)
        self.sentence_objective = sentence_objective
        dtype, scope, objective = self.dtype_policy, objectives.SCOPE, self.objective
        self.uses_pooler = objective.has_head
        self.masked_lm = MaskedLMHead(config, name="masked_lm", dtype=dtype)
        self.sentence_head = None
        if objective.has_head:
            self.sentence_head = OutputLayer(
                config, scope, objective.num_classes, name=objective.name, dtype=dtype
            )

    @property
    def objective(self) -> objectives.SentenceObjective:
        """The sentence objective."""
        return objectives.find(self.sentence_objective)

    def compile_defaults(self) -> dict[str, object]:
        """Returns the cross-entropies of both heads, and the accuracy of the sentence objective.

        Positions with the label -1 are not predicted: the first loss is the mean over the others.
        """
        cross_entropy = tf_keras.losses.SparseCategoricalCrossentropy
        losses = {"masked_lm_logits": cross_entropy(from_logits=True, ignore_class=-1)}
        if self.sentence_head is None:
            return {"loss": losses}
        name = self.objective.logits_name
        losses[name] = cross_entropy(from_logits=True)
        accuracy = tf_keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        return {"loss": losses, "metrics": {name: [accuracy]}}

    def call(
        self,
        input_ids: tf.Tensor | Features,
        input_mask: tf.Tensor | None = None,
        segment_ids: tf.Tensor | None = None,
        masked_lm_positions: tf.Tensor | None = None,
        training: bool | None = False,
        dropout_seed: Seeds = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> tf.Tensor | Outputs:
        masked_lm_positions = one_of(input_ids, "masked_lm_positions", masked_lm_positions)
        encoded = self.encoder(
            input_ids,
            input_mask,
            segment_ids,
            training=training,
            dropout_seed=dropout_seed,
            output_positions=masked_lm_positions,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
        )
        x = encoded["sequence_output" if masked_lm_positions is None else "position_output"]
        outputs = {"masked_lm_logits": self.masked_lm(x, self.encoder.embeddings)}  # [B, P, V]
        if self.sentence_head is not None:
            pooled = encoded["pooled_output"]
            outputs[self.objective.logits_name] = self.sentence_head(pooled)  # [B, K]
        return add_layer_outputs(outputs, encoded)
