"""The predictor: a callable that applies a trained model to raw text and returns Python values.

    >>> embed = albert_tf.load_predictor("albert_tiny/")
    >>> embed(["The river", "A boat"]).shape
    (2, 12)

`load_predictor` determines from the folder which task the model was trained for. The task says what
the arguments are, and what a result is. A predictor tokenizes texts as the fine-tuning programs do,
sorts them by length, and pads each batch to its longest sequence. It returns results in input
order, with the same numbers as the programs. Results can be serialized as JSON.

What computes a batch is in the subclasses: TensorFlow, or a runtime without it.
"""

from __future__ import annotations

import abc
import inspect
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.finetuning import registry
from albert_tf.finetuning.batching import BatchRunner, Features, Padding
from albert_tf.finetuning.task import AnyTask, Result
from albert_tf.inference.settings import PredictorSettings

BATCH_SIZE = 32  # if the folder does not record it


class Predictor(abc.ABC):
    """Applies a model to texts, as its task says.

    Calling it with texts returns the result of each of them, in input order; for a single text, its
    result alone. Programs pass the examples in rows of files to `predict`. Several threads may call
    a predictor at the same time.

    Args:
        source: the model.
        name: name of the task in the registry.
        task: what is asked of the model.
        options: the arguments of `load_predictor`.
        engine: "tensorflow", "openvino" or "onnx".

    Attributes:
        source, task, options, engine: the arguments.
        tokenizer: the tokenizer of the model.
        max_seq_length: maximum sequence length, in tokens.
    """

    def __init__(
        self,
        source: ModelSource,
        name: str,
        task: AnyTask,
        options: PredictorSettings,
        engine: str,
    ) -> None:
        self.source = source
        self.task = task
        self._name = name
        self._arguments = inspect.signature(task.parse_call)
        self.options = options
        self.engine = engine
        self.tokenizer = task.tokenizer
        self.max_seq_length = task.max_seq_length
        of = registry.get(name).settings_class
        names = ("predict_batch_size", "pad_to_multiple")
        self._recorded = source.run.record.values_for(of, names)
        self._batch_size: int = options.batch_size or self._recorded.get(names[0], BATCH_SIZE)
        self._making_runner = threading.Lock()
        self._runner: BatchRunner | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the model's outputs; () if they have none."""
        return self.task.labels

    @property
    def num_truncated(self) -> int:
        """Number of texts so far that were too long, and of which only a part was read."""
        return self.task.num_truncated

    def __call__(self, *inputs: Any, **named_inputs: Any) -> Any:
        """Returns the result of each input, in their order; for a single one, its result alone.

        Args:
            *inputs: the arguments of the task's `parse_call`: for most tasks, a text, a list of
                texts, or a list of pairs of texts.
            **named_inputs: likewise, by name, or by the names of columns in files: `question` and
                `context`; `text` and `text_b`; `passage`, `question` and `options`.

        Raises:
            ValueError: an input is not of the expected type.
            TypeError: the task has no such argument, or needs more.
        """
        if not inputs:
            names = [name for name in self.task.argument_names if name in named_inputs]
            if names == list(self.task.argument_names[: len(named_inputs)]):
                inputs, named_inputs = tuple(named_inputs[name] for name in names), {}
        try:
            self._arguments.bind(*inputs, **named_inputs)
        except TypeError:
            expected = ", ".join(self.task.argument_names)
            got = ", ".join([*map(repr, inputs), *named_inputs])
            raise TypeError(
                f"a predictor for {self._name} takes {expected}, got {got or 'nothing'}"[:300]
            ) from None
        examples, is_single = self.task.parse_call(*inputs, **named_inputs)
        results = self._results(examples)
        return results[0] if is_single else results

    def predict(self, examples: Sequence[object]) -> Sequence[Result]:
        """Returns the results of examples as JSON objects, in their order."""
        return self.task.as_objects(self._results(examples))

    def _results(self, examples: Sequence[object]) -> Any:
        features = self.task.features_of(examples) if examples else None
        if features is None:
            return self.task.unanswered(examples)
        runner = self._runner_for(features)
        return self.task.results(examples, features, runner.run(features, self._batch_size))

    def _runner_for(self, features: Features) -> BatchRunner:
        """Returns the runner, which the first call makes while those of other threads wait."""
        with self._making_runner:
            if self._runner is None:
                self._runner = self._make_runner(features)
            return self._runner

    @abc.abstractmethod
    def _make_runner(self, features: Features) -> BatchRunner:
        """Returns what computes batches of such features."""

    def _padding(self, multiple: int) -> Padding:
        """Returns how batches are padded: to a multiple of this, unless the task needs more."""
        return self.task.padding(Padding(self.max_seq_length, multiple))

    def __reduce__(self) -> NoReturn:
        """Refuses to be pickled: what a predictor has compiled belongs to its process.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "a predictor cannot be pickled: its compiled model belongs to this process. Call "
            "albert_tf.load_predictor with the same folder in each process"
        )
