"""Question answering with spans of a text: the task, its outputs and its numbers.

SQuAD 1.1 and 2.0, and in Chinese CMRC 2018 and DRCD. The data come from `squad_reading`, features
from `squad_windows`, answers from `squad_decoding`, scores from `span_metrics`. Source:
`run_squad_v1.py`, `run_squad_v2.py` and `squad_utils.py` of google-research/albert.

Letters: B batch, N features, S sequence length.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from albert_tf.checkpoints import loading
from albert_tf.config import AlbertConfig
from albert_tf.finetuning import feature_cache
from albert_tf.finetuning.batching import Padding
from albert_tf.heads import (
    AlbertForAnswerableSpans,
    AlbertForSpans,
    answerable_span_losses,
    span_losses,
)
from albert_tf.serving import saved_model
from albert_tf.squad import metrics as span_metrics
from albert_tf.squad.decoding import (
    Answers,
    Candidates,
    DecodingSettings,
    candidates_v1,
    candidates_v2,
    decode,
)
from albert_tf.squad.features import SquadFeatures
from albert_tf.squad.reading import SquadData, shuffled
from albert_tf.squad.windows import WindowSettings, make_features
from albert_tf.tokenization import FullTokenizer

NOWHERE = -1e30  # logit of positions that a batch of shorter rows does not have
# What prediction reads of a model's outputs, and what fills rows of shorter batches up.
OUTPUTS_V1 = {"start_logits": NOWHERE, "end_logits": NOWHERE}
OUTPUTS_V2 = dict.fromkeys(
    ("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index", "cls_logits"),
    0.0,
)
# The official program scores with this cut of the null odds, whatever threshold it has found.
OFFICIAL_CUT = 1.0

# A variable of each head, under Google's names.
HEAD_V1, HEAD_V2 = "cls/squad/output_weights", "start_logits/dense/kernel"

Sums = dict[str, tuple[tf.Tensor, tf.Tensor]]


class QuestionAnswering:
    """Question answering as the training loop takes it.

    Args:
        config: the architecture.
        version_2: whether questions may have no answer: SQuAD 2.0's head, else 1.1's.
        start_n_top, end_n_top, dropout_prob: as in `AlbertForAnswerableSpans`.
    """

    selection_metric = "f1"

    def __init__(
        self,
        config: AlbertConfig,
        version_2: bool,
        start_n_top: int = 5,
        end_n_top: int = 5,
        dropout_prob: float = 0.1,
    ) -> None:
        self.config, self.version_2 = config, version_2
        self.start_n_top, self.end_n_top = start_n_top, end_n_top
        self.dropout_prob = dropout_prob
        self.outputs = OUTPUTS_V2 if version_2 else OUTPUTS_V1

    def build_model(self) -> AlbertForSpans | AlbertForAnswerableSpans:
        """A model with random weights."""
        if not self.version_2:
            return AlbertForSpans(self.config)
        return AlbertForAnswerableSpans(
            self.config, self.start_n_top, self.end_n_top, self.dropout_prob
        )

    def loss_weights(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """Features of a batch, float32 [1]."""
        return tf.cast(tf.shape(batch["input_ids"])[:1], tf.float32)

    def loss(
        self,
        outputs: dict[str, tf.Tensor],
        batch: dict[str, tf.Tensor],
        weights: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, Sums]:
        """The mean loss of a batch, and what its metrics are made of.

        Args:
            outputs: of the model, given `start_positions`.
            batch: with `start_positions`, `end_positions` and `is_impossible`, int32 [B].
            weights: `loss_weights` of the larger batch that this one is a part of.

        Returns:
            the loss, float32 scalar, and metric → (sum, number of features), float32 scalars.
        """
        start, end = batch["start_positions"], batch["end_positions"]
        hits = {}
        if self.version_2:
            none = batch["is_impossible"]
            losses = answerable_span_losses(outputs, start, end, none)  # [B]
            kind = "log_probs"
            hits["answerable_accuracy"] = (outputs["cls_logits"] > 0) == (none > 0)  # [B]
        else:
            losses, kind = span_losses(outputs, start, end), "logits"  # [B]
        for name, position in (("start", start), ("end", end)):
            best = tf.argmax(outputs[f"{name}_{kind}"], axis=-1, output_type=tf.int32)  # [B]
            hits[f"{name}_accuracy"] = best == position
        count = tf.cast(tf.size(losses), tf.float32)
        sums = {
            name: (tf.reduce_sum(tf.cast(hit, tf.float32)), count) for name, hit in hits.items()
        }
        return tf.reduce_sum(losses) / (count if weights is None else weights[0]), sums

    def padding(self, max_seq_length: int, multiple: int) -> Padding:
        """How far batches are padded: at least to as many places as a beam of the head has.

        Raises:
            ValueError: `max_seq_length` is less than that.
        """
        least = max(self.start_n_top, self.end_n_top) if self.version_2 else 1
        if least > max_seq_length:
            raise ValueError(
                f"--start_n_top={self.start_n_top}, --end_n_top={self.end_n_top}: at most "
                f"--max_seq_length={max_seq_length} was expected"
            )
        return Padding(max_seq_length, -(-least // multiple) * multiple)

    def served_outputs(self, outputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """What an exported model gives, under the official names.

        Those of SQuAD 1.1 say "log_prob", as in the official program; they are logits.
        """
        if self.version_2:
            return {name: outputs[name] for name in self.outputs}
        return {
            "start_log_prob": outputs["start_logits"],
            "end_log_prob": outputs["end_logits"],
        }

    def export(
        self,
        model: Any,
        export_dir: str,
        max_seq_length: int,
        extra_files: Mapping[str, bytes] | None = None,
    ) -> None:
        """Writes a SavedModel and a TFLite file.

        These are `export_dir/saved_model/<Unix time>`, which takes tensors as the official one,
        and `export_dir/albert_model.tflite`, with `start_logits` and `end_logits` for SQuAD 1.1.
        For SQuAD 2.0, which the official program does not export, they have the outputs of
        `OUTPUTS_V2`, and `p_mask` is an input.

        Args:
            model: of `build_model`, its weights loaded.
            export_dir: made if need be; earlier SavedModels in it stay.
            max_seq_length: S, of TFLite and of serialized examples; tensors may have any length.
            extra_files: as in `export.export_saved_model`.
        """
        features = saved_model.token_features(max_seq_length, *["p_mask"] * self.version_2)
        saved_model.export_saved_model(
            os.path.join(export_dir, "saved_model"), model, features, self.served_outputs,
            takes_examples=False, any_length=True, extra_files=extra_files,
        )  # fmt: skip
        saved_model.export_tflite(
            os.path.join(export_dir, "albert_model.tflite"), model, features,
            lambda outputs: {name: outputs[name] for name in self.outputs},
        )  # fmt: skip

    def candidates(self, outputs: Mapping[str, NDArray[Any]], n_best_size: int) -> Candidates:
        """The spans that the outputs [N, …] of `self.outputs` speak for."""
        if self.version_2:
            return candidates_v2(*(outputs[name] for name in OUTPUTS_V2))
        return candidates_v1(outputs["start_logits"], outputs["end_logits"], n_best_size)

    def answer(
        self,
        data: SquadData,
        features: SquadFeatures,
        outputs: Mapping[str, NDArray[Any]],
        settings: DecodingSettings,
    ) -> Answers:
        """The answers to the questions of `data`, given a model's outputs for their features."""
        candidates = self.candidates(outputs, settings.n_best_size)
        return decode(data.examples, features, candidates, settings)


def choose_version(
    wanted: bool | None, checkpoint: str | None, train: SquadData | None, test: SquadData | None
) -> bool:
    """Whether the head of SQuAD 2.0 is needed.

    Args:
        wanted: what the user says; None for nothing.
        checkpoint: else, the model that there is decides, if it has a head;
        train: else, whether there are unanswerable questions in this file
        test: or in this one.

    Raises:
        ValueError: nothing tells, or there are unanswerable questions that could not be evaluated.
    """
    version_2 = wanted
    if version_2 is None and checkpoint is not None:
        names = loading.open_weights(checkpoint).shapes
        if HEAD_V1 in names or HEAD_V2 in names:
            version_2 = HEAD_V2 in names
    if version_2 is None:
        versions = [data.version_2 for data in (train, test) if data is not None]
        if not versions:
            raise ValueError(
                "there is neither a trained model nor a file of questions that tells whether "
                "questions may have no answer: give --init_checkpoint or --version_2_with_negative"
            )
        version_2 = any(versions)
    if test is not None and test.version_2 and test.has_answers and not version_2:
        raise ValueError(
            f"{test.path} has questions without an answer, and the model's head is that of SQuAD "
            "1.1. Train one with --version_2_with_negative in another --output_dir, or name other "
            "questions"
        )
    return version_2


def prepare(
    data: SquadData,
    tokenizer: FullTokenizer,
    settings: WindowSettings,
    is_training: bool,
    cache_file: str = "",
    num_workers: int = 1,
    show_progress: bool = False,
) -> SquadFeatures:
    """The features of a file of questions, from the cache or made and put there.

    Args:
        data: the questions; in training they are put into the official order.
        tokenizer: either kind of vocabulary.
        settings: how contexts are cut.
        is_training: whether to find the answers.
        cache_file: an `.npz` file that keeps the features; "" for none. What was made of another
            file, vocabulary or setting is made anew.
        num_workers: processes; 0 for one on each core.
        show_progress: whether to show a bar on a terminal.

    Raises:
        ValueError: no question has features, or the cache cannot be written.
    """
    made_of = {
        "data": data.checksum,
        "vocabulary": tokenizer.checksum,
        "do_lower_case": tokenizer.do_lower_case,
        "is_training": is_training,
        **vars(settings),
    }

    def make() -> SquadFeatures:
        examples: Sequence[Any] = shuffled(data.examples) if is_training else data.examples
        features = make_features(
            examples, tokenizer, settings, is_training, num_workers, show_progress
        )
        logging.info("%s: %d questions, %d features", data.path, len(examples), len(features))
        is_full = features.query_lengths == settings.max_query_length
        full = len(set(features.example_index[is_full].tolist()))
        if full:
            logging.info("%d of them have %d tokens or more, which is all that is read: "
                         "see --max_query_length", full, settings.max_query_length)  # fmt: skip
        return features

    length = settings.max_seq_length
    return feature_cache.load_or_make(cache_file, made_of, length, make, SquadFeatures)


def evaluate(
    data: SquadData,
    answers: Answers,
    official_threshold: bool = False,
    threshold: float | None = None,
) -> tuple[dict[str, float], dict[str, str]]:
    """The metrics of answers, and the predictions that have these metrics.

    * SQuAD 1.1: `exact_match` and `f1`; Chinese data by CMRC's measure, with `average`.
    * SQuAD 2.0 (answers with null odds): `exact`, `f1` and `total`, the same for questions with
      (`HasAns_…`) and without an answer (`NoAns_…`), `best_exact` and `best_f1` with their
      thresholds, and `null_score_diff_threshold`, the one that was taken.

    Args:
        data: the questions with their answers.
        answers: what was found.
        official_threshold: as run_squad_v2.py does it: a question exactly at the threshold has no
            answer, though the search counted it as answered; and the scores are those with the
            threshold 1.0 instead of the one found, so that they are not those of the predictions.
        threshold: of the null odds; None for the one that is best for `f1`.

    Raises:
        ValueError: questions without answers in SQuAD 1.1.
    """
    golds = {example.qas_id: example.answers for example in data.examples}
    if answers.null_odds is None:
        evaluate_v1 = span_metrics.evaluate_cmrc if data.is_chinese else span_metrics.evaluate_v1
        return evaluate_v1(golds, answers.best), answers.best
    best = span_metrics.best_thresholds(
        golds, answers.best, answers.null_odds, official=official_threshold
    )
    threshold = best["best_f1_thresh"] if threshold is None else threshold
    predictions = answers.predictions(threshold, strict=official_threshold)
    chosen = {"null_score_diff_threshold": threshold}
    scores = span_metrics.raw_scores_v2(golds, predictions)
    if not official_threshold:
        return span_metrics.summarize_v2(golds, *scores) | best | chosen, predictions
    cut = [
        span_metrics.apply_threshold(part, golds, answers.null_odds, OFFICIAL_CUT)
        for part in scores
    ]
    summary = span_metrics.summarize_v2(golds, *cut)
    return {key: summary[key] for key in ("exact", "f1", "total")} | chosen, predictions
