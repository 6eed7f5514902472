"""Exports pre-trained models as SavedModels for text embeddings and masked-word prediction.

Letters: B batch size, S sequence length, H hidden size, P masks in a text, K words per mask.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.serving import graph_batches, saved_model
from albert_tf.serving.graph_masks import MaskReader
from albert_tf.serving.graph_tokenizer import GraphTokenizer, is_supported
from albert_tf.serving.poolings import MEAN, POOLED, POOLINGS
from albert_tf.tokenization import FullTokenizer, Tokenizer

MASK_SIGNATURE = "fill_mask"
TOP_K = 5  # words to predict for each mask
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
    top_k: int,
    poolings: Sequence[str] = POOLINGS,
) -> None:
    """Writes a SavedModel of a pre-trained model into a folder, which may exist.

    Args:
        folder: the output folder.
        model: an `AlbertForPretraining`; see `leave_out_pooler`.
        tokenizer: the tokenizer of the model; None omits the signatures that take raw strings.
        max_seq_length: S of serialized examples, and the maximum of S for texts.
        has_masked_lm: whether the masked-LM head was trained; if not, `fill_mask` is omitted.
        has_sentence_head: whether to include the weights of the sentence head.
        top_k: K.
        poolings: the embeddings to return, out of `POOLINGS`.
    """
    variables = list(model.encoder.variables)
    variables += model.masked_lm.variables if has_masked_lm else []
    variables += model.sentence_head.variables if has_sentence_head else []
    embed = _Embedder(model.encoder, variables, poolings)
    texts = _text_signatures(model, tokenizer, max_seq_length, has_masked_lm, top_k)
    features = saved_model.token_features(max_seq_length)
    saved_model.save(folder, embed, features, text_signatures=texts)


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
        model: an `AlbertForPretraining`, or an `AlbertEncoder`, which cannot fill masks.
        tokenizer: the tokenizer of the model; None omits the signatures that take raw strings.
        max_seq_length: maximum of S.
        extra_files: name → content of files to write to `assets.extra`.
        poolings: the embeddings to return, out of `POOLINGS`.

    Returns:
        The folder of the export.
    """
    encoder = getattr(model, "encoder", model)
    texts = _text_signatures(model, tokenizer, max_seq_length, encoder is not model, TOP_K)
    return saved_model.export_saved_model(
        export_dir,
        _Embedder(encoder, list(model.variables), poolings),
        saved_model.token_features(max_seq_length),
        lambda outputs: outputs,
        takes_examples=False,
        any_length=True,
        extra_files=extra_files,
        text_signatures=texts,
    )


def _text_signatures(
    model: Any,
    tokenizer: Tokenizer | None,
    max_seq_length: int,
    has_masked_lm: bool,
    top_k: int,
) -> dict[str, saved_model.TextSignature]:
    """Returns the signatures that take raw strings; none without a tokenizer for graphs."""
    if tokenizer is None or not is_supported(tokenizer):
        return {}
    texts = {saved_model.TEXT_SIGNATURE: _embed_texts(tokenizer, max_seq_length)}
    if has_masked_lm:
        reader = MaskReader(tokenizer, max_seq_length, top_k)
        texts[MASK_SIGNATURE] = _fill_masks(reader, model)
    return texts


def _embed_texts(tokenizer: FullTokenizer, max_seq_length: int) -> saved_model.TextSignature:
    graph = GraphTokenizer(tokenizer)

    def answer(embed: Any, first: tf.Tensor, second: tf.Tensor) -> dict[str, tf.Tensor]:
        def embeddings(batch: Mapping[str, tf.Tensor], training: bool) -> dict[str, tf.Tensor]:
            outputs = embed(batch, training=training)
            return {name: outputs[name] for name in embed.poolings}

        batch = graph.pack(first, second, max_seq_length)
        return graph_batches.compute(embeddings, batch, is_trimmed=True)

    inputs = saved_model.strings("text_a"), saved_model.strings("text_b")
    return saved_model.TextSignature(inputs, graph, answer)


def _fill_masks(reader: MaskReader, model: Any) -> saved_model.TextSignature:
    def logits(batch: Mapping[str, tf.Tensor], training: bool) -> tf.Tensor:
        return model(batch, training=training)["masked_lm_logits"]

    def answer(_: Any, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        return reader.fill(texts, lambda batch: graph_batches.compute(logits, batch))

    return saved_model.TextSignature((saved_model.strings("texts"),), reader, answer)
