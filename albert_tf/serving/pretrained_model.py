"""Exports pre-trained models as SavedModels for text embeddings.

Letters: B batch size, S sequence length, H hidden size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.serving import graph_batches, saved_model
from albert_tf.serving.graph_tokenizer import GraphTokenizer, is_supported
from albert_tf.serving.poolings import MEAN, POOLED, POOLINGS
from albert_tf.tokenization import Tokenizer

_LAST_LAYERS = 4


def pool(
    outputs: Mapping[str, Any], input_mask: tf.Tensor, poolings: Iterable[str]
) -> dict[str, tf.Tensor]:
    """Returns embeddings of texts, pooling → float32 [B, H].

    Args:
        outputs: outputs of an encoder, including `hidden_states` for "mean_last_4".
        input_mask: [B, S], 1 for tokens and 0 for padding, which is ignored.
        poolings: the poolings to compute, out of `POOLINGS`.
    """
    mask = tf.cast(input_mask, tf.float32)[:, :, None]  # [B, S, 1]

    def mean(layers: Iterable[tf.Tensor]) -> tf.Tensor:
        floats = [tf.cast(layer, tf.float32) for layer in layers]
        x = tf.add_n(floats) / len(floats)  # [B, S, H]
        return tf.reduce_sum(x * mask, axis=1) / tf.reduce_sum(mask, axis=1)

    pooled = {}
    for pooling in poolings:
        if pooling == POOLED:
            pooled[pooling] = tf.cast(outputs["pooled_output"], tf.float32)
        elif pooling == MEAN:
            pooled[pooling] = mean([outputs["sequence_output"]])
        else:
            pooled[pooling] = mean(outputs["hidden_states"][1:][-_LAST_LAYERS:])
    return pooled


def poolings_of(parts: Collection[str]) -> tuple[str, ...]:
    """Returns the poolings that a checkpoint with these parts of a model has weights for.

    Args:
        parts: keys of `checkpoints.names.PARTS`.
    """
    return tuple(pooling for pooling in POOLINGS if pooling != POOLED or "pooler" in parts)


class _Embedder:
    """Adapts an encoder to the interface for `saved_model`; returns embeddings of a batch."""

    def __init__(self, encoder: Any, variables: list[tf.Variable], poolings: Sequence[str]) -> None:
        self._encoder = encoder
        self.variables = variables
        self.poolings = poolings

    def __call__(self, batch: Mapping[str, tf.Tensor], training: bool) -> dict[str, tf.Tensor]:
        outputs = self._encoder(dict(batch), training=training, output_hidden_states=True)
        sequence = {"sequence_output": outputs["sequence_output"]}
        return pool(outputs, batch["input_mask"], self.poolings) | sequence


def save_pretrained(
    folder: str,
    model: Any,
    tokenizer: Tokenizer | None,
    max_seq_length: int,
    has_masked_lm: bool,
    has_sentence_head: bool,
    poolings: Sequence[str] = POOLINGS,
) -> None:
    """Writes a SavedModel of a pre-trained model into a folder, which may exist.

    Args:
        folder: the output folder.
        model: an `AlbertForPretraining`; see `leave_out_pooler`.
        tokenizer: the tokenizer of the model; None omits the signature that takes raw strings.
        max_seq_length: S of serialized examples, and the maximum of S for texts.
        has_masked_lm: whether to include the weights of the masked-LM head.
        has_sentence_head: whether to include the weights of the sentence head.
        poolings: the embeddings to return, out of `POOLINGS`.
    """
    variables = list(model.encoder.variables)
    variables += model.masked_lm.variables if has_masked_lm else []
    variables += model.sentence_head.variables if has_sentence_head else []
    embed = _Embedder(model.encoder, variables, poolings)
    features = saved_model.token_features(max_seq_length)
    saved_model.save(folder, embed, features, _text_signature(tokenizer, max_seq_length))


def export(
    export_dir: str,
    model: Any,
    tokenizer: Tokenizer | None,
    max_seq_length: int,
    extra_files: Mapping[str, bytes],
    poolings: Sequence[str] = POOLINGS,
) -> str:
    """Writes a SavedModel of a pre-trained model to `<export_dir>/<Unix time>`.

    Args:
        export_dir: parent folder of the exports, which is created if needed.
        model: an `AlbertForPretraining` or an `AlbertEncoder`.
        tokenizer: the tokenizer of the model; None omits the signature that takes raw strings.
        max_seq_length: maximum of S.
        extra_files: name → content of files to write to `assets.extra`.
        poolings: the embeddings to return, out of `POOLINGS`.

    Returns:
        The folder of the export.
    """
    encoder = getattr(model, "encoder", model)
    return saved_model.export_saved_model(
        export_dir,
        _Embedder(encoder, list(model.variables), poolings),
        saved_model.token_features(max_seq_length),
        lambda outputs: outputs,
        takes_examples=False,
        any_length=True,
        extra_files=extra_files,
        texts=_text_signature(tokenizer, max_seq_length),
    )


def _text_signature(
    tokenizer: Tokenizer | None, max_seq_length: int
) -> saved_model.TextSignature | None:
    """Returns the signature that takes raw strings; None without a tokenizer for graphs."""
    if tokenizer is None or not is_supported(tokenizer):
        return None
    graph = GraphTokenizer(tokenizer)

    def answer(embed: Any, first: tf.Tensor, second: tf.Tensor) -> dict[str, tf.Tensor]:
        def embeddings(batch: Mapping[str, tf.Tensor], training: bool) -> dict[str, tf.Tensor]:
            outputs = embed(batch, training=training)
            return {name: outputs[name] for name in embed.poolings}

        batch = graph.pack(first, second, max_seq_length)
        return graph_batches.compute(embeddings, batch, is_trimmed=True)

    return saved_model.TextSignature(graph, answer)
