"""Predictions of the labels of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from albert_tf.checkpoints import run_record
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.predicting_task import PredictingTask
from albert_tf.finetuning.splits import Split
from albert_tf.finetuning.token_classification import RAW, Settings
from albert_tf.finetuning.token_classification.sentences import Sentence
from albert_tf.finetuning.token_classification.tags import Tags, recorded_tags
from albert_tf.finetuning.token_classification.text_task import TokenTextTask
from albert_tf.finetuning.token_classification.windows import Windows, make_features
from albert_tf.finetuning.trained_model import TrainedModel
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Self

TokenSplit = Split[Examples[Sentence], Windows]


class PredictingTokenClassifier(PredictingTask[Settings, Examples[Sentence]]):
    """The part of `TokenClassifier` that predicts, which needs no TensorFlow.

    Args:
        settings: the settings of the program.
        config: the model's config.
        tokenizer: the tokenizer.
        data: the tags, and the sentences of each split; see `tags.read_data`.

    Attributes:
        tags: the labels, and what they are labels of.
    """

    outputs: Mapping[str, float] = {"predictions": 0.0}

    def __init__(
        self,
        settings: Settings,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        data: tuple[Tags, Mapping[str, Examples[Sentence]]],
    ) -> None:
        self.tags, splits = data
        super().__init__(settings, config, tokenizer, splits)
        self.labels = self.tags.labels

    @classmethod
    def of_trained(cls, trained: TrainedModel) -> Self:
        """Returns the task with the recorded labels.

        Raises:
            ValueError: the labels were not recorded, or are those of another head.
        """
        tags = recorded_tags(trained.run, trained.settings.tag_scheme == RAW)
        if tags is None:
            raise ValueError(
                f"{trained.run.path} has no {run_record.FILE} or config.json with labels of tokens"
            )
        trained.check_labels(tags.labels)
        return cls(trained.settings, trained.config, trained.tokenizer, (tags, {}))

    def windows(self, data: Examples[Sentence]) -> Windows:
        """Returns the windows of sentences."""
        return make_features(data, self.labels, self.tokenizer, self.settings.max_seq_length)

    def predicted_labels(self, split: TokenSplit, outputs: Outputs) -> list[tuple[str, ...]]:
        """Returns the predicted labels of each sentence."""
        ids = iter(split.features.at_tokens(outputs["predictions"]))
        names = self.tags.labels
        return [tuple(names[next(ids)] for _ in s.tokens) for s in split.data.examples]

    def text_task(self, trained: TrainedModel) -> TokenTextTask:
        """Returns what tags texts and lists of tokens."""
        return TokenTextTask(self)
