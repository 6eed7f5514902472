"""ALBERT: the encoder with its shared layers, and the two pre-training heads.

Read from the bottom up: `AlbertForPretraining` is an `AlbertEncoder` with a masked-LM head and a
sentence-order head; the encoder applies a few `TransformerBlock`s many times; a block is
`SelfAttention` and a feed-forward network, with tokens as rows, and `kernels` between the products.
Paper: arXiv 1909.11942, section 3.

Weights are made in constructors under their names in Google's checkpoints: a checkpoint is a
dictionary from name to array. brightmart's albert_zh has names and embeddings of its own.

Letters: B batch, S sequence, V vocabulary, E embedding, H hidden, A heads, D = H/A head size,
I intermediate, P masked positions, L layers, G groups, N blocks a layer.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf import kernels
from albert_tf.config import AlbertConfig
from albert_tf.kernels import dropout

MASKED_SCORE = -10_000.0  # added to the scores of padding: its softmax is 0, even in bfloat16
# The weights of a block in this model: its scope, then the scopes inside it in the order of use.
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

    def read(self) -> tuple[Any, ...]:
        """The weights in the type of the computation, in the order in which they were made."""
        return tuple(tf.convert_to_tensor(weight) for weight in self.weights)


class Dense(AlbertLayer):
    """x · kernel + bias over the last axis, with the weights `scope`/kernel and `scope`/bias."""

    def __init__(self, config: AlbertConfig, scope: str, input_size: int, output_size: int) -> None:
        super().__init__(config)
        self.kernel = self.add_kernel(f"{scope}/kernel", input_size, output_size)
        self.bias = self.add_bias(f"{scope}/bias", output_size, experimental_autocast=False)

    def call(self, x):
        return tf.matmul(x, self.kernel) + tf.cast(self.bias, x.dtype)  # [..., output_size]


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
        return kernels.layer_norm(x, *self.read())  # [..., size]


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
    """Multi-head scaled dot-product self-attention with its output projection."""

    def __init__(self, config: AlbertConfig, scope: str, output_scope: str) -> None:
        super().__init__(config)
        H = config.hidden_size
        self.query = Dense(config, f"{scope}query", H, H)
        self.key = Dense(config, f"{scope}key", H, H)
        self.value = Dense(config, f"{scope}value", H, H)
        self.projection = Dense(config, output_scope, H, H)

    def read(self):
        parts = self.query.read(), self.key.read(), self.value.read()
        qkv = [tf.concat(tensors, axis=-1) for tensors in zip(*parts, strict=True)]
        return *qkv, *self.projection.read()  # [H, 3·H], [3·H], [H, H], [H]

    def attend(self, queries, x, weights, mask_adder, seeds):
        """What rows `queries` [B·Q, H] find in rows `x` [B·S, H], but for the last bias."""
        *qkv, kernel, _ = weights
        A, rate = self.config.num_attention_heads, self.config.attention_probs_dropout_prob
        batch = tf.shape(mask_adder)[0]
        query, key, value = kernels.project_heads(queries, x, *qkv, batch, A)  # [B, A, Q|S, D]
        scores = tf.matmul(query, key, transpose_b=True)  # [B, A, Q, S]
        probs = kernels.masked_softmax(scores, mask_adder, query.shape[-1])  # [B, A, Q, S]
        context = tf.matmul(dropout(probs, rate, seeds, 0), value)  # [B, A, Q, D]
        context = tf.reshape(tf.transpose(context, (0, 2, 1, 3)), tf.shape(queries))  # [B·Q, H]
        return tf.matmul(context, kernel)  # [B·Q, H]


class TransformerBlock(AlbertLayer):
    """Self-attention and a feed-forward network, each with a residual and a LayerNorm.

    Post-LN normalizes the sum, as in the paper; pre-LN (albert_zh) normalizes what goes in.
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

    def read(self):
        parts = self.attention, self.attention_norm, self.intermediate, self.projection
        return tuple(part.read() for part in (*parts, self.output_norm))

    def apply_to(self, x, weights, mask_adder, seeds=None, positions=None):
        """The block's output, [B·S, H], of rows `x`; at `positions` int32 [B, P] only, [B·P, H].

        `weights`, of `read`, are read and cast once a step for all layers. `mask_adder`: float32
        [B, 1, 1, S], 0 at tokens, MASKED_SCORE at padding. `seeds`: int32 [3, 2] or None.
        """
        attention, norm_1, (kernel_1, bias_1), (kernel_2, bias_2), norm_2 = weights
        is_pre, rate = self.config.ln_type == "preln", self.config.hidden_dropout_prob
        source = kernels.layer_norm(x, *norm_1) if is_pre else x  # [B·S, H]
        queries, x = kernels.take(source, positions), kernels.take(x, positions)  # [N, H] each
        y = self.attention.attend(queries, source, attention, mask_adder, seeds)  # [N, H]
        post_1, post_2 = (None, None) if is_pre else (norm_1, norm_2)
        x = kernels.add_and_norm(y, attention[-1], x, post_1, rate, seeds, 1)  # [N, H]
        y = kernels.layer_norm(x, *norm_2) if is_pre else x  # [N, H]
        y = kernels.activate(tf.matmul(y, kernel_1), bias_1, self.config.hidden_act)  # [N, I]
        return kernels.add_and_norm(tf.matmul(y, kernel_2), bias_2, x, post_2, rate, seeds, 2)


class AlbertEncoder(AlbertLayer):
    """The ALBERT encoder: L layers that share the weights of G groups.

    Call arguments:
        inputs: dict of `input_ids` int32 [B, S]; `input_mask` int32 [B, S], 1 = token and
            0 = padding (default: all tokens); `segment_ids` int32 [B, S] (default: all 0).
        training: whether dropout is on.
        dropout_seed: int32 [2]; the same seed gives the same dropout. Drawn when absent.
        positions: int32 [B, P] of `position_output`; none by default.
    Returns: dict of `sequence_output` float [B, S, H]; `pooled_output` [B, H], tanh of a dense
        layer at position 0; `position_output` [B, P, H]; `encoder_outputs`, the L·N block outputs,
        [B, S, H] each; `embedding_output` [B, S, E] (albert_zh: [B, S, H]).
    Raises: ValueError if S is larger than `max_position_embeddings`.
    """

    def __init__(self, config: AlbertConfig, recompute: bool = False) -> None:
        super().__init__(config)
        E, H = config.embedding_size, config.hidden_size
        self.recompute = recompute  # keep one layer's activations, not all, and compute them again
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

    def call(self, inputs, training=False, dropout_seed=None, positions=None):
        input_ids = inputs["input_ids"]  # [B, S]
        limit = self.config.max_position_embeddings
        if (input_ids.shape[1] or 0) > limit:
            raise ValueError(f"{input_ids.shape[1]} positions, max_position_embeddings={limit}")
        mask = tf.cast(inputs.get("input_mask", tf.ones_like(input_ids)), tf.float32)  # [B, S]
        segment_ids = inputs.get("segment_ids", tf.zeros_like(input_ids))  # [B, S]
        if training and dropout_seed is None:
            dropout_seed = tf.random.uniform((2,), maxval=2**31 - 1, dtype=tf.int32)  # [2]
        seeds = kernels.split_seed(dropout_seed, 3 * len(self.blocks) + 1) if training else None
        x = embedding_output = self.embeddings(input_ids, segment_ids, seeds)  # [B, S, E]
        x = x if self.projection is None else self.projection(x)  # [B, S, H]
        mask_adder = (1.0 - mask[:, None, None, :]) * MASKED_SCORE  # [B, 1, 1, S]
        outputs, last = self.run_blocks(x, mask_adder, seeds, positions)
        return {
            "sequence_output": outputs[-1],
            "pooled_output": tf.math.tanh(self.pooler(last[:, 0])),  # [B, H]
            "position_output": last[:, 1:],  # [B, P, H]
            "encoder_outputs": outputs,
            "embedding_output": embedding_output,
        }

    def run_blocks(self, x, mask_adder, seeds, positions):
        """Outputs of all blocks, [B, S, H] each, and of the last at 0 and `positions`."""
        shape, outputs = tf.shape(x), []
        x = tf.reshape(x, (-1, x.shape[-1]))  # [B·S, H]
        weights = {block: block.read() for block in dict.fromkeys(self.blocks)}
        apply = {block: kernels.traced_once(block.apply_to, self.recompute) for block in weights}
        for i, block in enumerate(self.blocks):
            block_seeds = None if seeds is None else seeds[3 * i + 1 : 3 * i + 4]  # [3, 2]
            arguments = x, weights[block], mask_adder, block_seeds
            x = apply[block](*arguments)  # [B·S, H]
            outputs.append(tf.reshape(x, shape))  # [B, S, H]
        # Most tasks want few positions of the last block: graphs leave out what is not asked for.
        positions = tf.zeros((shape[0], 0), tf.int32) if positions is None else positions  # [B, P]
        positions = tf.pad(positions, ((0, 0), (1, 0)))  # [B, 1+P], 0 before the others
        last = apply[block](*arguments, positions)  # [B·(1+P), H]
        return outputs, tf.reshape(last, (shape[0], -1, shape[2]))


class MaskedLMHead(AlbertLayer):
    """Scores of the vocabulary at the masked positions; the output kernel is the word embeddings.

    Call argument: the encoder's output there, float [B, P, H]. Returns: float32 [B, P, V].
    """

    def __init__(self, config: AlbertConfig, embeddings: Embeddings) -> None:
        super().__init__(config)
        V, H, scope = config.vocab_size, config.hidden_size, "cls/predictions"
        size = H if config.layout == "albert_zh" else config.embedding_size
        self.embeddings = embeddings
        self.transform = Dense(config, f"{scope}/transform/dense", H, size)
        self.norm = LayerNorm(config, f"{scope}/transform/LayerNorm", size)
        self.bias = self.add_bias(f"{scope}/output_bias", V, experimental_autocast=False)

    def call(self, x):
        kernel, bias = self.transform.read()  # [H, E], [E]
        x = self.norm(kernels.activate(tf.matmul(x, kernel), bias, self.config.hidden_act))
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
        outputs = self.encoder(inputs, training, dropout_seed, inputs["masked_lm_positions"])
        outputs["masked_lm_logits"] = self.masked_lm(outputs["position_output"])  # [B, P, V]
        outputs["sentence_order_logits"] = self.sentence_order(outputs["pooled_output"])  # [B, 2]
        return outputs
