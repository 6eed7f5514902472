"""The forward pass of ALBERT in NumPy and float64, which shares no code with the model under test.

It takes weights under the names of Google's and brightmart's checkpoints. Dropout is given as the
elements to keep, because random numbers are not part of the arithmetic.

Dimensions: as in `albert_tf/model/modeling.py`.
"""

from __future__ import annotations

import math

import numpy as np

ACTIVATIONS = {
    "gelu": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "linear": lambda x: x,
}
# Scopes within a block: self-attention, its output and its norm; feed-forward network, its output
# and its norm.
SCOPES = {
    "google": (
        "attention_1/self",
        "attention_1/output/dense",
        "LayerNorm",
        "ffn_1/intermediate/dense",
        "ffn_1/intermediate/output/dense",
        "LayerNorm_1",
    ),
    "albert_zh": (
        "attention/self",
        "attention/output/dense",
        "attention/output/LayerNorm",
        "intermediate/dense",
        "output/dense",
        "output/LayerNorm",
    ),
}


def softmax(x):
    exps = np.exp(x - x.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


class NumpyAlbert:
    """ALBERT for pre-training, and the parts of models for other tasks.

    Args:
        config: an `AlbertConfig`, of which only the numbers are read.
        weights: name in the checkpoint → array.
        keeps: one mask for each dropout in the order of their application, bool arrays of the
            shape that they are applied to; None outside training.
    """

    def __init__(self, config, weights, keeps=None):
        self.config, self.is_zh = config, config.layout == "albert_zh"
        self.weights = {name: np.asarray(array, np.float64) for name, array in weights.items()}
        self.keeps = None if keeps is None else iter(keeps)

    def dropout(self, x, rate):
        if self.keeps is None or rate == 0:
            return x
        return np.where(next(self.keeps), x / (1 - rate), 0)

    def dense(self, x, scope):
        return x @ self.weights[f"{scope}/kernel"] + self.weights[f"{scope}/bias"]

    def norm(self, x, scope):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-12)
        return x * self.weights[f"{scope}/gamma"] + self.weights[f"{scope}/beta"]

    def embed(self, input_ids, segment_ids):
        scope = "bert/embeddings"
        x = self.weights[f"{scope}/word_embeddings"][input_ids]  # [B, S, E]
        if self.is_zh:
            x = x @ self.weights[f"{scope}/word_embeddings_2"]  # [B, S, H]
        x = x + self.weights[f"{scope}/token_type_embeddings"][segment_ids]
        x = x + self.weights[f"{scope}/position_embeddings"][: input_ids.shape[1]]
        x = self.dropout(self.norm(x, f"{scope}/LayerNorm"), self.config.hidden_dropout_prob)
        mapping = "bert/encoder/embedding_hidden_mapping_in"
        return self.dense(x, mapping) if f"{mapping}/kernel" in self.weights else x  # [B, S, H]

    def attention(self, x, queries, input_mask, scope):
        heads = self.config.num_attention_heads

        def project(x, name):  # [B, S, H] → [B, A, S, D]
            x = self.dense(x, f"{scope}/{name}")
            return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)

        query, key, value = project(queries, "query"), project(x, "key"), project(x, "value")
        scores = query @ key.swapaxes(2, 3) / math.sqrt(query.shape[-1])  # [B, A, Q, S]
        scores = np.where(input_mask[:, None, None, :] == 1, scores, scores - 10_000)
        probs = self.dropout(softmax(scores), self.config.attention_probs_dropout_prob)
        return (probs @ value).swapaxes(1, 2).reshape(queries.shape)  # [B, Q, H]

    def modules(self, layer):
        """Returns the numbers of the attention and of the feed-forward module of a layer."""
        group = layer * self.config.num_hidden_groups // self.config.num_hidden_layers
        return {"attention": (0, layer), "ffn": (layer, 0)}.get(self.config.share, (group, group))

    def block(self, x, input_mask, rows, layer, inner):
        """Returns the output of a block at `rows`, int [B, Q]: float [B, Q, H]."""
        blocks = [
            "bert/encoder/layer_shared"
            if self.is_zh
            else f"bert/encoder/transformer/group_{module}/inner_group_{inner}"
            for module in self.modules(layer)
        ]
        attention, output, norm, ffn, ffn_output, ffn_norm = (
            f"{blocks[number // 3]}/{scope}"
            for number, scope in enumerate(SCOPES[self.config.layout])
        )

        def take(x):
            return np.take_along_axis(x, rows[..., None], axis=1)  # [B, Q, H]

        def dropped_dense(x, scope):
            return self.dropout(self.dense(x, scope), self.config.hidden_dropout_prob)

        def hidden(x):
            return activation(self.dense(x, ffn))

        activation = ACTIVATIONS[self.config.hidden_act]
        if self.config.ln_type == "preln":
            normal = self.norm(x, norm)
            y = self.attention(normal, take(normal), input_mask, attention)
            x = take(x) + dropped_dense(y, output)
            return x + dropped_dense(hidden(self.norm(x, ffn_norm)), ffn_output)
        y = self.attention(x, take(x), input_mask, attention)
        x = self.norm(take(x) + dropped_dense(y, output), norm)
        return self.norm(x + dropped_dense(hidden(x), ffn_output), ffn_norm)

    def encode(self, input_ids, input_mask, segment_ids, positions=None):
        """Returns the last layer, [B, S, H], and the pooled output, [B, H].

        With positions, int [B, P], the last layer has [CLS] and these only: [B, 1+P, H].
        """
        config = self.config
        x = self.embed(input_ids, segment_ids)
        every_row = np.broadcast_to(np.arange(input_ids.shape[1]), input_ids.shape)  # [B, S]
        wanted = every_row if positions is None else np.pad(positions, ((0, 0), (1, 0)))
        last = config.num_hidden_layers - 1, config.inner_group_num - 1
        for layer in range(config.num_hidden_layers):
            for inner in range(config.inner_group_num):
                rows = wanted if (layer, inner) == last else every_row
                x = self.block(x, input_mask, rows, layer, inner)
        return x, np.tanh(self.dense(x[:, 0], "bert/pooler/dense"))

    def project(self, x, scope):
        """Returns the logits of a head of a task, [..., K]."""
        kernel, bias = (self.weights[f"{scope}output_{name}"] for name in ("weights", "bias"))
        return x @ kernel.T + bias

    def __call__(self, input_ids, input_mask, segment_ids, positions=None):
        """Returns the logits of masked words, [B, P, V], and of sentence order, [B, 2].

        Without positions, int [B, P], the words are those of all S positions.
        """
        x, pooled = self.encode(input_ids, input_mask, segment_ids, positions)
        scope = "cls/predictions"
        x = x if positions is None else x[:, 1:]  # [B, P, H]
        y = ACTIVATIONS[self.config.hidden_act](self.dense(x, f"{scope}/transform/dense"))
        y = self.norm(y, f"{scope}/transform/LayerNorm")  # [B, P, E], or [B, P, H]
        if self.is_zh:
            y = y @ self.weights["bert/embeddings/word_embeddings_2"].T  # [B, P, E]
        words = y @ self.weights["bert/embeddings/word_embeddings"].T  # [B, P, V]
        order = self.project(pooled, "cls/seq_relationship/")  # [B, 2]
        return words + self.weights[f"{scope}/output_bias"], order


class RecordingAlbert(NumpyAlbert):
    """Keeps the input, the output and the attention probabilities of every block."""

    def __init__(self, config, weights):
        super().__init__(config, weights)
        self.transitions, self.probs = [], []

    def block(self, x, *arguments):
        y = super().block(x, *arguments)
        self.transitions.append((x, y))
        return y

    def dropout(self, x, rate):  # nothing is dropped here; only the probabilities have four axes
        self.probs += [x] if x.ndim == 4 else []
        return x
