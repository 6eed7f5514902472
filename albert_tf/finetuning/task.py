"""What a task is: the input that it takes, what a model computes for it, and what the results are.

A `Task` has all that a predictor needs, whatever computes the model. A `FineTuningTask` is also
trained and evaluated: it reads its data, makes features of them, and has the loss, the metrics and
the files of results; the engine adds early stopping, sweeps, evaluation of all checkpoints and
export.

A task is imported without TensorFlow, because a model may have been exported for another runtime.
The methods that compute with TensorFlow import it: `compute`, `build_model`, `losses`,
`predictions`, `served_outputs` and `make_export`.

Shapes: B batch size, N examples, S sequence length.
"""

from __future__ import annotations

import abc
import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar, cast

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import model_folder, run_record
from albert_tf.checkpoints.evaluations import Evaluation, best_of
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning import result_files
from albert_tf.finetuning.batching import Outputs, Padding
from albert_tf.finetuning.columns import parse_pair
from albert_tf.finetuning.examples import FeaturesType
from albert_tf.finetuning.rows import Row
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.splits import DataType, Split
from albert_tf.finetuning.token_sequences import encode_pairs, parse_pairs
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import Tokenizer
from albert_tf.tables import Table

if TYPE_CHECKING:  # what needs TensorFlow
    import tensorflow as tf
    import tf_keras
    from typing_extensions import Self

    from albert_tf.export.signatures import Export
    from albert_tf.model.modeling import AlbertModel
    from albert_tf.training.task import Batch, ModelOutputs


Result: TypeAlias = files.JsonObject
SettingsType = TypeVar("SettingsType", bound=FineTuningSettings)

TOP_K = 5  # answers, and words per mask, by default
_counting = threading.Lock()


class Task(abc.ABC, Generic[FeaturesType]):
    """What a predictor asks of a task: how input becomes features, and outputs become results.

    The input is a text or a pair of texts; tasks with other input override `parse_call`,
    `parse_row` and `features_of`. A predictor may be called from several threads at the same time:
    no method keeps what belongs to one call in an attribute.

    Attributes:
        settings_class: the class of the settings that a model is trained with.
        name: name of the task in `albert_tf.finetuning.registry`, which a run records; "" for the
            name with which `finetuning.run_task` was called.
        names: the names of which the data decide; () if there is one.
        tokenizer: the tokenizer of the model.
        max_seq_length: maximum sequence length, in tokens.
        labels: names of the model's outputs, in the order of their ids; () if they have none. They
            are recorded with the checkpoints, and compared when these are used.
        outputs: name of each output that a result is made of → padding value for outputs whose
            width differs between batches, as with questions that have different numbers of options.
        top_k: maximum number of answers, and of words per mask, in a result.
        num_truncated: number of texts so far that were longer, and of which only a part was read.
        argument_names: names of the arguments of `parse_call` in rows of files, in their order; a
            call may use them too.
        flags: the flags of `albert predict` that an input can be given by, without "--"; () if any
            can.
        demos: rows to try the task with on the web page, if the run has kept none; all have the
            same columns.
        marks_spans: whether the web page shows a text with marked spans, not a number per label.
        table_columns: names of the columns of `table`.
    """

    settings_class: ClassVar[type[FineTuningSettings]] = FineTuningSettings
    name: str = ""
    names: ClassVar[tuple[str, ...]] = ()
    tokenizer: Tokenizer
    max_seq_length: int
    labels: tuple[str, ...] = ()
    outputs: Mapping[str, float]
    top_k: int = TOP_K
    num_truncated: int = 0
    argument_names: ClassVar[Sequence[str]] = ("text", "text_b")
    flags: ClassVar[tuple[str, ...]] = ()
    demos: ClassVar[Sequence[Mapping[str, str]]] = (
        {"text": "What a lovely day!", "text_b": ""},
        {"text": "你多大了", "text_b": "你几岁"},
    )
    marks_spans: ClassVar[bool] = False
    table_columns: ClassVar[Sequence[str]] = ("label", "probability")

    @classmethod
    @abc.abstractmethod
    def of_trained(cls, name: str, settings: Any, source: ModelSource, num_outputs: int) -> Self:
        """Returns the task to predict with a trained model.

        Args:
            name: name of the task in the registry.
            settings: those of the training, an instance of `settings_class`; for a task that models
                are not fine-tuned for, the arguments of the predictor.
            source: the model.
            num_outputs: number of outputs of its head; 0 if there is none.

        Raises:
            ValueError: what is recorded of the task is damaged, or does not fit the model.
        """

    def padding(self, padding: Padding) -> Padding:
        """Returns how batches are padded, given the padding that the settings ask for."""
        return padding

    # From input to features.

    def parse_call(
        self,
        texts: str | Sequence[str] | Sequence[Sequence[str]],
        pairs: str | Sequence[str] | None = None,
    ) -> tuple[list[Any], bool]:
        """Returns the examples in the arguments of a call, and whether it is for a single one.

        A task with other input has other arguments here.

        Args:
            texts: a text, a list of texts, or a list of pairs of texts.
            pairs: the second text of the pair, or one for each of `texts`.

        Raises:
            ValueError: an input is not of the expected type.
        """
        return parse_pairs(texts, pairs)

    @staticmethod
    def parse_row(row: Row) -> Any:
        """Returns the example in a row of a file or request: by default (text, text or "").

        Raises:
            BadRowError: there is none.
        """
        return parse_pair(row)

    def features_of(self, examples: Sequence[Any]) -> FeaturesType | None:
        """Returns the features of one or more examples; None if they have none."""
        features, num_truncated = encode_pairs(examples, self.tokenizer, self.max_seq_length)
        self.count_truncated(num_truncated)
        return cast("FeaturesType", features)

    def count_truncated(self, number: int) -> None:
        """Adds to `num_truncated`, also if several threads do so at the same time."""
        with _counting:
            self.num_truncated += number

    # From features to results.

    @abc.abstractmethod
    def compute(
        self, model: tf_keras.layers.Layer, batch: Mapping[str, tf.Tensor]
    ) -> Mapping[str, tf.Tensor]:
        """Returns the outputs of a model of TensorFlow for a batch, name → [B, …]."""

    def outputs_of(self, exported: Outputs) -> Outputs:
        """Returns the `outputs` of a batch, name → [B, …], given those of an exported model.

        By default, they have the same names.
        """
        return {name: exported[name] for name in self.outputs}

    @abc.abstractmethod
    def results(self, examples: Sequence[Any], features: FeaturesType, outputs: Outputs) -> Any:
        """Returns the result of each of N examples.

        Args:
            examples: the examples.
            features: their features.
            outputs: name → [N, …], or one row for each of the features if these are more.
        """

    def unanswered(self, examples: Sequence[Any]) -> Any:
        """Returns the results of examples without features, or of none: by default, []."""
        return []

    def as_objects(self, results: Any) -> Sequence[Result]:
        """Returns results as JSON objects: by default, as they are."""
        return cast("Sequence[Result]", results)

    # On the web page.

    @staticmethod
    def show(row: files.JsonObject, result: Result) -> files.Json:
        """Returns what the web page shows of a result, as one of Gradio's components takes it.

        This is label → probability, a number, or a text. With `marks_spans`, it is a text and its
        spans; see `mark`.
        """
        return result.get("probabilities", result.get("score"))

    @staticmethod
    def table(row: files.JsonObject, result: Result) -> list[Sequence[files.Json]]:
        """Returns what else the answer may be, the most probable first; the last cell is a number.

        The web page shows it as a table, unless it is empty, or no more than the bars of `show`.
        """
        return ranked(result.get("probabilities") or {})


class FineTuningTask(Task[FeaturesType], Generic[SettingsType, DataType, FeaturesType]):
    """A task that models are fine-tuned for. The methods that are not abstract suit most tasks.

    For type checkers, it has the types of its settings, of the examples of a split and of their
    features, as in `FineTuningTask[Settings, list[str], TokenSequences]`.

    Args:
        settings: the settings of the program, `FineTuningSettings` and its own.
        config: the model's config.
        tokenizer: the tokenizer.
        data: name → examples of each split that were read before; {} if `read` reads them.

    Attributes, besides those of `Task`:
        settings, config, data: the arguments.
        selection_metric: name of the metric, among those of `measure`, that selects the best
            checkpoint; larger is better.
        measured_outputs: like `outputs`, those that only `measure` needs.
        measured_with: names of settings that change the metrics of a checkpoint, besides those that
            affect `settings.MODEL`: how outputs are converted to answers, and answers are measured.
        percentages: endings of the names of metrics in percent, for messages.
        names_copies: whether `eval_results.txt` names the files that are copied.
    """

    selection_metric: str
    measured_outputs: Mapping[str, float] = MappingProxyType({})
    measured_with: ClassVar[tuple[str, ...]] = ()
    percentages: ClassVar[tuple[str, ...]] = ()
    names_copies: ClassVar[bool] = True

    def __init__(
        self,
        settings: SettingsType,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        data: Mapping[str, DataType] = MappingProxyType({}),
    ) -> None:
        self.settings: SettingsType = settings
        self.config = config
        self.tokenizer = tokenizer
        self.max_seq_length = settings.max_seq_length
        self.data = data

    @classmethod
    def open(
        cls,
        settings: SettingsType,
        source: ModelSource,
        given: Mapping[str, Table] | None = None,
    ) -> Self:
        """Returns the task of a run, with its data if they are read before TensorFlow is imported.

        Args:
            settings: the settings of the program.
            source: the model that the run starts with; the record of `source.trained`, the folder
                it was trained in, says what is known of its task.
            given: split → rows of Python to read instead of files.

        Raises:
            ValueError, OSError: the data is missing or invalid; or by default, rows are given.
        """
        if given is not None:
            raise ValueError(f"{cls.__name__} reads its data itself: it takes no rows of Python")
        return cls(settings, source.config, source.unchecked_tokenizer)

    @classmethod
    def of_trained(
        cls, name: str, settings: SettingsType, source: ModelSource, num_outputs: int
    ) -> Self:
        """Returns the task that a model was trained for; see `Task`."""
        return cls(settings, source.config, source.tokenizer)

    # Data.

    def read(self, split: str) -> DataType:
        """Returns the examples of a split, "train", "dev" or "test": by default, those of `data`.

        Raises:
            ValueError, OSError: the data is missing or invalid.
        """
        return self.data[split]

    def checksum(self, data: DataType) -> str:
        """Returns the SHA-256 of the examples that `read` returned, in hexadecimal.

        The examples have a method `checksum`, or are lists of values with the same `repr` in every
        process.

        Raises:
            TypeError: they are something else.
        """
        if isinstance(data, list):
            return hashlib.sha256(repr(data).encode("utf-8")).hexdigest()
        known = getattr(data, "checksum", None)
        if callable(known):
            return str(known())
        raise TypeError(
            f"{type(self).__name__}.read returns {type(data).__name__}: expected a list, or an "
            "object with a method `checksum`"
        )

    @abc.abstractmethod
    def make_features(self, data: DataType, split: str) -> FeaturesType:
        """Returns the features of the examples that `read` returned for a split.

        Models of this package ignore a feature with the name `label_ids`, of any shape and type.
        """

    def as_row(self, example: Any) -> files.JsonObject:
        """Returns an example, without its label, as a row of a file that `albert predict` reads.

        The page of `--web` shows a few of the training data. By default {}, which shows none.
        """
        return {}

    def count_examples(self, split: Split[DataType, FeaturesType]) -> int:
        """Returns the number of examples in an epoch: by default, that of the features."""
        return len(split.features)

    # The model, and its training.

    @abc.abstractmethod
    def build_model(self) -> AlbertModel:
        """Returns the model with random weights, typically one of `albert_tf.model.heads`."""

    @abc.abstractmethod
    def losses(self, outputs: ModelOutputs, batch: Batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the loss and the training metrics of each example.

        Args:
            outputs: the model's outputs.
            batch: the features of the batch.

        Returns:
            Losses, float32 [B], and metric name → values [B], whose means are logged. All have
            shape [B, S] if `sample_weights` has.
        """

    def sample_weights(self, batch: Batch) -> tf.Tensor:
        """Returns the weight of each element of `losses` in the mean; float32 [B], all 1."""
        import tensorflow as tf

        return tf.ones(tf.shape(batch["input_ids"])[:1])

    # Predictions and their metrics.

    def predictions(self, outputs: ModelOutputs) -> Mapping[str, tf.Tensor]:
        """Converts the model's outputs to the outputs to collect, name → [B, …]."""
        return cast("Mapping[str, tf.Tensor]", outputs)  # a single tensor has no name: override

    def compute(
        self, model: tf_keras.layers.Layer, batch: Mapping[str, tf.Tensor]
    ) -> Mapping[str, tf.Tensor]:
        """Returns the `predictions` of a model for a batch, name → [B, …]."""
        return self.predictions(model(dict(batch), training=False))

    @abc.abstractmethod
    def measure(
        self, split: Split[DataType, FeaturesType], outputs: Outputs, batch_size: int
    ) -> dict[str, float]:
        """Computes the metrics of a split with known labels.

        Args:
            split: N examples.
            outputs: name → [N, …], the `predictions` in the order of the examples.
            batch_size: batch size of the evaluation, for metrics that are means over batches.

        Returns:
            Metric name → value.
        """

    def result(self, outputs: Outputs) -> Result:
        """Returns the prediction for an example as a JSON object, which may contain NumPy values.

        Args:
            outputs: name → [...], the `predictions` for the example. By default, all of them are
                the result.
        """
        return dict(outputs)

    def results(
        self, examples: Sequence[Any], features: FeaturesType, outputs: Outputs
    ) -> list[Result]:
        """Returns the `result` of each of N examples; see `Task`."""
        rows = (dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True))
        return [as_json(self.result(row)) for row in rows]

    # What is recorded, and the files of results.

    def details(self) -> files.JsonObject:
        """Returns what is recorded of the task besides its name and labels."""
        return {}

    def best_of(self, evaluations: Sequence[Evaluation]) -> Evaluation | None:
        """Returns the best of some evaluations, which are sorted by step; None if there is none."""
        return best_of(evaluations, self.selection_metric, self.settings.official_order)

    def write_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> None:
        """Writes `eval_results.txt` after each evaluation; see `result_files.write_evaluations`.

        Args:
            folder: folder of the run.
            evaluations: evaluations of all checkpoints so far, sorted by step.
        """
        result_files.write_evaluations(
            folder, evaluations, self.selection_metric, self.best_of, self.names_copies
        )

    def describe_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> str:
        """Returns the text to print when all checkpoints of a folder have been evaluated.

        These are the metrics of the best checkpoint, or of the last one if there is no best.
        """
        best = self.best_of(evaluations) or evaluations[-1]
        return f"best checkpoint of {folder.path}\n{result_files.format_evaluation(best)}"

    def write_dev_predictions(
        self,
        folder: RunFolder,
        split: Split[DataType, FeaturesType],
        predict: Callable[[], Outputs],
    ) -> None:
        """Writes predictions for the dev split with the best checkpoint. Does nothing by default.

        Args:
            folder: folder of the run.
            split: the dev split.
            predict: returns the outputs of the best checkpoint for this split.
        """
        return

    def write_predictions(
        self,
        folder: RunFolder,
        split: Split[DataType, FeaturesType],
        outputs: Outputs,
        step: int,
    ) -> str:
        """Writes the best checkpoint's predictions for a split, and metrics if labels are known.

        By default, each line of `<split>_predictions.jsonl` is the task's `result` of an example.

        Args:
            folder: folder of the run.
            split: "test", or another split that the task's `read` supports.
            outputs: the outputs of the best checkpoint.
            step: the step of the best checkpoint.

        Returns:
            The text to print.
        """
        path = folder.file(f"{split.name}_predictions.jsonl")
        examples = cast("Sequence[Any]", split.data)
        with files.write_atomically(path) as stream:
            for result in self.results(examples, split.features, outputs):
                stream.write(json.dumps(result, ensure_ascii=False) + "\n")
        logging.info("Predictions: %s", path)
        return ""

    def write_test_results(
        self,
        folder: RunFolder,
        split: Split[DataType, FeaturesType],
        outputs: Outputs,
        step: int,
    ) -> str:
        """Writes `predict_results.txt` for a split with known labels, and returns its text.

        Args:
            folder: folder of the run.
            split: the split.
            outputs: the outputs of the best checkpoint.
            step: the step of the best checkpoint.
        """
        measured = self.measure(split, outputs, self.settings.predict_batch_size)
        return result_files.write_test_results(folder, measured, step, self.selection_metric)

    # What is exported.

    def served_outputs(self, outputs: ModelOutputs) -> Mapping[str, tf.Tensor]:
        """Converts the model's outputs to those of the exported model: by default `predictions`."""
        return self.predictions(outputs)

    @property
    def label_files(self) -> dict[str, bytes]:
        """Name → content of `labels.txt`, for the folder of an export; {} without labels."""
        lines = "".join(f"{label}\n" for label in self.labels)
        return {model_folder.LABELS_FILE: lines.encode()} if lines else {}

    def make_export(
        self, model: tf_keras.layers.Layer, max_seq_length: int, folder: RunFolder
    ) -> Export:
        """Returns what is exported: by default, `served_outputs` for inputs of any length.

        Args:
            model: a model of the task's `build_model`, in float32, with its weights loaded.
            max_seq_length: sequence length of serialized examples.
            folder: folder with the record of the run.
        """
        from albert_tf.export.signatures import Export, token_inputs, token_signatures

        def serve(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return dict(self.served_outputs(model(batch, training=False)))

        return Export(token_signatures(token_inputs(max_seq_length), serve), self.label_files)


# Of any settings, examples and features.
AnyTask: TypeAlias = Task[Any]
AnyFineTuningTask: TypeAlias = FineTuningTask[Any, Any, Any]


def check_labels(labels: Sequence[str], num_outputs: int, source: ModelSource) -> None:
    """Raises ValueError unless a model has as many outputs as there are labels."""
    if len(labels) != num_outputs:
        raise ValueError(
            f"{source.run.path}: {run_record.FILE} or config.json lists {len(labels)} labels, "
            f"and the model has {num_outputs} outputs: they do not belong together"
        )


def ranked(numbers: Mapping[str, float]) -> list[Sequence[files.Json]]:
    """Returns pairs of a name and its number, in descending order of the numbers."""
    return sorted(numbers.items(), key=lambda pair: -pair[1])


def mark(text: str, spans: Sequence[Result]) -> files.JsonObject:
    """Returns a text with its spans, as `gradio.HighlightedText` expects them.

    Args:
        text: the text.
        spans: `type`, `begin` and `end` of each span; `begin` is negative if there is none.
    """
    keys = {"entity": "type", "start": "begin", "end": "end"}
    found = [span for span in spans if span["begin"] >= 0]
    return {"text": text, "entities": [{k: span[v] for k, v in keys.items()} for span in found]}


def as_json(value: object) -> files.Json:
    """Returns a value that may contain NumPy arrays and numbers as one that JSON can express.

    A float has the fewest digits that round to the same float of its type.
    """
    if isinstance(value, Mapping):
        return {name: as_json(part) for name, part in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [as_json(part) for part in value]
    if isinstance(value, np.floating):
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else value
