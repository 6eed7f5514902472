"""ALBERT: the encoder with its shared layers, and the two pre-training heads.

Read from the bottom up: `AlbertForPretraining` is an `AlbertEncoder` with a masked-LM head and a
sentence-order head; the encoder applies a few `TransformerBlock`s many times; a block is
`SelfAttention` and a feed-forward network. Paper: arXiv 1909.11942, section 3.

Weights are made in constructors under their names in Google's checkpoints: a checkpoint is a
dictionary from name to array. brightmart's albert_zh has names and embeddings of its own.

Letters: B batch, S sequence, V vocabulary, E embedding, H hidden, A heads, D = H/A head size,
I intermediate, P masked positions, L layers, G groups, N blocks a layer.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.config import AlbertConfig

LAYER_NORM_EPSILON = 1e-12  # Google's; Keras and PyTorch default to larger ones
MASKED_SCORE = -10_000.0  # added to the scores of padding: its softmax is 0, even in bfloat16

# Names of a block's weights: the block's scope, then the scopes inside it in the order of use.
BLOCK_SCOPES = {
    "google": (
        "bert/encoder/transformer/group_{group}/inner_group_{inner}/",
        ("attention_1/self/", "attention_1/output/dense", "LayerNorm"),
        ("ffn_1/intermediate/dense", "ffn_1/intermediate/output/dense", "LayerNorm_1"),
    ),
    "albert_zh": (
        "bert/encoder/layer_shared/",
        ("attention/self/", "attention/output/dense", "attention/output/LayerNorm"),
        ("intermediate/dense", "output/dense", "output/LayerNorm"),
    ),
}
GELU = functools.partial(tf.nn.gelu, approximate=True)  # the tanh form, as Google's
ACTIVATIONS = {"gelu": GELU, "relu": tf.nn.relu, "tanh": tf.math.tanh, "linear": tf.identity}


def dropout(x: tf.Tensor, rate: float, seeds: tf.Tensor | None, index: int = 0) -> tf.Tensor:
    """Dropout with the seed `seeds[index]`, int32 [2]: the same seed drops the same elements."""
    if seeds is None or rate == 0.0:
        return x
    return tf.nn.experimental.stateless_dropout(x, rate, seeds[index])


class AlbertLayer(tf_keras.layers.Layer):
    """A Keras layer whose weights start as ALBERT's: truncated normal kernels, zero biases."""

    def __init__(self, config: AlbertConfig, **kwargs: Any) -> None:
        # No running numbers in names: gradients are summed in the order of names.
        super().__init__(**{"name": type(self).__name__, **kwargs})
        self.config, self.built = config, True  # all weights are made in constructors

    def add_kernel(self, name: str, *shape: int) -> tf.Variable:
        initializer = tf_keras.initializers.TruncatedNormal(stddev=self.config.initializer_range)
        return self.add_weight(name, shape, initializer=initializer)

    def add_bias(self, name: str, size: int, **kwargs: Any) -> tf.Variable:
        return self.add_weight(name, (size,), initializer="zeros", **kwargs)


class Dense(AlbertLayer):
    """x · kernel + bias over the last axis, with the weights `scope`/kernel and `scope`/bias."""

    def __init__(self, config: AlbertConfig, scope: str, input_size: int, output_size: int) -> None:
        super().__init__(config)
        self.kernel = self.add_kernel(f"{scope}/kernel", input_size, output_size)
        self.bias = self.add_bias(f"{scope}/bias", output_size)

    def call(self, x):
        return tf.matmul(x, self.kernel) + self.bias  # [..., output_size]


class OutputLayer(AlbertLayer):
    """Logits float32 [B, n] from a pooled [B, H]; the kernel is stored [n, H], as Google's."""

    def __init__(self, config: AlbertConfig, scope: str, num_outputs: int) -> None:
        super().__init__(config)
        self.kernel = self.add_kernel(f"{scope}output_weights", num_outputs, config.hidden_size)
        self.bias = self.add_bias(f"{scope}output_bias", num_outputs)

    def call(self, x):
        return tf.cast(tf.matmul(x, self.kernel, transpose_b=True) + self.bias, tf.float32)


class LayerNorm(AlbertLayer):
    """Normalization over the last axis, computed in float32, returned in the type of `x`."""

    def __init__(self, config: AlbertConfig, scope: str, size: int) -> None:
        super().__init__(config, dtype="float32", autocast=False)
        self.beta = self.add_bias(f"{scope}/beta", size)
        self.gamma = self.add_weight(f"{scope}/gamma", (size,), initializer="ones")

    def call(self, x):
        precise = tf.cast(x, tf.float32)  # [..., size]
        mean, variance = tf.nn.moments(precise, axes=[-1], keepdims=True)  # [..., 1] each
        scale = tf.math.rsqrt(variance + LAYER_NORM_EPSILON) * self.gamma  # [..., size]
        return tf.cast(precise * scale + (self.beta - mean * scale), x.dtype)  # [..., size]


class Embeddings(AlbertLayer):
    """Sum of word, segment and position embeddings, normalized. Paper section 3.1.

    Call arguments: `input_ids` int32 [B, S]; `segment_ids` int32 [B, S]; `seeds` for dropout.
    Returns: float [B, S, E]; in albert_zh's layout [B, S, H].
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        V, E, H = config.vocab_size, config.embedding_size, config.hidden_size
        types, length = config.type_vocab_size, config.max_position_embeddings
        is_zh, scope = config.layout == "albert_zh", "bert/embeddings"
        width = H if is_zh else E
        self.words = self.add_kernel(f"{scope}/word_embeddings", V, E)
        self.projection = self.add_kernel(f"{scope}/word_embeddings_2", E, H) if is_zh else None
        self.segments = self.add_kernel(f"{scope}/token_type_embeddings", types, width)
        self.positions = self.add_kernel(f"{scope}/position_embeddings", length, width)
        self.norm = LayerNorm(config, f"{scope}/LayerNorm", width)

    def call(self, input_ids, segment_ids, seeds=None):
        x = tf.gather(self.words, input_ids)  # [B, S, E]
        if self.projection is not None:
            x = tf.matmul(x, self.projection)  # [B, S, H]
        x += tf.gather(self.segments, segment_ids)  # [B, S, E or H]
        x += self.positions[: tf.shape(input_ids)[1]]  # [S, E or H], the same for every row
        return dropout(self.norm(x), self.config.hidden_dropout_prob, seeds)  # [B, S, E or H]

    def logits(self, x):
        """Products with the word embeddings: [B, P, E] (albert_zh [B, P, H]) to [B, P, V]."""
        if self.projection is not None:
            x = tf.matmul(x, self.projection, transpose_b=True)  # [B, P, E]
        return tf.matmul(x, self.words, transpose_b=True)  # [B, P, V]


class SelfAttention(AlbertLayer):
    """Multi-head scaled dot-product self-attention with its output projection.

    Call arguments: `x` float [B, S, H]; `mask_adder` float32 [B, 1, 1, S], 0 at tokens and
    MASKED_SCORE at padding; `seeds` int32 [≥ 2, 2] or None. Returns: float [B, S, H].
    """

    def __init__(self, config: AlbertConfig, scope: str, output_scope: str) -> None:
        super().__init__(config)
        H, self.num_heads = config.hidden_size, config.num_attention_heads
        self.head_size = H // self.num_heads
        self.query = Dense(config, f"{scope}query", H, H)
        self.key = Dense(config, f"{scope}key", H, H)
        self.value = Dense(config, f"{scope}value", H, H)
        self.projection = Dense(config, output_scope, H, H)

    def split_heads(self, x):
        x = tf.reshape(x, (-1, tf.shape(x)[1], self.num_heads, self.head_size))  # [B, S, A, D]
        return tf.transpose(x, (0, 2, 1, 3))  # [B, A, S, D]

    def call(self, x, mask_adder, seeds=None):
        query = self.split_heads(self.query(x)) * self.head_size**-0.5  # [B, A, S, D]
        key = self.split_heads(self.key(x))  # [B, A, S, D]
        value = self.split_heads(self.value(x))  # [B, A, S, D]
        scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)  # [B, A, S, S]
        probs = tf.cast(tf.nn.softmax(scores + mask_adder), value.dtype)  # [B, A, S, S]
        probs = dropout(probs, self.config.attention_probs_dropout_prob, seeds, 0)
        context = tf.matmul(probs, value)  # [B, A, S, D]
        context = tf.reshape(tf.transpose(context, (0, 2, 1, 3)), tf.shape(x))  # [B, S, H]
        return dropout(self.projection(context), self.config.hidden_dropout_prob, seeds, 1)


class TransformerBlock(AlbertLayer):
    """Self-attention and a feed-forward network, each with a residual and a LayerNorm.

    Post-LN normalizes the sum, as in the paper; pre-LN (albert_zh) normalizes what goes in.
    Call arguments as `SelfAttention`, with `seeds` [3, 2]. Returns: float [B, S, H].
    """

    def __init__(self, config: AlbertConfig, group: int = 0, inner: int = 0) -> None:
        super().__init__(config)
        H, scopes = config.hidden_size, BLOCK_SCOPES[config.layout]
        block = scopes[0].format(group=group, inner=inner)
        attention, attention_output, attention_norm = (block + scope for scope in scopes[1])
        intermediate, output, output_norm = (block + scope for scope in scopes[2])
        self.attention = SelfAttention(config, attention, attention_output)
        self.attention_norm = LayerNorm(config, attention_norm, H)
        self.intermediate = Dense(config, intermediate, H, config.intermediate_size)
        self.projection = Dense(config, output, config.intermediate_size, H)
        self.output_norm = LayerNorm(config, output_norm, H)

    def feed_forward(self, x, seeds):
        x = ACTIVATIONS[self.config.hidden_act](self.intermediate(x))  # [B, S, I]
        return dropout(self.projection(x), self.config.hidden_dropout_prob, seeds, 2)  # [B, S, H]

    def call(self, x, mask_adder, seeds=None):
        if self.config.ln_type == "preln":
            x += self.attention(self.attention_norm(x), mask_adder, seeds)  # [B, S, H]
            return x + self.feed_forward(self.output_norm(x), seeds)  # [B, S, H]
        x = self.attention_norm(x + self.attention(x, mask_adder, seeds))  # [B, S, H]
        return self.output_norm(x + self.feed_forward(x, seeds))  # [B, S, H]


class AlbertEncoder(AlbertLayer):
    """The ALBERT encoder: L layers that share the weights of G groups.

    Call arguments:
        inputs: dict of `input_ids` int32 [B, S]; `input_mask` int32 [B, S], 1 = token and
            0 = padding (default: all tokens); `segment_ids` int32 [B, S] (default: all 0).
        training: whether dropout is on.
        dropout_seed: int32 [2]; the same seed gives the same dropout. Drawn when absent.
    Returns: dict of `sequence_output` float [B, S, H]; `pooled_output` [B, H], tanh of a dense
        layer at position 0; `encoder_outputs`, the L·N block outputs, [B, S, H] each;
        `embedding_output` [B, S, E] (albert_zh: [B, S, H]).
    Raises: ValueError if S is larger than `max_position_embeddings`.
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        E, H = config.embedding_size, config.hidden_size
        self.embeddings, self.projection = Embeddings(config), None
        if config.layout == "google" and E != H:
            self.projection = Dense(config, "bert/encoder/embedding_hidden_mapping_in", E, H)
        # Cross-layer sharing: a group's blocks are made once and stand in each of its layers.
        layers = [config.group_of_layer(layer) for layer in range(config.num_hidden_layers)]
        groups = {
            group: [TransformerBlock(config, group, n) for n in range(config.inner_group_num)]
            for group in sorted(set(layers))
        }
        self.blocks = [block for group in layers for block in groups[group]]
        self.pooler = Dense(config, "bert/pooler/dense", H, H)

    def call(self, inputs, training=False, dropout_seed=None):
        input_ids = inputs["input_ids"]  # [B, S]
        limit = self.config.max_position_embeddings
        if (input_ids.shape[1] or 0) > limit:
            raise ValueError(f"{input_ids.shape[1]} positions, max_position_embeddings={limit}")
        mask = tf.cast(inputs.get("input_mask", tf.ones_like(input_ids)), tf.float32)  # [B, S]
        segment_ids = inputs.get("segment_ids", tf.zeros_like(input_ids))  # [B, S]
        if training and dropout_seed is None:
            dropout_seed = tf.random.uniform((2,), maxval=2**31 - 1, dtype=tf.int32)  # [2]
        count = 3 * len(self.blocks) + 1
        seeds = tf.random.split(dropout_seed, count) if training else None  # [3·L·N + 1, 2]
        x = embedding_output = self.embeddings(input_ids, segment_ids, seeds)  # [B, S, E]
        x = x if self.projection is None else self.projection(x)  # [B, S, H]
        mask_adder = (1.0 - mask[:, None, None, :]) * MASKED_SCORE  # [B, 1, 1, S]
        outputs = []
        for i, block in enumerate(self.blocks):
            x = block(x, mask_adder, seeds[3 * i + 1 : 3 * i + 4] if training else None)
            outputs.append(x)  # [B, S, H]
        return {
            "sequence_output": x,
            "pooled_output": tf.math.tanh(self.pooler(x[:, 0])),  # [B, H]
            "encoder_outputs": outputs,
            "embedding_output": embedding_output,
        }


class MaskedLMHead(AlbertLayer):
    """Scores of the vocabulary at the masked positions; the output kernel is the word embeddings.

    Call arguments: `sequence_output` float [B, S, H]; `positions` int32 [B, P].
    Returns: float32 [B, P, V].
    """

    def __init__(self, config: AlbertConfig, embeddings: Embeddings) -> None:
        super().__init__(config)
        V, H, scope = config.vocab_size, config.hidden_size, "cls/predictions"
        size = H if config.layout == "albert_zh" else config.embedding_size
        self.embeddings = embeddings
        self.transform = Dense(config, f"{scope}/transform/dense", H, size)
        self.norm = LayerNorm(config, f"{scope}/transform/LayerNorm", size)
        self.bias = self.add_bias(f"{scope}/output_bias", V, experimental_autocast=False)

    def call(self, sequence_output, positions):
        x = tf.gather(sequence_output, positions, batch_dims=1)  # [B, P, H]
        x = self.norm(ACTIVATIONS[self.config.hidden_act](self.transform(x)))  # [B, P, E]
        return tf.cast(self.embeddings.logits(x), tf.float32) + self.bias  # [B, P, V]


class AlbertForPretraining(tf_keras.Model):
    """ALBERT with its two pre-training heads.

    Call arguments: as `AlbertEncoder`, `inputs` with `masked_lm_positions` int32 [B, P] as well.
    Returns: the encoder's dict, `masked_lm_logits` float32 [B, P, V], and `sentence_order_logits`
    float32 [B, 2]: 0 for segments in order, 1 for swapped ones (paper section 3.1).
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(name="AlbertForPretraining")
        self.config, self.built = config, True
        self.encoder = AlbertEncoder(config)
        self.masked_lm = MaskedLMHead(config, self.encoder.embeddings)
        self.sentence_order = OutputLayer(config, "cls/seq_relationship/", 2)

    def call(self, inputs, training=False, dropout_seed=None):
        outputs = self.encoder(inputs, training=training, dropout_seed=dropout_seed)
        x = outputs["sequence_output"]  # [B, S, H]
        outputs["masked_lm_logits"] = self.masked_lm(x, inputs["masked_lm_positions"])
        outputs["sentence_order_logits"] = self.sentence_order(outputs["pooled_output"])
        return outputs
