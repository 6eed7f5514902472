"""Extractive question answering as a task: features, losses, answers, metrics and export.

The data sets are SQuAD 1.1 and 2.0, and the Chinese CMRC 2018 and DRCD. `reading` reads the data,
`windows` creates features, `answers` converts outputs to answers, and `evaluation` measures them.
Source: `run_squad_v1.py`, `run_squad_v2.py` and `squad_utils.py` of google-research/albert.

Shapes: B batch size, N features, S sequence length.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from absl import logging
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints import containers, model_folder, tasks
from albert_tf.checkpoints.evaluations import Evaluation, heading
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.weight_names import ANSWERABLE_SPANS_HEAD, GLOBAL_STEP, SPANS_HEAD
from albert_tf.finetuning import result_files
from albert_tf.finetuning.batching import Outputs, Padding
from albert_tf.finetuning.rows import Row
from albert_tf.finetuning.splits import DEV, TRAIN, Split
from albert_tf.finetuning.squad.alignment import is_skipped_by_google
from albert_tf.finetuning.squad.answers import (
    NOWHERE,
    OUTPUTS_V1,
    OUTPUTS_V2,
    Answers,
    candidates_v1,
    candidates_v2,
    decode,
    write_answers,
)
from albert_tf.finetuning.squad.data import (
    EncodedSquadData,
    TrainingEncoder,
    evenly_spaced,
    warn_of_lost_marks,
)
from albert_tf.finetuning.squad.metrics import (
    THRESHOLD,
    THRESHOLD_FILE,
    evaluate,
    format_exactly,
    null_threshold,
)
from albert_tf.finetuning.squad.questions import (
    SquadData,
    SquadExample,
    parse_question,
)
from albert_tf.finetuning.squad.reading import read_data
from albert_tf.finetuning.squad.settings import Settings
from albert_tf.finetuning.squad.windows import NoFeaturesError, SquadFeatures, make_features
from albert_tf.finetuning.task import FineTuningTask, Result, mark
from albert_tf.finetuning.token_sequences import parse_pairs
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import Tokenizer
from albert_tf.tables import Table

if TYPE_CHECKING:  # what needs TensorFlow
    import tensorflow as tf
    import tf_keras
    from typing_extensions import Self

    from albert_tf.export.signatures import Export, Tensors
    from albert_tf.model.heads import AlbertForAnswerableSpans, AlbertForSpans
    from albert_tf.training.task import Batch

# As in Google's program, logits are exported as "log_prob"; the other outputs keep their names.
EXPORTED = {"start_logits": "start_log_prob", "end_logits": "end_log_prob"}
EXPORTED |= {name: name for name in OUTPUTS_V2}

SquadSplit = Split[SquadData, SquadFeatures]


class QuestionAnswering(FineTuningTask[Settings, SquadData, SquadFeatures]):
    """Answers questions with a span of a context.

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
        version_2: the argument.
        threshold: the null odds above which a predictor does not answer; None in SQuAD 1.1.
    """

    settings_class = Settings
    selection_metric = "f1"
    measured_with = (
        *("start_n_top", "end_n_top", "n_best_size", "max_answer_length"),
        *("null_score_diff_threshold", "official_threshold", "mixed_segmentation"),
    )
    percentages = ("exact", "exact_match", "f1", "average")
    names = (tasks.SPANS, tasks.ANSWERABLE_SPANS)
    argument_names = ("question", "context")
    flags = ("question", "context")
    demos = (
        {"question": "Who lives in Rome?", "context": "Anna lives in Rome and sells bread."},
        {"question": "谁住在北京？", "context": "王小明住在北京，他卖面包。"},
    )
    marks_spans = True
    table_columns = ("answer", "score")

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
        self.threshold: float | None = None

    @classmethod
    def open(
        cls, settings: Settings, source: ModelSource, given: Mapping[str, Table] | None = None
    ) -> Self:
        """Returns the task, with the head of SQuAD 2.0 if settings, model or data require it.

        Questions with answers are evaluated, also if the settings ask only to predict them.
        """
        tokenizer = source.unchecked_tokenizer
        data = read_data(settings, given, tokenizer)
        if DEV in data and data[DEV].has_labels:
            settings = dataclasses.replace(settings, do_eval=True)
        checkpoint = None if source.trained is None else source.trained.checkpoint
        if checkpoint is None and settings.init_checkpoint:
            checkpoint = model_folder.find_checkpoint(settings.init_checkpoint)
        version_2 = choose_version(
            settings.version_2_with_negative, checkpoint, data.get(TRAIN), data.get("test")
        )
        return cls(settings, source.config, tokenizer, data, version_2)

    @classmethod
    def of_trained(
        cls, name: str, settings: Settings, source: ModelSource, num_outputs: int
    ) -> Self:
        """Returns the task, with the head of SQuAD 2.0 if questions may be unanswerable."""
        version_2 = name == tasks.ANSWERABLE_SPANS
        task = cls(settings, source.config, source.tokenizer, {}, version_2)
        task.threshold = task._null_threshold(source.run)
        return task

    def _null_threshold(self, folder: RunFolder) -> float | None:
        """Returns the null odds above which there is no answer; None in SQuAD 1.1."""
        if not self.version_2:
            return None
        return null_threshold(self.settings.null_score_diff_threshold, folder)

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

    # Features, of files and of calls.

    def checksum(self, data: SquadData) -> str:
        """Returns the SHA-256 of the questions, in hexadecimal; another one if Google skips some.

        Runs that skipped them, too, before they were aligned, would not resume with the same
        features.
        """
        digest = super().checksum(data)
        if isinstance(data, EncodedSquadData):
            has_realigned = data.features.has_realigned
        else:
            contexts = dict.fromkeys(example.context for example in data.examples)
            has_realigned = any(is_skipped_by_google(self.tokenizer, text) for text in contexts)
        if has_realigned:
            digest = hashlib.sha256(f"{digest}, aligned by letters".encode()).hexdigest()
        return digest

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
        if isinstance(data, EncodedSquadData):
            features = data.features
        elif split == TRAIN:
            features = TrainingEncoder(self.tokenizer, settings)(data.examples)
        else:
            features = make_features(
                data.examples, self.tokenizer, settings.windows, False, settings.num_workers
            )
            warn_of_lost_marks(evenly_spaced(data.examples), self.tokenizer)
        logging.info("%s: %d questions, %d features", data.path, len(data), len(features))
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
        return len(split.data)

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
        pairs, is_single = parse_pairs(questions, contexts)
        if contexts is None and not all(context for _, context in pairs):
            raise ValueError("expected a context for each question, got none")
        return pairs, is_single

    @staticmethod
    def parse_row(row: Row) -> tuple[str, str]:
        """Returns the question and the context of a row."""
        return parse_question(row)

    def features_of(self, examples: Sequence[tuple[str, str]]) -> SquadFeatures | None:
        """Returns the features of questions; None if normalization removes all their contexts."""
        questions = _as_questions(examples)
        try:
            return make_features(
                questions, self.tokenizer, self.settings.windows, False, shows_progress=False
            )
        except NoFeaturesError:
            return None

    # The model and its losses.

    def build_model(self) -> AlbertForSpans | AlbertForAnswerableSpans:
        """Returns the model with random weights."""
        from albert_tf.model.heads import AlbertForAnswerableSpans, AlbertForSpans

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
        import tensorflow as tf

        from albert_tf.model.losses import answerable_span_losses, span_losses

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

    # From outputs to answers.

    def answer(self, split: SquadSplit, outputs: Outputs) -> Answers:
        """Returns the answers to the questions of a split, decoded from the model's outputs."""
        settings = self.settings
        if self.version_2:
            candidates = candidates_v2(*(outputs[name] for name in OUTPUTS_V2))
        else:
            start, end = _without_padding(outputs, split.features.lengths)
            candidates = candidates_v1(start, end, settings.n_best_size)
        return decode(
            split.data.examples,
            split.features,
            candidates,
            settings.n_best_size,
            settings.max_answer_length,
        )

    def outputs_of(self, exported: Outputs) -> Outputs:
        """Returns the outputs of the head, given those of an exported model."""
        return {name: exported[EXPORTED[name]] for name in self.outputs}

    def results(
        self, examples: Sequence[tuple[str, str]], features: SquadFeatures, outputs: Outputs
    ) -> list[Result]:
        """Returns the answer to each question (question, context)."""
        data = SquadData("questions", _as_questions(examples))
        answers = self.answer(Split("test", data, features), outputs)
        found = []
        for name, text in answers.predictions(self.threshold).items():
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

    def unanswered(self, examples: Sequence[tuple[str, str]]) -> list[Result]:
        """Returns the results of questions without an answer."""
        return [_answer("", 0.0, -1) | {"answers": []} for _ in examples]

    @staticmethod
    def show(row: files.JsonObject, result: Result) -> files.JsonObject:
        """Returns the context with the answer in it, for the web page."""
        return mark(row["context"], [{"type": "answer", **result}])

    @staticmethod
    def table(row: files.JsonObject, result: Result) -> list[Sequence[files.Json]]:
        """Returns the best of the other answers with their scores."""
        others = [answer for answer in result["answers"] if answer["answer"] != result["answer"]]
        return [(answer["answer"], answer["score"]) for answer in others]

    # Metrics, and the files of Google's programs.

    def _evaluate(
        self, data: SquadData, answers: Answers
    ) -> tuple[dict[str, float], dict[str, str]]:
        """Returns the metrics of answers, and the predictions that they are computed from."""
        settings = self.settings
        return evaluate(
            data, answers, settings.official_threshold, settings.null_score_diff_threshold
        )

    def measure(self, split: SquadSplit, outputs: Outputs, batch_size: int) -> dict[str, float]:
        """Returns exact match and F1; see `evaluate`."""
        return self._evaluate(split.data, self.answer(split, outputs))[0]

    def write_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> None:
        """Writes `eval_results.txt` like Google's SQuAD programs.

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
                text += result_files.format_copies(folder, evaluation)
            value = -1 if best is None else best.metrics[self.selection_metric]
            text += f"best {self.selection_metric} = {value}\n" + result_files.SEPARATOR
        if best is not None:
            text += format_exactly(best.metrics) + f"best perf happened at step: {best.step}"
        files.write_file(folder.file(result_files.RESULTS_FILE), heading(evaluations) + text)

    def describe_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> str:
        """Returns the metrics of the best checkpoint as text."""
        best = self.best_of(evaluations)
        return format_exactly(best.metrics) if best else ""

    def write_predictions(
        self, folder: RunFolder, split: SquadSplit, outputs: Outputs, step: int
    ) -> str:
        """Writes the prediction files."""
        answers = self.answer(split, outputs)
        if split.data.has_labels:
            predictions = self._evaluate(split.data, answers)[1]
        else:
            predictions = answers.predictions(self._null_threshold(folder))
        write_answers(folder.path, answers, predictions)
        return ""

    # Export.

    def served_outputs(self, outputs: Mapping[str, tf.Tensor]) -> Tensors:
        """Returns the outputs of the exported model, under the names of Google's program.

        As in that program, the outputs of SQuAD 1.1 are logits, although they are named "log_prob".
        """
        return {EXPORTED[name]: outputs[name] for name in self.outputs}

    def make_export(
        self, model: tf_keras.layers.Layer, max_seq_length: int, folder: RunFolder
    ) -> Export:
        """Returns a SavedModel for tensors and a TFLite file, in the folders of Google's program.

        In SQuAD 1.1, the TFLite file returns `start_logits` and `end_logits`. In SQuAD 2.0, which
        Google's program does not export, both models return `OUTPUTS_V2` and have `p_mask` as an
        additional input.
        """
        from albert_tf.export.signatures import (
            Export,
            Signature,
            token_inputs,
            token_signatures,
        )

        inputs = token_inputs(max_seq_length, *(("p_mask",) if self.version_2 else ()))
        contents = {}
        if self.version_2:
            threshold = self._null_threshold(folder)
            contents[THRESHOLD_FILE] = (json.dumps({THRESHOLD: threshold}) + "\n").encode()

        def serve(batch: Tensors) -> Tensors:
            return self.served_outputs(model(batch, training=False))

        def logits(batch: Tensors) -> Tensors:
            outputs = model(batch, training=False)
            return {name: outputs[name] for name in self.outputs}

        return Export(
            token_signatures(inputs, serve, takes_examples=False),
            contents,
            Signature(inputs, logits),
            self.settings.tflite_quantization,
            model_folder.SPAN_EXPORTS,
        )


def choose_version(
    wanted: bool | None, checkpoint: str | None, train: SquadData | None, test: SquadData | None
) -> bool:
    """Returns whether to use the head of SQuAD 2.0. The first argument that tells decides.

    Args:
        wanted: the setting; None if not set.
        checkpoint: a trained model, whose head decides if it has one.
        train: the training questions; the head is used if they are SQuAD 2.0.
        test: the questions to predict; likewise.

    Raises:
        ValueError: no argument tells, or unanswerable questions are to be evaluated without the
            head of SQuAD 2.0.
    """
    version_2 = wanted
    if version_2 is None and checkpoint is not None:
        names = containers.open_weights(checkpoint).shapes
        if SPANS_HEAD in names or ANSWERABLE_SPANS_HEAD in names:
            version_2 = ANSWERABLE_SPANS_HEAD in names
    if version_2 is None:
        versions = [data.version_2 for data in (train, test) if data is not None]
        if not versions:
            raise ValueError(
                "neither a trained model nor a file of questions tells whether questions may be "
                "unanswerable: set --init_checkpoint or --version_2_with_negative"
            )
        version_2 = any(versions)
    if test is not None and test.version_2 and test.has_labels and not version_2:
        raise ValueError(
            f"{test.path} has unanswerable questions, but the model has the head of SQuAD 1.1. "
            "Train a model with --version_2_with_negative in another --output_dir, or choose other "
            "questions"
        )
    return version_2


def _without_padding(
    logits: Outputs, lengths: NDArray[np.int32]
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Returns start and end logits, float [N, S] each, with `NOWHERE` at padding positions.

    Unlike Google's program, where padding competes for the `n_best_size` starts and ends, so that
    answers would depend on the length that a batch is padded to.
    """
    start, end = (logits[name] for name in OUTPUTS_V1)
    is_token = np.arange(start.shape[1]) < lengths[:, None]
    return np.where(is_token, start, NOWHERE), np.where(is_token, end, NOWHERE)


def _as_questions(pairs: Sequence[tuple[str, str]]) -> list[SquadExample]:
    """Returns pairs (question, context) as questions whose ids are their numbers."""
    return [
        SquadExample(str(number), question, context)
        for number, (question, context) in enumerate(pairs)
    ]


def _answer(text: str, score: float, begin: int) -> Result:
    end = begin + len(text) if begin >= 0 else -1
    return {"answer": text, "score": score, "begin": begin, "end": end}
