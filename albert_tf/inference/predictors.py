"""Predictors: callables that apply trained models to raw text and return Python values.

    >>> embed = albert_tf.load_predictor("albert_tiny/")
    >>> embed(["The river", "A boat"]).shape
    (2, 12)

`load_predictor` determines from the folder which task the model was trained for, and returns an
instance of one of the classes below. A predictor tokenizes texts as the fine-tuning programs do,
sorts them by length, and pads each batch to its longest sequence. It returns results in input
order, with the same numbers as the programs. Results can be serialized as JSON.

Letters: B batch size, N texts, S sequence length, H hidden size, P masks, V vocabulary size,
K results.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf
import tf_keras
from absl import logging
from numpy.typing import NDArray

from albert_tf import tasks
from albert_tf.classification.task import MIN_SEQ_LENGTH, Classifier
from albert_tf.finetuning.batching import Features, Padding
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.prediction import BatchRunner
from albert_tf.finetuning.results import as_json
from albert_tf.finetuning.rows import BadRowError, Row
from albert_tf.finetuning.sequences import TokenSequences
from albert_tf.finetuning.task import Outputs, Split
from albert_tf.inference import reading
from albert_tf.inference.model_folder import ModelFolder
from albert_tf.inference.settings import AUTO, ENGINES, OPENVINO, TENSORFLOW
from albert_tf.race.reading import Question, num_choices
from albert_tf.race.task import SPECIAL_TOKENS, option_sequences
from albert_tf.serving import openvino_engine, saved_model
from albert_tf.serving.poolings import MEAN, MEAN_LAST_4, POOLED, POOLINGS
from albert_tf.serving.pretrained_model import pool
from albert_tf.serving.signatures import Export
from albert_tf.squad import windows
from albert_tf.squad.reading import SquadData, SquadExample
from albert_tf.squad.task import QuestionAnswering
from albert_tf.token_classification.reading import Sentence
from albert_tf.token_classification.tags import cut, find_spans, join_tokens
from albert_tf.token_classification.task import TokenClassifier, make_features
from albert_tf.tokenization import MASK_TOKEN as MASK
from albert_tf.tokenization import Tokenizer, split_pairs

# If the folder does not record them.
BATCH_SIZE = 32
PAD_TO_MULTIPLE = 8
TOP_K = 5

Texts = str | Sequence[str] | Sequence[Sequence[str]]
Result = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of inference.

    Attributes:
        batch_size: B. None uses `predict_batch_size` of the run that trained the model, or else 32.
        max_seq_length: maximum sequence length, in tokens; longer texts are truncated or split into
            windows. None uses that of training, or else the model's maximum.
        top_k: maximum number of answers, and of words per mask, to return.
        pooling: how to compute embeddings: "mean" averages the token vectors of the last layer,
            "mean_last_4" those of the last four layers, and "pooled" is the pooler's output.
        engine: "tensorflow", "openvino" to run OpenVINO on the CPU, or "auto": OpenVINO if it is
            installed, supports the model, and there is no GPU or TPU. The precision is that of
            Keras' global policy.
    """

    batch_size: int | None = None
    max_seq_length: int | None = None
    top_k: int = TOP_K
    pooling: str = MEAN
    engine: str = AUTO

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_seq_length", "top_k"):
            least = MIN_SEQ_LENGTH if name == "max_seq_length" else 1
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name}={value}: expected {least} or more")
        for name, choices in (("pooling", POOLINGS), ("engine", ENGINES)):
            value = getattr(self, name)
            if value not in choices:
                expected = ", ".join(map(repr, choices))
                raise ValueError(f"{name}={value!r}: expected one of {expected}")
        if self.engine == OPENVINO:
            openvino_engine.check_installed()

    def choose_engine(self) -> str:
        """Returns "tensorflow" or "openvino"."""
        if self.engine != AUTO:
            return self.engine
        has_accelerator = any(map(tf.config.list_logical_devices, ("GPU", "TPU")))
        is_faster = not has_accelerator and openvino_engine.is_installed()
        return OPENVINO if is_faster else TENSORFLOW


def load_predictor(
    folder: str,
    task: str | None = None,
    *,
    batch_size: int | None = None,
    max_seq_length: int | None = None,
    top_k: int = TOP_K,
    pooling: str = MEAN,
    engine: str = AUTO,
    **model_files: Any,
) -> Any:
    """Returns a predictor for the model in a folder: a callable that takes text.

        classify = albert_tf.load_predictor("lcqmc_model/")
        classify([("你多大了", "你几岁")])
        answer = albert_tf.load_predictor("squad_model/")
        answer("Who was Ekeus?", "Official Ekeus heads for Baghdad.")
        fill_mask = albert_tf.load_predictor("albert_tiny_zh/", "fill_mask")
        fill_mask("北京是[MASK]国的首都")

    >>> embed = albert_tf.load_predictor("albert_tiny/", "embeddings", pooling="pooled")
    >>> embed("The river").shape
    (12,)

    Args:
        folder: the output directory of one of the programs, a released archive, or any other folder
            that `from_pretrained` accepts; a checkpoint in it; or the name of a downloaded model.
        task: "classification", "multi_label_classification", "regression", "token_classification",
            "multiple_choice", "spans", "answerable_spans", "fill_mask", "embeddings", or a
            registered task of your own.
            Default: the task that the model was fine-tuned for, or else "embeddings".
        batch_size: number of sequences per batch; defaults to `predict_batch_size` of the run that
            trained the model, or else to 32.
        max_seq_length: maximum sequence length, in tokens; longer texts are truncated or split into
            windows. Defaults to that of training, or else to the model's maximum.
        top_k: maximum number of answers, and of words per mask, to return.
        pooling: how to compute embeddings. "mean" averages the token vectors of the last layer,
            "mean_last_4" those of the last four layers, and "pooled" is the pooler's output.
        engine: "tensorflow", "openvino" to run OpenVINO on the CPU, or "auto": OpenVINO if it is
            installed, supports the model, and there is no GPU or TPU.
        **model_files: `config_file`, `vocab_file`, `spm_model_file` and `do_lower_case`, as in
            `from_pretrained`; by default, they are found in the folder.

    Returns:
        A `TextClassifier`, `TokenTagger`, `ChoiceAnswerer`, `SpanAnswerer`, `Embedder`,
        `MaskFiller`, or the predictor of a task of your own.

    Raises:
        FileNotFoundError, ValueError: as in `from_pretrained`, or if the model has no head for the
            task or the engine is not installed.
    """
    options = Options(batch_size, max_seq_length, top_k, pooling, engine)
    model_folder = ModelFolder(folder)
    name = model_folder.find_task(task)
    return make_predictor(model_folder, name, options, model_files)


def make_predictor(
    model_folder: ModelFolder, task: str, options: Options, model_files: Mapping[str, Any]
) -> TextPredictor:
    """Returns the predictor for a task; see `load_predictor`.

    Args:
        model_folder: the folder of the model.
        task: name of a task.
        options: the options of inference.
        model_files: as in `load_predictor`; values of None are ignored.
    """
    return predictor_class(task)(model_folder, task, options, model_files)


def predictor_class(task: str) -> type[TextPredictor]:
    """Returns the class of a task's predictor."""
    predictor: type[TextPredictor] = tasks.resolve(tasks.get(task).predictor)
    return predictor


class TextPredictor(abc.ABC):
    """Base class of all predictors: computes the outputs of a model in batches.

    A subclass defines `__call__`, which converts inputs to features, passes these to `compute`, and
    converts the outputs to results. It also defines `step`, which the engine runs, and `outputs`.
    Programs call `parse` to convert a row of a file or a request to an input, and `predict` to get
    the results of inputs.

    Args:
        model_folder: the folder of the model.
        task: name of a task.
        options: the options of inference.
        model_files: as in `load_predictor`.

    Attributes:
        task: the `task` argument.
        options: the `options` argument.
        engine: "tensorflow" or "openvino".
        model: the model.
        tokenizer: the tokenizer of the model.
        max_seq_length: the maximum of S.
        num_truncated: number of texts so far that were longer, and of which only a part was read.
        outputs: name of each output of `step` → padding value for outputs whose width differs
            between batches, as in `FineTuningTask`.
    """

    outputs: Mapping[str, float]

    def __init__(
        self, model_folder: ModelFolder, task: str, options: Options, model_files: Mapping[str, Any]
    ) -> None:
        self.task = task
        self.options = options
        self.engine = options.choose_engine()
        self._precision = tf_keras.mixed_precision.global_policy().compute_dtype
        self._load = functools.partial(model_folder.load, task, **model_files)
        is_tensorflow = self.engine == TENSORFLOW  # other engines cast float32 models themselves
        with contextlib.nullcontext() if is_tensorflow else saved_model.float32_models():
            self.model, self.tokenizer = self._load()
        logging.info("%s: %s, computed by %s", model_folder.path, task, self.engine)
        names = ("max_seq_length", "pad_to_multiple", "predict_batch_size")
        recorded = model_folder.settings(names, tasks.resolve(tasks.get(task).settings))
        config = self.model.config
        limit = config.max_position_embeddings
        self.max_seq_length = options.max_seq_length or recorded.get("max_seq_length", limit)
        config.check_length(self.max_seq_length)
        self._batch_size = options.batch_size or recorded.get("predict_batch_size", BATCH_SIZE)
        self._padding = Padding(
            self.max_seq_length, recorded.get("pad_to_multiple") or PAD_TO_MULTIPLE
        )
        self._runner: BatchRunner | None = None
        self.num_truncated = 0

    @staticmethod
    def parse(row: Row) -> Any:
        """Returns the input in a row: here, a text or a pair of texts, as (text, text or "").

        Raises:
            BadRowError: the row is not an input; the message says why.
        """
        return reading.parse_pair(row)

    def predict(self, inputs: list[Any]) -> Sequence[Result]:
        """Returns the results of inputs from `parse`, in their order."""
        results: Sequence[Result] = cast(Any, self)(inputs)
        return results

    @abc.abstractmethod
    def step(self, batch: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        """Returns the `outputs` of a batch, name → [B, …]."""

    def sequences(
        self, texts: Texts, pairs: str | Sequence[str] | None = None
    ) -> list[tuple[list[int], int]]:
        """Returns the token sequences of texts, and counts those that are truncated.

        Args:
            texts: as in `TaskPredictor`.
            pairs: as in `TaskPredictor`.
        """
        firsts, seconds = split_pairs(texts, pairs)
        limit = self.max_seq_length
        rows = self.tokenizer.sequences(firsts, seconds, limit + 1)  # shows what is too long
        too_long = [number for number, (ids, _) in enumerate(rows) if len(ids) > limit]
        self.num_truncated += len(too_long)
        for number in too_long:
            texts, pairs = firsts[number], seconds[number]
            (rows[number],) = self.tokenizer.sequences(texts, pairs, limit)
        return rows

    def compute(self, features: Features) -> Outputs:
        """Returns the `outputs` of N features, name → [N, …], in their order."""
        if self._runner is None:
            self._runner = self._make_runner(features)
        self._runner.features = features
        return self._runner.run()

    def _make_runner(self, features: Features) -> BatchRunner:
        make = functools.partial(
            BatchRunner,
            lambda batch, training: self.step(batch),
            features,
            self._batch_size,
            outputs=self.outputs,
            shows_progress=False,
        )
        if self.engine == TENSORFLOW:
            return make(self._padding)
        unpadded = dataclasses.replace(self._padding, multiple=1)  # nothing is compiled per length
        compile_step = functools.partial(openvino_engine.compile_step, precision=self._precision)
        try:
            return make(unpadded, compile_step=compile_step)
        except openvino_engine.ConversionError as error:
            if self.options.engine == OPENVINO:
                raise
            logging.warning("%s. Computing with tensorflow instead", error)
        self.engine = TENSORFLOW
        self.model, _ = self._load()  # in the precision of the global policy
        return make(self._padding)


class FineTunedPredictor(TextPredictor):
    """Base class of the predictors of fine-tuned models, which have the task of the program.

    Attributes:
        labels: names of the model's outputs; () if they have none.
    """

    def __init__(
        self, model_folder: ModelFolder, task: str, options: Options, model_files: Mapping[str, Any]
    ) -> None:
        super().__init__(model_folder, task, options, model_files)
        self._run = model_folder.run
        of = tasks.resolve(tasks.get(task).settings)
        values = model_folder.all_settings(of) | {"max_seq_length": self.max_seq_length}
        values.pop("tflite_quantization", None)  # of an export of the run
        self._task = self.make_task(model_folder, of(**values))
        self._padding = self._task.padding(self._padding)
        self.labels = self._task.labels
        self.outputs = self._task.outputs

    def make_task(self, model_folder: ModelFolder, settings: Any) -> Any:
        """Returns the fine-tuning task, given the settings that the model was trained with."""
        task = tasks.resolve(tasks.get(self.task).task)
        return task.make(settings, self.model.config, self.tokenizer, model_folder.source.run)

    def make_export(self) -> Export:
        """Returns what is exported of the model, which has to be in float32."""
        exported: Export = self._task.make_export(self.model, self.max_seq_length, self._run)
        return exported

    def step(self, batch: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        """Returns the outputs that the task collects."""
        predictions: Mapping[str, tf.Tensor] = self._task.predictions(
            self.model(batch, training=False)
        )
        return predictions


class TaskPredictor(FineTunedPredictor):
    """Predicts texts or text pairs with the fine-tuning task, as `FineTuningTask.result` says.

    This is the predictor of a task of your own, unless its row names another one.
    """

    def __call__(self, texts: Texts, pairs: str | Sequence[str] | None = None) -> Any:
        """Returns the result of each text, in input order; for a single string, its result alone.

        Args:
            texts: a text, a list of texts, or a list of pairs of texts.
            pairs: the second text of the pair, or one for each of `texts`.

        Raises:
            ValueError: an input is not a string.
        """
        sequences = self.sequences(texts, pairs)
        if not sequences:
            return []
        results = self._task.results(self.compute(TokenSequences.pack(sequences, {})))
        return results[0] if isinstance(texts, str) else results


class TextClassifier(TaskPredictor):
    """Classifies texts or text pairs; in regression, computes their scores.

        classify = albert_tf.load_predictor("lcqmc_model/")
        classify([("你多大了", "你几岁"), ("天气好", "天气不好")])

    A result is a dict of `label` and `probabilities` (label → probability), or of `score` in
    regression. A model with any number of labels returns `labels`, those above 0.5, in place of
    `label`. Labels of a model that transformers saved have the names that its `pipeline` returns,
    such as "LABEL_0" if it was trained without names.
    """

    def make_task(self, model_folder: ModelFolder, settings: Any) -> Classifier:
        """Returns the task, whose labels are "0", "1", … if they are unknown."""
        row = model_folder.classification_task(self.task)
        return Classifier(row, settings, self.model.config, self.tokenizer)


class TokenTagger(FineTunedPredictor):
    """Labels each token of texts, and extracts the spans that the labels mark.

        tag = albert_tf.load_predictor("ner_model/")
        tag("U.N. official Ekeus heads for Baghdad.")

    The tokens of a string are its words, where Chinese characters and punctuation around words are
    separate tokens. For a model that was trained with characters as tokens, they are its characters
    without spaces. A list of strings is used as the tokens of one text. A result is a dict of
    `tokens`, `labels`, `scores` (the probabilities of the labels) and `spans`. A span is a dict of
    `type`, `text` and, for strings, `begin` and `end` (character offsets).
    """

    def __init__(
        self, model_folder: ModelFolder, task: str, options: Options, model_files: Mapping[str, Any]
    ) -> None:
        super().__init__(model_folder, task, options, model_files)
        self.outputs = {**self.outputs, "scores": 0.0}

    def make_task(self, model_folder: ModelFolder, settings: Any) -> TokenClassifier:
        """Returns the task, with the labels that were recorded."""
        return TokenClassifier(model_folder.tags(), settings, self.model.config, self.tokenizer)

    @staticmethod
    def parse(row: Row) -> str | list[str]:
        """Returns the text or the tokens in a row."""
        return reading.parse_words(row)

    def step(self, batch: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        """Returns the label ids and their probabilities, [B, S] each."""
        logits = self.model(batch, training=False)
        scores = tf.reduce_max(tf.nn.softmax(logits), axis=-1)
        return {**self._task.predictions(logits), "scores": scores}

    def __call__(self, texts: str | Sequence[str | Sequence[str]]) -> Any:
        """Returns the result of each text, in input order; for a single string, its result alone.

        Args:
            texts: a text, or a list of texts or of lists of tokens.
        """
        rows = [texts] if isinstance(texts, str) else list(texts)
        if not rows:
            return []
        words = [
            cut(row, self._task.tags.units)
            if isinstance(row, str)
            else [(word, -1) for word in row]
            for row in rows
        ]
        sentences = [
            Sentence(number, tuple(word for word, _ in text_words), (None,) * len(text_words))
            for number, text_words in enumerate(words, 1)
        ]
        data = Examples("texts", "test", sentences)
        features = make_features(
            data, self.labels, self.tokenizer, self.max_seq_length, is_logged=False
        )
        outputs = self.compute(features)
        labels = self._task.predicted_labels(Split("test", data, features), outputs)
        scores = iter(as_json(features.at_tokens(outputs["scores"])))
        results = [
            {
                "tokens": [word for word, _ in text_words],
                "labels": list(names),
                "scores": [next(scores) for _ in names],
                "spans": self._spans(row, text_words, names),
            }
            for row, text_words, names in zip(rows, words, labels, strict=True)
        ]
        return results[0] if isinstance(texts, str) else results

    def _spans(
        self, text: str | Sequence[str], words: Sequence[tuple[str, int]], labels: Sequence[str]
    ) -> list[Result]:
        """Returns the spans that labels mark, for (word, character offset) pairs of a text."""
        spans = []
        for kind, first, end in find_spans(labels, self._task.tags.scheme):
            if isinstance(text, str):
                begin = words[first][1]
                stop = words[end - 1][1] + len(words[end - 1][0])
                place = {"text": text[begin:stop], "begin": begin, "end": stop}
            else:
                place = {"text": join_tokens(text[first:end], self._task.tags.units)}
            spans.append({"type": kind, **place})
        return spans


class ChoiceAnswerer(FineTunedPredictor):
    """Chooses the option that answers a question about a passage.

        choose = albert_tf.load_predictor("race_model/")
        choose("The river was wider.", "The river is _ now.", ["narrower", "colder"])

    Lists of passages, questions and options are answered by a list of results.
    The result is a dict of `prediction` (zero-based index), `answer` (the option) and
    `probabilities`.
    """

    @staticmethod
    def parse(row: Row) -> Question:
        """Returns the question in a row."""
        return reading.parse_choice(row)

    def predict(self, inputs: list[Any]) -> Sequence[Result]:
        """Returns the results of questions."""
        return self.choose(inputs)

    def __call__(
        self,
        passage: str | Sequence[str],
        question: str | Sequence[str],
        options: Sequence[str] | Sequence[Sequence[str]],
    ) -> Any:
        """Returns the result of each question, in input order; for a single one, its result alone.

        Args:
            passage: the text that the question is about; or a list of them.
            question: the question, in which "_" stands for the option; may be "". Or a list.
            options: two or more options; or a list of them for each question.

        Raises:
            ValueError: the lists have different lengths, or hold other values.
        """
        passages, questions = split_pairs(passage, question)
        rows: Sequence[Any] = [options] if isinstance(passage, str) else options
        if len(rows) != len(passages) or any(isinstance(row, str) for row in rows):
            raise ValueError(f"{len(passages)} passages: expected a list of options for each")
        results = self.choose(
            [
                Question("", text, asked, tuple(row), None)
                for text, asked, row in zip(passages, questions, rows, strict=True)
            ]
        )
        return results[0] if isinstance(passage, str) else results

    def choose(self, questions: Sequence[Question]) -> list[Result]:
        """Returns the result of each question, in input order."""
        if not questions:
            return []
        data = Examples("questions", "test", list(questions))
        length = self.max_seq_length
        max_qa_length = min(self._task.settings.max_qa_length, length - SPECIAL_TOKENS)
        sequences = option_sequences(data, self.tokenizer, length, max_qa_length)
        outputs = self.compute(TokenSequences.pack(sequences, {}, num_choices(questions)))
        return [
            {
                "prediction": int(row.argmax()),
                "answer": question.options[row.argmax()],
                "probabilities": as_json(row[: len(question.options)]),
            }
            for question, row in zip(questions, outputs["probabilities"], strict=True)
        ]


class SpanAnswerer(FineTunedPredictor):
    """Answers questions with spans of their contexts, which may exceed the sequence length.

        answer = albert_tf.load_predictor("squad_model/")
        answer("Who was Ekeus?", "Official Ekeus heads for Baghdad.")

    The result is a dict of the best `answer`, its `score` (probability among the answers found),
    its `begin` and `end` (character offsets in the context), and `answers`, a list of the best
    answers as such dicts. SQuAD 2.0 models add `null_odds`. If they exceed the threshold, or if a
    SQuAD 1.1 model finds no answer, `answer` is "", and `begin` and `end` are -1.
    """

    def __init__(
        self, model_folder: ModelFolder, task: str, options: Options, model_files: Mapping[str, Any]
    ) -> None:
        super().__init__(model_folder, task, options, model_files)
        self._threshold = self._task.threshold(model_folder.run)

    def make_task(self, model_folder: ModelFolder, settings: Any) -> QuestionAnswering:
        """Returns the task, with the head of SQuAD 2.0 if questions may be unanswerable."""
        is_answerable = self.task == tasks.ANSWERABLE_SPANS
        return QuestionAnswering(settings, self.model.config, self.tokenizer, is_answerable, {})

    @staticmethod
    def parse(row: Row) -> tuple[str, str]:
        """Returns the question and the context in a row."""
        return reading.parse_question(row)

    def predict(self, inputs: list[Any]) -> Sequence[Result]:
        """Returns the results of pairs (question, context)."""
        return self.answer(inputs)

    def __call__(
        self,
        questions: str | Sequence[str] | Sequence[Sequence[str]],
        contexts: str | Sequence[str] | None = None,
    ) -> Any:
        """Returns the result of each question, in input order; for a string, its result alone.

        Args:
            questions: a question, a list of questions, or a list of pairs (question, context).
            contexts: the context, or one for each of `questions`.

        Raises:
            ValueError: an input is not a string, or there is no context.
        """
        pairs = list(zip(*split_pairs(questions, contexts), strict=True))
        if contexts is None and not all(context for _, context in pairs):
            raise ValueError("expected a context for each question, got none")
        results = self.answer(pairs)
        return results[0] if isinstance(questions, str) else results

    def answer(self, questions: Sequence[tuple[str, str]]) -> list[Result]:
        """Returns the result of each pair (question, context), in input order."""
        if not questions:
            return []
        examples = tuple(
            SquadExample(str(number), question, context)
            for number, (question, context) in enumerate(questions)
        )
        data = SquadData("questions", "", examples, False, False, False)
        try:
            features = windows.make_features(
                examples, self.tokenizer, self._task.windows, False, shows_progress=False
            )
        except windows.NoFeaturesError:  # such as contexts that consist of accents
            return [_answer("", 0.0, -1) | {"answers": []} for _ in questions]
        answers = self._task.answer(Split("test", data, features), self.compute(features))
        results = []
        for name, text in answers.predictions(self._threshold).items():
            possible = [
                _answer(entry["text"], entry["probability"], begin)
                for entry, begin in zip(answers.nbest[name], answers.begins[name], strict=True)
                if begin >= 0
            ]
            is_answered = possible and text == answers.best[name]
            best = possible[0] if is_answered else _answer("", 0.0, -1)
            if answers.null_odds is not None:
                best = best | {"null_odds": answers.null_odds[name]}
            results.append(best | {"answers": possible[: self.options.top_k]})
        return results


def _answer(text: str, score: float, begin: int) -> Result:
    end = begin + len(text) if begin >= 0 else -1
    return {"answer": text, "score": score, "begin": begin, "end": end}


class Embedder(TextPredictor):
    """Computes embeddings of texts or text pairs.

        embed = albert_tf.load_predictor("albert_tiny_zh/", "embeddings", pooling="mean_last_4")
        embed(["你好", "再见"])

    The result is an array, float32 [H] for one text and [N, H] for N of them.
    """

    outputs: Mapping[str, float] = {"embedding": 0.0}

    def __init__(
        self, model_folder: ModelFolder, task: str, options: Options, model_files: Mapping[str, Any]
    ) -> None:
        if options.pooling == POOLED:
            model_folder.check_pooler(f"pooling={POOLED!r}")
        super().__init__(model_folder, task, options, model_files)

    def step(self, batch: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        """Returns the embeddings, float32 [B, H]."""
        pooling = self.options.pooling
        has_layers = pooling == MEAN_LAST_4
        outputs = self.model(dict(batch), training=False, output_hidden_states=has_layers)
        return {"embedding": pool(outputs, batch["input_mask"], [pooling])[pooling]}

    def __call__(
        self, texts: Texts, pairs: str | Sequence[str] | None = None
    ) -> NDArray[np.float32]:
        """Returns the embedding of each text, float32 [N, H]; for a single string, [H].

        Args:
            texts: a text, a list of texts, or a list of pairs of texts.
            pairs: the second text of the pair, or one for each of `texts`.
        """
        sequences = self.sequences(texts, pairs)
        if not sequences:
            return np.zeros((0, self.model.config.hidden_size), np.float32)
        rows = self.compute(TokenSequences.pack(sequences, {}))["embedding"]
        return rows[0] if isinstance(texts, str) else rows

    def predict(self, inputs: list[Any]) -> Sequence[Result]:
        """Returns the embeddings as lists of numbers."""
        return [{"embedding": as_json(row)} for row in self(inputs)]


def similarities(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the cosine similarities, float32 [N], of embeddings [N, H] or [H] with [N, H]."""
    sizes = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)  # [N]
    return np.sum(first * second, axis=-1) / np.maximum(sizes, np.finfo(np.float32).tiny)


class MaskFiller(TextPredictor):
    """Predicts the words that are masked by "[MASK]" in a text.

        fill_mask = albert_tf.load_predictor("albert_tiny_zh/", "fill_mask")
        fill_mask("北京是[MASK]国的首都")

    A result is a dict of `text`, in which the best words replace the masks, and `masks`. For each
    mask, `masks` lists the best words as dicts of `token` and `score` (probability). Special tokens
    and single spaces are excluded.
    """

    outputs: Mapping[str, float] = {"ids": 0, "scores": 0.0}

    def __init__(
        self, model_folder: ModelFolder, task: str, options: Options, model_files: Mapping[str, Any]
    ) -> None:
        super().__init__(model_folder, task, options, model_files)
        self._is_word = np.array(_is_word(self.tokenizer), np.float32)  # [V]

    @staticmethod
    def parse(row: Row) -> str:
        """Returns the text in a row."""
        text = reading.parse_text(row)
        if MASK not in text:
            raise BadRowError(f"no {MASK} in the text: put it in place of a word to predict")
        return text

    def step(self, batch: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        """Returns the token ids and probabilities of the best words, [B, P, K] each."""
        logits = self.model(batch, training=False)["masked_lm_logits"]  # [B, P, V or more]
        count = len(self._is_word)  # V; the embedding table may be larger
        scores = tf.nn.softmax(logits)[:, :, :count] * self._is_word
        best = tf.math.top_k(scores, min(self.options.top_k, count))
        return {"ids": best.indices, "scores": best.values}

    def __call__(self, texts: str | Sequence[str]) -> Any:
        """Returns the result of each text, in input order; for a single string, its result alone.

        Raises:
            ValueError: a text has no "[MASK]", or its masks do not fit into one sequence.
        """
        rows = split_pairs(texts)[0]
        if not rows:
            return []
        encoded = [self._encode(text) for text in rows]
        most = max(len(places) for _, places in encoded)
        positions = [places + [0] * (most - len(places)) for _, places in encoded]
        features = TokenSequences.pack(
            [(ids, len(ids)) for ids, _ in encoded],
            {"masked_lm_positions": np.array(positions, np.int32)},
        )
        outputs = self.compute(features)
        results = []
        for number, (text, (_, places)) in enumerate(zip(rows, encoded, strict=True)):
            ids, scores = (outputs[name][number, : len(places)] for name in ("ids", "scores"))
            results.append(self._result(text, ids, scores))
        return results[0] if isinstance(texts, str) else results

    def _encode(self, text: str) -> tuple[list[int], list[int]]:
        """Returns the token ids, including [CLS] and [SEP], and the positions of the masks."""
        ids, places = self.tokenizer.encode_masked(text)
        if not places:
            raise ValueError(f"no {MASK} in {text[:50]!r}: put it in place of a word to predict")
        room = self.max_seq_length - 2
        self.num_truncated += len(ids) > room
        # If the text is too long, keep a window with the masks in the middle.
        begin = max(min((places[0] + places[-1] + 1 - room) // 2, len(ids) - room), 0)
        if places[0] < begin or places[-1] >= begin + room:
            raise ValueError(
                f"the {MASK}s in {text[:50]!r} are {places[-1] - places[0]} tokens apart, which "
                f"does not fit into max_seq_length={self.max_seq_length}"
            )
        kept = [self.tokenizer.cls_id, *ids[begin : begin + room], self.tokenizer.sep_id]
        return kept, [place - begin + 1 for place in places]

    def _result(self, text: str, ids: NDArray[Any], scores: NDArray[Any]) -> Result:
        masks: list[list[Result]] = [
            [
                {"token": self._word(token_id), "score": as_json(score)}
                for token_id, score in zip(row, values, strict=True)
            ]
            for row, values in zip(ids, scores, strict=True)
        ]
        parts = text.split(MASK)
        words = [mask[0]["token"].removeprefix("##") for mask in masks]
        filled = "".join(part + word for part, word in zip(parts, [*words, ""], strict=True))
        return {"text": filled, "masks": masks}

    def _word(self, token_id: int) -> str:
        (piece,) = self.tokenizer.convert_ids_to_tokens([int(token_id)])
        return self.tokenizer.detokenize([piece])


def _is_word(tokenizer: Tokenizer) -> list[bool]:
    """Returns whether each piece is a word, not a special token or a lone space."""
    special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}
    special |= {tokenizer.pad_id, tokenizer.unk_id}
    return [
        number not in special and bool(tokenizer.detokenize([piece]))
        for number, piece in enumerate(tokenizer.pieces)
    ]
