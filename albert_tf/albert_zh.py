"""The differences of brightmart's variant of ALBERT, https://github.com/brightmart/albert_zh.

Its Chinese models were released before Google's and factorize the embedding differently: word
embeddings are projected to the hidden size (without a bias) before segment and position embeddings,
which have the hidden size, are added. The masked language modeling head uses the transposed
projection. The gradient of the segment embeddings is dense. The variables have BERT's names. There
is one hidden group with one block per layer.

With `ln_type="preln"`, LayerNorm is applied to the inputs of attention and feed-forward network
instead of the residual sums, and the output of the last layer is not normalized.

Dimensions: as in `modeling.py`.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from albert_tf import kernels
from albert_tf.config import AlbertConfig
from albert_tf.modeling import (
    DROPOUTS,
    BlockScopes,
    Embeddings,
    FeedForward,
    LayerNorm,
    MaskedLMHead,
    Parts,
    ResidualLinear,
    SelfAttention,
    TransformerBlock,
    register,
)


@register
class ZhEmbeddings(Embeddings):
    """`Embeddings` of size H: words are projected before segments and positions are added."""

    @property
    def size(self) -> int:
        """Size of the output."""
        return self.config.hidden_size

    def add_words(self, scope: str) -> None:
        """Creates the word embedding table and its projection."""
        super().add_words(scope)
        config = self.config
        self.projection = self.add_kernel(
            f"{scope}/word_embeddings_2", config.embedding_size, config.hidden_size
        )

    def embed_words(self, input_ids):
        """Returns the projected word embeddings, float [B, S, H]."""
        return kernels.matmul(super().embed_words(input_ids), self.projection)  # [B, S, H]

    def embed_segments(self, segment_ids):
        """Returns the segment embeddings, float [B, S, H].

        albert_zh multiplies the table by one-hot rows. The result is the same, but the gradient is
        the sum over the tokens of a segment, which clipping by the global norm squares, whereas it
        squares the rows of the tokens where the gradient is `tf.IndexedSlices`.
        """
        # The gradient of a reshape is dense. It is added up in float32.
        table = tf.reshape(tf.cast(self.segments, tf.float32), self.segments.shape)  # [types, H]
        return tf.cast(tf.gather(table, segment_ids), self.compute_dtype)  # [B, S, H]

    def logits(self, x):
        """Projects back to E and returns the logits: [B, P, H] → [B, P, V]."""
        x = kernels.matmul(x, self.projection, transpose_b=True)  # [B, P, E]
        return super().logits(x)  # [B, P, V]


@register
class ZhMaskedLMHead(MaskedLMHead):
    """`MaskedLMHead` of size H: the transposed projection of the words leads back to E."""

    @property
    def size(self) -> int:
        """Size of the embeddings."""
        return self.config.hidden_size


@register
class ZhTransformerBlock(TransformerBlock):
    """`TransformerBlock` with BERT's variable names."""

    def scopes(self) -> BlockScopes:
        """Returns the variable scopes of the shared block."""
        layer = "bert/encoder/layer_shared"
        return BlockScopes(
            attention=f"{layer}/attention/self",
            attention_output=f"{layer}/attention/output/dense",
            attention_norm=f"{layer}/attention/output/LayerNorm",
            intermediate=f"{layer}/intermediate/dense",
            output=f"{layer}/output/dense",
            output_norm=f"{layer}/output/LayerNorm",
        )


@register
class PreLNTransformerBlock(ZhTransformerBlock):
    """Pre-LN block: normalizes the inputs of attention and feed-forward network."""

    def add_layers(self, scopes: BlockScopes, dtype: Any) -> None:
        """Creates the sublayers and their weights."""
        config, H = self.config, self.config.hidden_size
        self.attention = SelfAttention(config, scopes.attention, name="attention", dtype=dtype)
        self.attention_output = ResidualLinear(
            config, scopes.attention_output, None, H, name="attention_output", dtype=dtype
        )
        self.attention_norm = LayerNorm(config, scopes.attention_norm, H, name="attention_norm")
        self.feed_forward = FeedForward(
            config, scopes.intermediate, scopes.output, None, name="feed_forward", dtype=dtype
        )
        self.output_norm = LayerNorm(config, scopes.output_norm, H, name="output_norm")

    def call(self, x, input_mask=None, training=False, dropout_seeds=None, positions=None):
        seeds = kernels.dropout_seeds(training, dropout_seeds, DROPOUTS)  # [2] each
        # First sublayer: x becomes x + dropout(attention(LayerNorm(x))).
        normal = self.attention_norm(x)  # [B, S, H]
        queries = kernels.take(normal, positions)  # [B, Q, H], or None for all positions
        residual = x if positions is None else kernels.take(x, positions)  # [B, Q, H]
        y = self.attention(normal, input_mask, queries, training, seeds[0])  # [B, Q, H]
        x = self.attention_output(y, residual, training, seeds[1])  # [B, Q, H]
        # Second sublayer: returns x + dropout(feed_forward(LayerNorm(x))).
        normal = self.output_norm(x)  # [B, Q, H]
        return self.feed_forward(normal, x, training, seeds[2])  # [B, Q, H]


def parts(config: AlbertConfig) -> Parts:
    """Returns the classes of brightmart's layout."""
    block = PreLNTransformerBlock if config.ln_type == "preln" else ZhTransformerBlock
    return Parts(ZhEmbeddings, block, ZhMaskedLMHead)
