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

from albert_tf import files
from albert_tf.checkpoints import finding
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.squad import Settings
from albert_tf.finetuning.squad.answers import Answers
from albert_tf.finetuning.squad.evaluation import evaluate
from albert_tf.finetuning.squad.exporter import SquadExporter
from albert_tf.finetuning.squad.features import SquadFeatures
from albert_tf.finetuning.squad.lost_marks import warn_of_lost_marks
from albert_tf.finetuning.squad.predicting_task import PredictingQuestionAnswering, SquadSplit
from albert_tf.finetuning.squad.questions import SquadData, SquadExample, shuffled
from albert_tf.finetuning.squad.result_files import SquadFiles
from albert_tf.finetuning.squad.version import choose_version
from albert_tf.finetuning.squad.windows import make_features
from albert_tf.finetuning.task import FineTuningTask
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForAnswerableSpans, AlbertForSpans
from albert_tf.model.losses import answerable_span_losses, span_losses
from albert_tf.model.tokenization import Tokenizer
from albert_tf.training.task import Batch


class QuestionAnswering(
    PredictingQuestionAnswering, FineTuningTask[Settings, SquadData, SquadFeatures]
):
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

    def as_row(self, example: SquadExample) -> files.JsonObject:
        """Returns the question and its context."""
        return {"question": example.question, "context": example.context}

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

    def exporter(self) -> SquadExporter:
        """Returns what is exported, in the folders of Google's program."""
        return SquadExporter(self)
