"""A trained model, as the predictor hands it to a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.sentence_modules import SentenceModules
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """A trained model, and how it is used.

    Attributes:
        task: name of the task in `albert_tf.finetuning.registry`.
        settings: the settings that the model was fine-tuned with; None if it was not.
        source: where the model comes from.
        num_outputs: number of outputs of the head; 0 if there is no head.
        max_seq_length: maximum sequence length, in tokens.
        top_k: maximum number of answers, and of words per mask, to return.
        pooling: how to compute embeddings, one of `POOLINGS`.
        sentence_modules: how a folder of sentence-transformers computes them instead; None for any
            other folder.
    """

    task: str
    settings: Any
    source: ModelSource
    num_outputs: int
    max_seq_length: int
    top_k: int
    pooling: str
    sentence_modules: SentenceModules | None = None

    @property
    def config(self) -> AlbertConfig:
        """The model's config."""
        return self.source.config

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.source.tokenizer

    @property
    def run(self) -> RunFolder:
        """The folder with the record of the training."""
        return self.source.run

    def check_labels(self, labels: Sequence[str]) -> None:
        """Raises ValueError unless there are as many labels as outputs of the head."""
        if len(labels) != self.num_outputs:
            raise ValueError(
                f"{self.run.path}: {run_record.FILE} or config.json lists {len(labels)} labels, "
                f"and the model has {self.num_outputs} outputs: they do not belong together"
            )
