"""brightmart's variant of ALBERT, https://github.com/brightmart/albert_zh, where it differs.

Its Chinese models came out before Google published its own, and factorize the embedding in another
way: the words are projected to the width of the layers first (without a bias), and segments and
positions are as wide as these. The masked-LM head goes the same way back. The variables have BERT's
names. There is one group, and a layer is one block.

With `ln_type="preln"` a block normalizes what goes into attention and the feed-forward network, not
the sum that comes out, and the last layer's output is not normalized at all.

Letters: as in `modeling.py`.
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
    LayerNorm,
    Linear,
    MaskedLMHead,
    Parts,
    ResidualLinear,
    SelfAttention,
    TransformerBlock,
    register,
)


@register
class ZhEmbeddings(Embeddings):
    """As `Embeddings`, but H wide: the words are projected before segments and positions come."""

    @property
    def size(self) -> int:
        """Width of what comes out."""
        return self.config.hidden_size

    def add_words(self, scope: str) -> None:
        """Makes the table of the words, and their projection."""
        super().add_words(scope)
        config = self.config
        self.projection = self.add_kernel(
            f"{scope}/word_embeddings_2", config.embedding_size, config.hidden_size
        )

    def embed_words(self, input_ids):
        """The projected vectors of the words, [B, S, H]."""
        return kernels.matmul(super().embed_words(input_ids), self.projection)  # [B, S, H]

    def logits(self, x):
        """The way back: [B, P, H] to [B, P, V]."""
        x = tf.matmul(x, self.projection, transpose_b=True)  # [B, P, E]
        return super().logits(x)  # [B, P, V]


@register
class ZhMaskedLMHead(MaskedLMHead):
    """As `MaskedLMHead`, but H wide: the way back to E is the projection of the words."""

    @property
    def size(self) -> int:
        """Width of the embeddings."""
        return self.config.hidden_size


@register
class ZhTransformerBlock(TransformerBlock):
    """As `TransformerBlock`, under BERT's names."""

    def scopes(self) -> BlockScopes:
        """Where the weights are."""
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
    """Normalizes what goes into attention and the feed-forward network, and not the residual."""

    def add_layers(self, scopes: BlockScopes, dtype: Any) -> None:
        """Makes the layers, and with them the weights."""
        config, H, I = self.config, self.config.hidden_size, self.config.intermediate_size  # noqa: E741
        self.attention = SelfAttention(config, scopes.attention, name="attention", dtype=dtype)
        self.attention_output = ResidualLinear(
            config, scopes.attention_output, None, H, name="attention_output", dtype=dtype
        )
        self.attention_norm = LayerNorm(config, scopes.attention_norm, H, name="attention_norm")
        self.feed_forward = Linear(
            config, scopes.intermediate, H, I, config.hidden_act, name="feed_forward", dtype=dtype
        )
        self.feed_forward_output = ResidualLinear(
            config, scopes.output, None, I, name="feed_forward_output", dtype=dtype
        )
        self.output_norm = LayerNorm(config, scopes.output_norm, H, name="output_norm")

    def call(self, x, input_mask=None, training=False, dropout_seeds=None, positions=None):
        seeds = kernels.dropout_seeds(training, dropout_seeds, DROPOUTS)  # [2] each
        # x plus dropout(attention(LayerNorm(x))):
        normal = self.attention_norm(x)  # [B, S, H]
        queries = kernels.take(normal, positions)  # [B, Q, H]; None for all
        residual = x if positions is None else kernels.take(x, positions)  # [B, Q, H]
        y = self.attention(normal, input_mask, queries, training, seeds[0])  # [B, Q, H]
        x = self.attention_output(y, residual, training, seeds[1])  # [B, Q, H]
        # x plus dropout(feed_forward(LayerNorm(x))):
        y = self.feed_forward(self.output_norm(x))  # [B, Q, I]
        return self.feed_forward_output(y, x, training, seeds[2])  # [B, Q, H]


def parts(config: AlbertConfig) -> Parts:
    """The classes of brightmart's layout."""
    block = PreLNTransformerBlock if config.ln_type == "preln" else ZhTransformerBlock
    return Parts(ZhEmbeddings, block, ZhMaskedLMHead)
