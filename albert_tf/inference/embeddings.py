"""Embeddings of texts as a task, and their similarities.

Shapes: B batch size, N texts, H hidden size, K size of an embedding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.sentence_modules import SentenceModules
from albert_tf.finetuning.batching import Outputs
from albert_tf.finetuning.task import Result, Task, as_json
from albert_tf.finetuning.token_sequences import TokenSequences
from albert_tf.inference.settings import PredictorSettings
from albert_tf.model.poolings import MEAN, MEAN_LAST_4, POOLED, POOLINGS

if TYPE_CHECKING:  # what needs TensorFlow
    import tensorflow as tf
    import tf_keras
    from typing_extensions import Self


class EmbeddingTask(Task[TokenSequences]):
    """Computes embeddings of texts or text pairs.

        embed = albert_tf.load_predictor("albert_tiny_zh/", "embeddings", pooling="mean_last_4")
        embed(["你好", "再见"])

    The result of a prediction is an array, float32 [H] for one text and [N, H] for N of them. In a
    folder of sentence-transformers, the modules of the folder may give embeddings another size.

    Args:
        source: the model.
        max_seq_length: maximum sequence length, in tokens.
        modules: how the embeddings are computed.
    """

    outputs: Mapping[str, float] = {"embedding": 0.0}
    flags = ("text", "text_b")
    table_columns = ("text", "similarity")
    demos = (
        {"text": "A small boat.", "texts": "A little ship.\nThe price of tea."},
        {"text": "一条小船", "texts": "一艘小艇\n茶的价格"},
    )

    def __init__(self, source: ModelSource, max_seq_length: int, modules: SentenceModules) -> None:
        self.tokenizer = source.tokenizer
        self.max_seq_length = max_seq_length
        self.modules = modules
        self._size = modules.size(source.config.hidden_size)  # K

    @classmethod
    def of_trained(
        cls, name: str, settings: PredictorSettings, source: ModelSource, num_outputs: int
    ) -> Self:
        """Returns the task with the requested pooling, or else that of sentence-transformers.

        Raises:
            ValueError: the model has no pooler for the pooling, or fewer positions than asked.
        """
        modules, pooling = None, settings.pooling
        if pooling is None:
            modules = source.sentence_modules
        elif pooling == POOLED and not source.has_pooler:
            raise ValueError(f"pooling={POOLED!r} needs a pooler, and {source.checkpoint} has none")
        limit = source.config.max_position_embeddings
        if modules is not None and modules.max_seq_length is not None:
            limit = min(limit, modules.max_seq_length)
        length = settings.max_seq_length or limit
        source.config.check_length(length)
        return cls(
            source, length, modules or SentenceModules((pooling or MEAN,), False, None, False)
        )

    def features_of(self, examples: Sequence[tuple[str, str]]) -> TokenSequences | None:
        """Returns the token sequences of one or more pairs, and counts those that are truncated."""
        if self.modules.lowercases:
            examples = [(first.lower(), second.lower()) for first, second in examples]
        return super().features_of(examples)

    def compute(
        self, model: tf_keras.layers.Layer, batch: Mapping[str, tf.Tensor]
    ) -> Mapping[str, tf.Tensor]:
        """Returns the embeddings of a model of TensorFlow, float32 [B, K]."""
        from albert_tf.export.embeddings import embed

        has_layers = MEAN_LAST_4 in self.modules.poolings
        outputs = model(dict(batch), training=False, output_hidden_states=has_layers)
        return {"embedding": embed(outputs, batch["input_mask"], self.modules)}

    def outputs_of(self, exported: Outputs) -> Outputs:
        """Returns the embeddings, float32 [B, H], given those of an exported model by pooling.

        Raises:
            ValueError: the model was exported without the pooling.
        """
        (pooling,) = self.modules.poolings
        if pooling not in exported:
            known = ", ".join(name for name in POOLINGS if name in exported) or "none"
            raise ValueError(f"pooling={pooling!r}: the exported model has {known}")
        return {"embedding": exported[pooling]}

    def results(
        self, examples: Sequence[tuple[str, str]], features: TokenSequences, outputs: Outputs
    ) -> NDArray[np.float32]:
        """Returns the embeddings, float32 [N, H]."""
        return outputs["embedding"]

    def unanswered(self, examples: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Returns an array of no embeddings, float32 [0, H]."""
        return np.zeros((0, self._size), np.float32)

    def as_objects(self, results: NDArray[np.float32]) -> list[Result]:
        """Returns the embeddings as lists of numbers."""
        return [{"embedding": as_json(row)} for row in results]

    @staticmethod
    def show(row: files.JsonObject, result: Result) -> str | None:
        """Returns the nearest text, for the web page: similarities may be negative, unlike bars."""
        return next(
            (f"{near['text']} ({near['similarity']:.2f})" for near in result["nearest"]), None
        )

    @staticmethod
    def table(row: files.JsonObject, result: Result) -> list[Sequence[files.Json]]:
        """Returns the next texts with their similarities."""
        return [(near["text"], near["similarity"]) for near in result["nearest"][1:]]


def similarities(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the cosine similarities, float32 [N], of embeddings [N, H] or [H] with [N, H]."""
    sizes = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)  # [N]
    products = np.sum(first * second, axis=-1)  # [N]
    cosines: NDArray[np.float32] = products / np.maximum(sizes, np.finfo(np.float32).tiny)
    return cosines
