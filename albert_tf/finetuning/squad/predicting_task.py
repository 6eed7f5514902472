"""Predictions of answers to questions.

Shapes: N features, S sequence length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from albert_tf.checkpoints import tasks
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.batching import Padding
from albert_tf.finetuning.predicting_task import PredictingTask
from albert_tf.finetuning.splits import Split
from albert_tf.finetuning.squad import Settings
from albert_tf.finetuning.squad.answers import (
    Answers,
    Candidates,
    candidates_v1,
    candidates_v2,
    decode,
)
from albert_tf.finetuning.squad.features import SquadFeatures
from albert_tf.finetuning.squad.outputs import NOWHERE, OUTPUTS_V1, OUTPUTS_V2
from albert_tf.finetuning.squad.questions import SquadData
from albert_tf.finetuning.squad.text_task import SquadTextTask
from albert_tf.finetuning.squad.threshold import null_threshold
from albert_tf.finetuning.trained_model import TrainedModel
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Self

SquadSplit = Split[SquadData, SquadFeatures]


class PredictingQuestionAnswering(PredictingTask[Settings, SquadData]):
    """The part of `QuestionAnswering` that predicts, which needs no TensorFlow.

    Args:
        settings: the settings of the program.
        config: the model's config.
        tokenizer: the tokenizer.
        data: split → questions.
        version_2: whether questions may be unanswerable: the head of SQuAD 2.0 rather than 1.1.
    """

    def __init__(
        self,
        settings: Settings,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        data: Mapping[str, SquadData],
        version_2: bool,
    ) -> None:
        super().__init__(settings, config, tokenizer, data)
        self.version_2 = version_2
        self.name = tasks.ANSWERABLE_SPANS if version_2 else tasks.SPANS
        self.outputs = OUTPUTS_V2 if version_2 else OUTPUTS_V1

    @classmethod
    def of_trained(cls, trained: TrainedModel) -> Self:
        """Returns the task, with the head of SQuAD 2.0 if questions may be unanswerable."""
        version_2 = trained.task == tasks.ANSWERABLE_SPANS
        return cls(trained.settings, trained.config, trained.tokenizer, {}, version_2)

    def padding(self, padding: Padding) -> Padding:
        """Returns how batches are padded: to at least as many positions as the beam size.

        Raises:
            ValueError: `max_seq_length` is smaller than the beam size.
        """
        settings = self.settings
        least = max(settings.start_n_top, settings.end_n_top) if self.version_2 else 1
        if least > padding.max_seq_length:
            raise ValueError(
                f"--start_n_top={settings.start_n_top}, --end_n_top={settings.end_n_top}: expected "
                f"at most --max_seq_length={padding.max_seq_length}"
            )
        multiple = -(-least // padding.multiple) * padding.multiple
        return Padding(padding.max_seq_length, multiple)

    def answer(self, split: SquadSplit, outputs: Outputs) -> Answers:
        """Returns the answers to the questions of a split, decoded from the model's outputs."""
        settings = self.settings
        if not self.version_2:
            outputs = _without_padding(outputs, split.features.lengths)
        candidates = self.candidates(outputs, settings.n_best_size)
        return decode(
            split.data.examples,
            split.features,
            candidates,
            settings.n_best_size,
            settings.max_answer_length,
        )

    def candidates(self, outputs: Outputs, n_best_size: int) -> Candidates:
        """Returns the candidate spans in the collected outputs, [N, …] each."""
        if self.version_2:
            return candidates_v2(*(outputs[name] for name in OUTPUTS_V2))
        return candidates_v1(outputs["start_logits"], outputs["end_logits"], n_best_size)

    def text_task(self, trained: TrainedModel) -> SquadTextTask:
        """Returns what answers questions."""
        threshold = null_threshold(self.settings, self.version_2, trained.run)
        return SquadTextTask(self, threshold, trained.top_k)


def _without_padding(logits: Outputs, lengths: NDArray[np.int32]) -> Outputs:
    """Returns logits [N, S] with `NOWHERE` at padding positions.

    Unlike Google's program, where padding competes for the `n_best_size` starts and ends, so that
    answers would depend on the length that a batch is padded to.
    """
    return {
        name: np.where(np.arange(logits[name].shape[1]) < lengths[:, None], logits[name], NOWHERE)
        for name in OUTPUTS_V1
    }
