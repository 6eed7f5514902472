"""Extractive question answering as a fine-tuning task: features, losses, answers and metrics.

The data sets are SQuAD 1.1 and 2.0, and the Chinese CMRC 2018 and DRCD. `reading` reads the data,
`features` creates features, `answers` converts outputs to answers, and `metrics` evaluates them.
Source: `run_squad_v1.py`, `run_squad_v2.py` and `squad_utils.py` of google-research/albert.

Shapes: B batch size, N features, S sequence length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from albert_tf.checkpoints import finding, tasks
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.batching import Padding
from albert_tf.finetuning.splits import Split
from albert_tf.finetuning.squad import Settings
from albert_tf.finetuning.squad.answers import (
    Answers,
    Candidates,
    candidates_v1,
    candidates_v2,
    decode,
)
from albert_tf.finetuning.squad.evaluation import evaluate
from albert_tf.finetuning.squad.exporter import SquadExporter
from albert_tf.finetuning.squad.features import SquadFeatures
from albert_tf.finetuning.squad.lost_marks import warn_of_lost_marks
from albert_tf.finetuning.squad.questions import SquadData, shuffled
from albert_tf.finetuning.squad.result_files import SquadFiles
from albert_tf.finetuning.squad.text_task import SquadTextTask
from albert_tf.finetuning.squad.threshold import null_threshold
from albert_tf.finetuning.squad.version import choose_version
from albert_tf.finetuning.squad.windows import make_features
from albert_tf.finetuning.task import FineTuningTask
from albert_tf.finetuning.trained_model import TrainedModel
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForAnswerableSpans, AlbertForSpans
from albert_tf.model.losses import answerable_span_losses, span_losses
from albert_tf.model.tokenization import Tokenizer
from albert_tf.training.task import Batch

SquadSplit = Split[SquadData, SquadFeatures]

NOWHERE = -1e30  # logit of padding positions, where no answer can start or end
# The outputs to collect, and their padding values for batches of shorter sequences.
OUTPUTS_V1 = {"start_logits": NOWHERE, "end_logits": NOWHERE}
OUTPUTS_V2 = dict.fromkeys(
    ("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index", "cls_logits"),
    0.0,
)


class QuestionAnswering(FineTuningTask[Settings, SquadData, SquadFeatures]):
    """Question answering as a fine-tuning task.

        answer = albert_tf.load_predictor("squad_model/")
        answer("Who was Ekeus?", "Official Ekeus heads for Baghdad.")

    Contexts may exceed the sequence length. The result of a prediction is a dict of the best
    `answer`, its `score` (probability among the answers found), its `begin` and `end` (character
    offsets in the context), and `answers`, a list of the best answers as such dicts. SQuAD 2.0
    models add `null_odds`. If they exceed the threshold, or if a SQuAD 1.1 model finds no answer,
    `answer` is "", and `begin` and `end` are -1.

    Args:
        settings: the settings of the program.
        config: the model's config.
        tokenizer: the tokenizer.
        data: split → questions.
        version_2: whether questions may be unanswerable: the head of SQuAD 2.0 rather than 1.1.
    """

    selection_metric = "f1"
    measured_with = (
        *("start_n_top", "end_n_top", "n_best_size", "max_answer_length"),
        *("null_score_diff_threshold", "official_threshold", "mixed_segmentation"),
    )
    percentages = ("exact", "exact_match", "f1", "average")

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
    def make(
        cls,
        settings: Settings,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        trained: RunFolder | None,
        data: Any = None,
    ) -> QuestionAnswering:
        """Returns the task, with the head of SQuAD 2.0 if settings, model or data require it."""
        checkpoint = None if trained is None else trained.checkpoint
        if checkpoint is None and settings.init_checkpoint:
            checkpoint = finding.find_checkpoint(settings.init_checkpoint)
        version_2 = choose_version(
            settings.version_2_with_negative, checkpoint, data.get("train"), data.get("test")
        )
        return cls(settings, config, tokenizer, data, version_2)

    @classmethod
    def of_trained(cls, trained: TrainedModel) -> QuestionAnswering:
        """Returns the task, with the head of SQuAD 2.0 if questions may be unanswerable."""
        version_2 = trained.task == tasks.ANSWERABLE_SPANS
        return cls(trained.settings, trained.config, trained.tokenizer, {}, version_2)

    def make_features(self, data: SquadData, split: str) -> SquadFeatures:
        """Returns the features of a split.

        Training questions are shuffled as in Google's programs.

        Raises:
            ValueError: no question has features.
        """
        settings = self.settings
        is_training = split == "train"
        examples = shuffled(data.examples) if is_training else data.examples
        features = make_features(
            examples, self.tokenizer, settings.windows, is_training, settings.num_workers
        )
        logging.info("%s: %d questions, %d features", data.path, len(examples), len(features))
        warn_of_lost_marks(examples, self.tokenizer)
        is_full = features.query_lengths == settings.max_query_length
        if is_full.any():
            logging.info(
                "%d questions have --max_query_length=%d or more tokens; longer ones are truncated",
                len(np.unique(features.example_index[is_full])),
                settings.max_query_length,
            )
        return features

    def count_examples(self, split: SquadSplit) -> int:
        """Returns the number of questions: an epoch is counted in questions, not features."""
        return len(split.data.examples)

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

    def build_model(self) -> AlbertForSpans | AlbertForAnswerableSpans:
        """Returns the model with random weights."""
        if not self.version_2:
            return AlbertForSpans(self.config)
        settings = self.settings
        return AlbertForAnswerableSpans(
            self.config, settings.start_n_top, settings.end_n_top, settings.dropout_prob
        )

    def losses(
        self, outputs: Mapping[str, tf.Tensor], batch: Batch
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the losses, and whether start, end and (in SQuAD 2.0) answerability are correct.

        Args:
            outputs: the model's outputs, computed with `start_positions`.
            batch: has `start_positions`, `end_positions` and `is_impossible`, int32 [B].

        Returns:
            Losses, float32 [B], and metric name → bool [B].
        """
        start = batch["start_positions"]
        end = batch["end_positions"]
        hits = {}
        if self.version_2:
            none = batch["is_impossible"]
            losses = answerable_span_losses(outputs, start, end, none)
            kind = "log_probs"
            hits["answerable_accuracy"] = (outputs["cls_logits"] > 0) == (none > 0)
        else:
            losses = span_losses(outputs, start, end)
            kind = "logits"
        for name, position in (("start", start), ("end", end)):
            best = tf.argmax(outputs[f"{name}_{kind}"], axis=-1, output_type=tf.int32)
            hits[f"{name}_accuracy"] = best == position
        return losses, hits

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

    def evaluate_answers(
        self, data: SquadData, answers: Answers
    ) -> tuple[dict[str, float], dict[str, str]]:
        """Returns the metrics of answers, and the predictions that they are computed from."""
        settings = self.settings
        return evaluate(
            data, answers, settings.official_threshold, settings.null_score_diff_threshold
        )

    def measure(self, split: SquadSplit, outputs: Outputs, batch_size: int) -> dict[str, float]:
        """Returns exact match and F1; see `evaluate`."""
        return self.evaluate_answers(split.data, self.answer(split, outputs))[0]

    def result_files(self) -> SquadFiles:
        """Returns what writes the files of Google's programs."""
        return SquadFiles(self)

    def text_task(self, trained: TrainedModel) -> SquadTextTask:
        """Returns what answers questions."""
        threshold = null_threshold(self.settings, self.version_2, trained.run)
        return SquadTextTask(self, threshold, trained.top_k)

    def exporter(self) -> SquadExporter:
        """Returns what is exported, in the folders of Google's program."""
        return SquadExporter(self)


def _without_padding(logits: Outputs, lengths: NDArray[np.int32]) -> Outputs:
    """Returns logits [N, S] with `NOWHERE` at padding positions.

    Unlike Google's program, where padding competes for the `n_best_size` starts and ends, so that
    answers would depend on the length that a batch is padded to.
    """
    return {
        name: np.where(np.arange(logits[name].shape[1]) < lengths[:, None], logits[name], NOWHERE)
        for name in OUTPUTS_V1
    }
