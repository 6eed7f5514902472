"""Question answering with spans of a text: the task, its outputs and its numbers.

SQuAD 1.1 and 2.0, and in Chinese CMRC 2018 and DRCD. The data come from `squad_reading`, features
from `squad_windows`, answers from `squad_decoding`, scores from `span_metrics`. Source:
`run_squad_v1.py`, `run_squad_v2.py` and `squad_utils.py` of google-research/albert.

Letters: B batch, N features, S sequence length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from albert_tf import span_metrics
from albert_tf.config import AlbertConfig
from albert_tf.heads import (
    AlbertForAnswerableSpans,
    AlbertForSpans,
    answerable_span_losses,
    span_losses,
)
from albert_tf.squad_decoding import (
    Answers,
    Candidates,
    DecodingSettings,
    candidates_v1,
    candidates_v2,
    decode,
)
from albert_tf.squad_features import SquadFeatures, load, save
from albert_tf.squad_reading import SquadData, shuffled
from albert_tf.squad_windows import WindowSettings, make_features
from albert_tf.tokenization import FullTokenizer

# What prediction reads of a model's outputs.
OUTPUTS_V1 = ("start_logits", "end_logits")
OUTPUTS_V2 = (
    *("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index"),
    "cls_logits",
)
# The official program scores with this cut of the null odds, whatever threshold it has found.
OFFICIAL_CUT = 1.0
NOWHERE = -1e30  # logit of positions that a batch of shorter rows does not have

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
        self.output_names = OUTPUTS_V2 if version_2 else OUTPUTS_V1

    def build_model(self) -> AlbertForSpans | AlbertForAnswerableSpans:
        """A model with random weights."""
        if not self.version_2:
            return AlbertForSpans(self.config)
        return AlbertForAnswerableSpans(
            self.config, self.start_n_top, self.end_n_top, self.dropout_prob
        )

    def loss(
        self, outputs: dict[str, tf.Tensor], batch: dict[str, tf.Tensor]
    ) -> tuple[tf.Tensor, Sums]:
        """The mean loss of a batch, and what its metrics are made of.

        Args:
            outputs: of the model, given `start_positions`.
            batch: with `start_positions`, `end_positions` and `is_impossible`, int32 [B].

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
        return tf.reduce_mean(losses), sums

    def collect(
        self,
        num_features: int,
        batches: Iterable[tuple[NDArray[np.integer], Mapping[str, Any]]],
    ) -> dict[str, NDArray[Any]]:
        """Puts the outputs of batches together.

        Args:
            num_features: N.
            batches: numbers of the features [B], and the model's outputs for them; rows of a batch
                may be shorter than those of another.

        Returns:
            arrays [N, …] by the names of `output_names`.
        """
        parts: list[tuple[NDArray[np.integer], dict[str, NDArray[Any]]]] = [
            (rows, {name: np.asarray(outputs[name]) for name in self.output_names})
            for rows, outputs in batches
        ]
        result: dict[str, NDArray[Any]] = {}
        for name in self.output_names:
            first = parts[0][1][name]
            shape = (num_features, *max(values[name].shape[1:] for _, values in parts))
            result[name] = np.full(shape, NOWHERE if first.dtype.kind == "f" else 0, first.dtype)
            for rows, values in parts:
                if first.ndim == 1:
                    result[name][rows] = values[name]
                else:
                    result[name][rows, : values[name].shape[1]] = values[name]
        return result

    def candidates(self, outputs: Mapping[str, NDArray[Any]], n_best_size: int) -> Candidates:
        """The spans that the outputs [N, …] of `output_names` speak for."""
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
        cache_file: where the features are kept; "" for nowhere. What was made of another file,
            vocabulary or setting is made anew.
        num_workers: processes; 0 for one on each core.
        show_progress: whether to show a bar on standard error.

    Raises:
        ValueError: no question has features, or the cache file is something else.
    """
    made_of = {
        "data": data.checksum,
        "vocabulary": tokenizer.checksum,
        "do_lower_case": tokenizer.do_lower_case,
        "is_training": is_training,
        **vars(settings),
    }
    features = load(cache_file, made_of) if cache_file else None
    if features is not None:
        logging.info("%s: %d features, as cached", cache_file, len(features))
        return features
    examples: Sequence[Any] = shuffled(data.examples) if is_training else data.examples
    features = make_features(examples, tokenizer, settings, is_training, num_workers, show_progress)
    logging.info("%s: %d questions, %d features", data.path, len(examples), len(features))
    if cache_file:
        save(cache_file, features, made_of)
    return features


def evaluate(
    data: SquadData, answers: Answers, official_threshold: bool = False
) -> tuple[dict[str, float], dict[str, str]]:
    """The metrics of answers, and the predictions that have these metrics.

    * SQuAD 1.1: `exact_match` and `f1`; Chinese data by CMRC's measure, with `average`.
    * SQuAD 2.0 (answers with null odds): `exact`, `f1` and `total`, the same for questions with
      (`HasAns_…`) and without an answer (`NoAns_…`), `best_exact` and `best_f1` with their
      thresholds, and `null_score_diff_threshold`, which is the one that is best for `f1`.

    Args:
        data: the questions with their answers.
        answers: what was found.
        official_threshold: as run_squad_v2.py does it: a question exactly at the threshold has no
            answer, though the search counted it as answered; and the scores are those with the
            threshold 1.0 instead of the one found, so that they are not those of the predictions.

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
    threshold = best["best_f1_thresh"]
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
