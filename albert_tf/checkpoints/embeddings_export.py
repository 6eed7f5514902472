"""The export of a pre-trained model, which computes embeddings of texts by pooling.

Letters: B batch size, S sequence length, H hidden size.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from albert_tf.checkpoints.sentence_embeddings import embed, pool
from albert_tf.checkpoints.sentence_modules import SentenceModules
from albert_tf.checkpoints.signatures import Export, Tensors, token_inputs, token_signatures
from albert_tf.checkpoints.text_signature import text_signatures
from albert_tf.model.poolings import EMBEDDING, EXPORTED_POOLINGS, POOLED
from albert_tf.model.tokenization import Tokenizer

if TYPE_CHECKING:
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
