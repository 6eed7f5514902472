"""Extractive question answering as a fine-tuning task: features, losses, answers and metrics.

The data sets are SQuAD 1.1 and 2.0, and the Chinese CMRC 2018 and DRCD. `reading` reads the data,
`features` creates features, `answers` converts outputs to answers, and `metrics` evaluates them.
Source: `run_squad_v1.py`, `run_squad_v2.py` and `squad_utils.py` of google-research/albert.

Shapes: B batch size, N features, S sequence length.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints import finding, tasks
from albert_tf.checkpoints.evaluations import Evaluation, heading
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.signatures import Export, Signature, token_inputs, token_signatures
from albert_tf.checkpoints.store import evaluation_of_best
from albert_tf.checkpoints.weight_names import GLOBAL_STEP
from albert_tf.finetuning.batching import Features, Padding
from albert_tf.finetuning.result_files import RESULTS_FILE, SEPARATOR, format_copies
from albert_tf.finetuning.squad import Settings
from albert_tf.finetuning.squad.answers import (
    Answers,
    Candidates,
    candidates_v1,
    candidates_v2,
    decode,
    write_answers,
)
from albert_tf.finetuning.squad.evaluation import THRESHOLD, evaluate
from albert_tf.finetuning.squad.features import SquadFeatures
from albert_tf.finetuning.squad.metrics import format_exactly
from albert_tf.finetuning.squad.reading import (
    SquadData,
    SquadExample,
    shuffled,
)
from albert_tf.finetuning.squad.version import choose_version
from albert_tf.finetuning.squad.windows import NoFeaturesError, make_features
from albert_tf.finetuning.task import FineTuningTask, Split
from albert_tf.finetuning.text_task import Outputs, mark
from albert_tf.finetuning.trained_model import TrainedModel
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import (
    AlbertForAnswerableSpans,
    AlbertForSpans,
    answerable_span_losses,
    span_losses,
)
from albert_tf.model.tokenization import Tokenizer
from albert_tf.training.task import Batch

NOWHERE = -1e30  # logit of padding positions, where no answer can start or end
# The outputs to collect, and their padding values for batches of shorter sequences.
OUTPUTS_V1 = {"start_logits": NOWHERE, "end_logits": NOWHERE}
OUTPUTS_V2 = dict.fromkeys(
    ("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index", "cls_logits"),
    0.0,
)

THRESHOLD_FILE = "null_odds_threshold.json"  # of an exported model


class QuestionAnswering(FineTuningTask):
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

    Attributes:
        null_threshold: the null odds above which a trained model does not answer a question; None
            in SQuAD 1.1.
        top_k: maximum number of answers in a result.
    """

    selection_metric = "f1"
    measured_with = (
        *("start_n_top", "end_n_top", "n_best_size", "max_answer_length"),
        *("null_score_diff_threshold", "official_threshold", "mixed_segmentation"),
    )
    percentages = ("exact", "exact_match", "f1", "average")
    null_threshold: float | None = None
    top_k: int
    demos = ({"question": "Who lives in Rome?", "context": "Anna lives in Rome and sells bread."},)
    marks_spans = True

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
        task = cls(trained.settings, trained.config, trained.tokenizer, {}, version_2)
        task.null_threshold = task.threshold(trained.run)
        task.top_k = trained.top_k
        return task

    def make_features(self, data: SquadData, split: str) -> SquadFeatures:
        """Returns the features of a split.

        Training questions are shuffled as in Google's programs.

        Raises:
            ValueError: no question has features.
        """
        settings = self.settings
        is_training = split == "train"
        examples: Sequence[Any] = shuffled(data.examples) if is_training else data.examples
        features = make_features(
            examples, self.tokenizer, self.settings.windows, is_training, settings.num_workers
        )
        logging.info("%s: %d questions, %d features", data.path, len(examples), len(features))
        is_full = features.query_lengths == settings.max_query_length
        if is_full.any():
            logging.info(
                "%d questions have --max_query_length=%d or more tokens; longer ones are truncated",
                len(np.unique(features.example_index[is_full])),
                settings.max_query_length,
            )
        return features

    def checksum(self, data: SquadData) -> str:
        """Returns the SHA-256 of the file of questions."""
        return data.checksum

    def count_examples(self) -> int:
        """Returns the number of questions: an epoch is counted in questions, not features."""
        return len(self.splits["train"].data.examples)

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

    def losses(self, outputs: Any, batch: Batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
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

    def answer(self, split: Split, outputs: Outputs) -> Answers:
        """Returns the answers to the questions of a split, decoded from the model's outputs."""
        settings = self.settings
        features = cast(SquadFeatures, split.features)
        if not self.version_2:
            outputs = _without_padding(outputs, features.lengths)
        candidates = self.candidates(outputs, settings.n_best_size)
        return decode(
            split.data.examples,
            features,
            candidates,
            settings.n_best_size,
            settings.max_answer_length,
        )

    def candidates(self, outputs: Outputs, n_best_size: int) -> Candidates:
        """Returns the candidate spans in the collected outputs, [N, …] each."""
        if self.version_2:
            return candidates_v2(*(outputs[name] for name in OUTPUTS_V2))
        return candidates_v1(outputs["start_logits"], outputs["end_logits"], n_best_size)

    def _evaluate(
        self, data: SquadData, answers: Answers
    ) -> tuple[dict[str, float], dict[str, str]]:
        settings = self.settings
        return evaluate(
            data, answers, settings.official_threshold, settings.null_score_diff_threshold
        )

    def measure(self, split: Split, outputs: Outputs, batch_size: int) -> dict[str, float]:
        """Returns exact match and F1; see `evaluate`."""
        return self._evaluate(split.data, self.answer(split, outputs))[0]

    def write_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> str:
        """Writes `eval_results.txt` like Google's SQuAD programs, and returns its text.

        The file has a block for each checkpoint: the metrics, the files that were copied if it is
        the best checkpoint so far, the best value up to this checkpoint, and a line of "=". At the
        end are the metrics and the step of the best checkpoint.
        """
        text = ""
        best = None
        for number, evaluation in enumerate(evaluations, 1):
            text += format_exactly(evaluation.metrics | {GLOBAL_STEP: evaluation.step})
            if self.best_of(evaluations[:number]) is evaluation:
                best = evaluation
                text += format_copies(folder, evaluation)
            value = -1 if best is None else best.metrics[self.selection_metric]
            text += f"best {self.selection_metric} = {value}\n" + SEPARATOR
        if best is not None:
            text += format_exactly(best.metrics) + f"best perf happened at step: {best.step}"
        files.write_file(folder.file(RESULTS_FILE), heading(evaluations) + text)
        return text

    def describe_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> str:
        """Returns the metrics of the best checkpoint as text."""
        best = self.best_of(evaluations)
        return format_exactly(best.metrics) if best else ""

    def write_predictions(
        self, folder: RunFolder, split: Split, outputs: Outputs, step: int
    ) -> str:
        """Writes the prediction files."""
        answers = self.answer(split, outputs)
        if split.data.has_answers:
            predictions = self._evaluate(split.data, answers)[1]
        else:
            predictions = answers.predictions(self.threshold(folder))
        write_answers(folder.path, answers, predictions)
        return ""

    def threshold(self, folder: RunFolder) -> float | None:
        """Returns the null odds above which a question counts as unanswerable.

        This is the threshold of the settings, or else the one found when the best checkpoint was
        evaluated; None in SQuAD 1.1. It is used where gold answers are unknown.
        """
        threshold = self.settings.null_score_diff_threshold
        if threshold is not None or not self.version_2:
            return threshold
        exported = finding.read_json_if_there(folder.path, THRESHOLD_FILE)
        if THRESHOLD in exported:
            return float(exported[THRESHOLD])
        best = evaluation_of_best(folder)
        evaluated = None if best is None else best.metrics.get(THRESHOLD)
        if evaluated is None:
            logging.warning("The threshold of the null odds is unknown; using 0")
        return evaluated or 0.0

    # Prediction from texts.

    def parse_call(
        self,
        questions: str | Sequence[str] | Sequence[Sequence[str]],
        contexts: str | Sequence[str] | None = None,
    ) -> tuple[list[tuple[str, str]], bool]:
        """Returns the pairs (question, context) of a call, and whether it is for a single one.

        Args:
            questions: a question, a list of questions, or a list of pairs (question, context).
            contexts: the context, or one for each of `questions`.

        Raises:
            ValueError: an input is not a string, or there is no context.
        """
        pairs, is_single = super().parse_call(questions, contexts)
        if contexts is None and not all(context for _, context in pairs):
            raise ValueError("expected a context for each question, got none")
        return pairs, is_single

    def features_of(self, examples: Sequence[tuple[str, str]]) -> SquadFeatures | None:
        """Returns the features of questions; None if normalization removes all their contexts."""
        questions = _as_questions(examples)
        try:
            return make_features(
                questions, self.tokenizer, self.settings.windows, False, shows_progress=False
            )
        except NoFeaturesError:
            return None

    def results(
        self, examples: Sequence[tuple[str, str]], features: Features, outputs: Outputs
    ) -> list[dict[str, Any]]:
        """Returns the answer to each question."""
        data = SquadData("questions", "", _as_questions(examples), False, False, False)
        answers = self.answer(Split("test", data, features), outputs)
        found = []
        for name, text in answers.predictions(self.null_threshold).items():
            possible = [
                _answer(entry["text"], entry["probability"], begin)
                for entry, begin in zip(answers.nbest[name], answers.begins[name], strict=True)
                if begin >= 0
            ]
            is_answered = possible and text == answers.best[name]
            best = possible[0] if is_answered else _answer("", 0.0, -1)
            if answers.null_odds is not None:
                best = best | {"null_odds": answers.null_odds[name]}
            found.append(best | {"answers": possible[: self.top_k]})
        return found

    def unanswered(self, examples: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Returns the results of questions without an answer."""
        return [_answer("", 0.0, -1) | {"answers": []} for _ in examples]

    @staticmethod
    def show(row: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the context with the answer in it, for the web page."""
        return mark(row["context"], [{"type": "answer", **result}])

    # Export.

    def served_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns the outputs of the exported model, under the names of Google's program.

        As in that program, the outputs of SQuAD 1.1 are logits, although they are named "log_prob".
        """
        if self.version_2:
            return {name: outputs[name] for name in self.outputs}
        return {
            "start_log_prob": outputs["start_logits"],
            "end_log_prob": outputs["end_logits"],
        }

    def make_export(self, model: Any, max_seq_length: int, folder: RunFolder) -> Export:
        """Returns a SavedModel for tensors and a TFLite file, in the folders of Google's program.

        In SQuAD 1.1, the TFLite file returns `start_logits` and `end_logits`. In SQuAD 2.0, which
        Google's program does not export, both models return `OUTPUTS_V2` and have `p_mask` as an
        additional input.
        """
        inputs = token_inputs(max_seq_length, *(("p_mask",) if self.version_2 else ()))
        contents = {}
        if self.version_2:
            threshold = json.dumps({THRESHOLD: self.threshold(folder)}) + "\n"
            contents[THRESHOLD_FILE] = threshold.encode()

        def logits(batch: Batch) -> dict[str, tf.Tensor]:
            outputs = model(batch, training=False)
            return {name: outputs[name] for name in self.outputs}

        return Export(
            token_signatures(inputs, functools.partial(self.serve, model), takes_examples=False),
            contents,
            Signature(inputs, logits),
            self.settings.tflite_quantization,
            finding.SPAN_EXPORTS,
        )


def _as_questions(pairs: Sequence[tuple[str, str]]) -> tuple[SquadExample, ...]:
    """Returns pairs (question, context) as questions whose ids are their numbers."""
    return tuple(
        SquadExample(str(number), question, context)
        for number, (question, context) in enumerate(pairs)
    )


def _answer(text: str, score: float, begin: int) -> dict[str, Any]:
    end = begin + len(text) if begin >= 0 else -1
    return {"answer": text, "score": score, "begin": begin, "end": end}


def _without_padding(logits: Outputs, lengths: NDArray[np.int32]) -> Outputs:
    """Returns logits [N, S] with `NOWHERE` at padding positions.

    Unlike Google's program, where padding competes for the `n_best_size` starts and ends, so that
    answers would depend on the length that a batch is padded to.
    """
    return {
        name: np.where(np.arange(logits[name].shape[1]) < lengths[:, None], logits[name], NOWHERE)
        for name in OUTPUTS_V1
    }
