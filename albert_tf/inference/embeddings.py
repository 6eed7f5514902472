"""Embeddings of texts as a task, and their similarities.

Shapes: B batch size, N texts, H hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints.sentence_modules import SentenceModules
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.json_values import as_json
from albert_tf.finetuning.text_pairs import encode_pairs, parse_pairs
from albert_tf.finetuning.text_task import Result, TextTask
from albert_tf.finetuning.token_sequences import TokenSequences
from albert_tf.finetuning.trained_model import TrainedModel
from albert_tf.model.poolings import POOLINGS


class Embeddings(TextTask[tuple[str, str], TokenSequences, NDArray[np.float32]]):
    """Computes embeddings of texts or text pairs.

        embed = albert_tf.load_predictor("albert_tiny_zh/", "embeddings", pooling="mean_last_4")
        embed(["你好", "再见"])

    The result of a prediction is an array, float32 [H] for one text and [N, H] for N of them. In a
    folder of sentence-transformers, the modules of the folder may give embeddings another size.

    Args:
        trained: the model.

    Attributes:
        modules: how the embeddings are computed.
    """

    outputs: Mapping[str, float] = {"embedding": 0.0}
    table_columns = ("text", "similarity")
    demos = (
        {"text": "A small boat.", "texts": "A little ship.\nThe price of tea."},
        {"text": "一条小船", "texts": "一艘小艇\n茶的价格"},
    )

    def __init__(self, trained: TrainedModel) -> None:
        self.tokenizer = trained.tokenizer
        self.max_seq_length = trained.max_seq_length
        modules = trained.sentence_modules
        self.modules = modules or SentenceModules((trained.pooling,), (), None, False)
        self._size = self.modules.size(trained.config.hidden_size)

    def parse_call(
        self,
        texts: str | Sequence[str] | Sequence[Sequence[str]],
        pairs: str | Sequence[str] | None = None,
    ) -> tuple[list[tuple[str, str]], bool]:
        """Returns the pairs of texts in a call, and whether it is for a single one."""
        return parse_pairs(texts, pairs)

    def features_of(self, examples: Sequence[tuple[str, str]]) -> TokenSequences:
        """Returns the token sequences of one or more pairs, and counts those that are truncated."""
        if self.modules.lowercases:
            examples = [(first.lower(), second.lower()) for first, second in examples]
        features, num_truncated = encode_pairs(examples, self.tokenizer, self.max_seq_length)
        self.count_truncated(num_truncated)
        return features

    def outputs_of(self, exported: Outputs) -> Outputs:
        """Returns the embeddings, float32 [B, H], given those of an exported model by pooling.

        Raises:
            ValueError: the model was exported without the pooling.
        """
        (pooling,) = self.modules.poolings
        if pooling not in exported:
            known = ", ".join(name for name in POOLINGS if name in exported)
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
    def show(row: files.JsonObject, result: Result) -> dict[str, float]:
        """Returns the similarities of the nearest texts, for the web page."""
        return {near["text"]: near["similarity"] for near in result["nearest"]}

    @staticmethod
    def table(row: files.JsonObject, result: Result) -> list[Sequence[files.Json]]:
        """Returns the nearest texts with their similarities."""
        return [(near["text"], near["similarity"]) for near in result["nearest"]]


def similarities(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the cosine similarities, float32 [N], of embeddings [N, H] or [H] with [N, H]."""
    sizes = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)  # [N]
    products = np.sum(first * second, axis=-1)  # [N]
    cosines: NDArray[np.float32] = products / np.maximum(sizes, np.finfo(np.float32).tiny)
    return cosines
