"""The export of a pre-trained model, which computes embeddings of texts by pooling.

Letters: B batch size, S sequence length, H hidden size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from albert_tf.checkpoints.sentence_modules import SentenceModules
from albert_tf.export.signatures import Export, Tensors, token_inputs, token_signatures
from albert_tf.export.text_graph import text_signatures
from albert_tf.model.poolings import CLS, EMBEDDING, EXPORTED_POOLINGS, MAX, MEAN, POOLED
from albert_tf.model.tokenization import Tokenizer

if TYPE_CHECKING:  # what needs TensorFlow
    from albert_tf.model.modeling import AlbertEncoder


def poolings_of(
    parts: Collection[str], poolings: Sequence[str] = EXPORTED_POOLINGS
) -> tuple[str, ...]:
    """Returns the poolings that a checkpoint with these parts of a model has weights for.

    Args:
        parts: keys of `weight_names.PARTS`.
        poolings: those to choose from.
    """
    return tuple(pooling for pooling in poolings if pooling != POOLED or "pooler" in parts)


def embeddings_export(
    encoder: AlbertEncoder,
    tokenizer: Tokenizer | None,
    max_seq_length: int,
    poolings: Sequence[str] = EXPORTED_POOLINGS,
    modules: SentenceModules | None = None,
) -> Export:
    """Returns the export of an encoder, which computes embeddings of tokens and of texts.

    Args:
        encoder: an `AlbertEncoder`.
        tokenizer: the tokenizer of the model; None omits the signature that takes raw strings.
        max_seq_length: S of serialized examples, and the maximum of S for texts.
        poolings: the embeddings to return, out of `model.poolings.POOLINGS`.
        modules: those of sentence-transformers, whose result is one more output, `EMBEDDING`.
    """

    def embed_tokens(batch: Tensors) -> Tensors:
        outputs = encoder(batch, training=False, output_hidden_states=True)
        found = pool(outputs, batch["input_mask"], poolings)
        if modules is not None:
            found[EMBEDDING] = embed(outputs, batch["input_mask"], modules)
        return found | {"sequence_output": outputs["sequence_output"]}

    def embed_texts(batch: Tensors) -> Tensors:
        return {name: x for name, x in embed_tokens(batch).items() if name != "sequence_output"}

    inputs = token_inputs(max_seq_length)
    signatures = token_signatures(inputs, embed_tokens, takes_examples=False)
    return Export(
        signatures | text_signatures(tokenizer, embed_texts, lambda found: found, max_seq_length)
    )


_LAST_LAYERS = 4


def pool(
    outputs: Mapping[str, tf.Tensor | list[tf.Tensor]],
    input_mask: tf.Tensor,
    poolings: Iterable[str],
) -> dict[str, tf.Tensor]:
    """Returns embeddings of texts, pooling → float32 [B, H].

    Args:
        outputs: outputs of an encoder, including `hidden_states` for "mean_last_4".
        input_mask: [B, S], 1 for tokens and 0 for padding, which is ignored.
        poolings: the poolings to compute, out of `model.poolings.POOLINGS`.
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
        elif pooling == CLS:
            pooled[pooling] = tf.cast(outputs["sequence_output"], tf.float32)[:, 0]
        elif pooling == MAX:
            x = tf.cast(outputs["sequence_output"], tf.float32)  # [B, S, H]
            pooled[pooling] = tf.reduce_max(tf.where(mask > 0, x, x.dtype.min), axis=1)
        else:
            pooled[pooling] = mean(outputs["hidden_states"][1:][-_LAST_LAYERS:])
    return pooled


def embed(
    outputs: Mapping[str, tf.Tensor | list[tf.Tensor]],
    input_mask: tf.Tensor,
    modules: SentenceModules,
) -> tf.Tensor:
    """Returns embeddings of texts, float32 [B, K].

    Args:
        outputs: as in `pool`.
        input_mask: as in `pool`.
        modules: how the embeddings are computed.
    """
    pooled = pool(outputs, input_mask, modules.poolings)
    x = tf.concat([pooled[pooling] for pooling in modules.poolings], -1)  # [B, K], H · poolings
    if modules.are_normalized:
        length = tf.norm(x, axis=-1, keepdims=True)  # [B, 1]
        x = x / tf.maximum(length, 1e-12)  # [B, K]
    return x
