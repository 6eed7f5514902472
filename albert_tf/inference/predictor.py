"""The predictor: a callable that applies a trained model to raw text and returns Python values.

    >>> embed = albert_tf.load_predictor("albert_tiny/")
    >>> embed(["The river", "A boat"]).shape
    (2, 12)

`load_predictor` determines from the folder which task the model was trained for. The task says what
the arguments are, and what a result is. A predictor tokenizes texts as the fine-tuning programs do,
sorts them by length, and pads each batch to its longest sequence. It returns results in input
order, with the same numbers as the programs. Results can be serialized as JSON.

What the model computes is up to an `Engine`: TensorFlow, or a runtime without it.
"""

from __future__ import annotations

import dataclasses
import inspect
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from albert_tf.finetuning.batching import BatchRunner, Features, Padding, Step
from albert_tf.finetuning.task import AnyTask, Result

if TYPE_CHECKING:  # what needs TensorFlow
    import tf_keras

BATCH_SIZE = 32  # if the folder does not record it
# Rows of a call from which on it may pay to compile. Every full block of a file has more.
MANY_ROWS = 512


@dataclasses.dataclass(frozen=True)
class Computation:
    """How batches are computed.

    Attributes:
        step: computes the outputs of a batch.
        multiple: lengths of batches are to be a multiple of this number.
    """

    step: Step
    multiple: int = 1


class Engine(Protocol):
    """What computes the outputs of a model for batches."""

    @property
    def name(self) -> str:
        """Name of the engine: "tensorflow", "openvino" or "onnx"."""

    @property
    def model(self) -> tf_keras.layers.Layer | None:
        """The model of TensorFlow; None for an exported file, which has none."""

    def start(self, task: AnyTask, features: Features, is_many: bool) -> Computation:
        """Returns what computes the outputs of a task.

        Args:
            task: the task.
            features: features of the kind that batches are made of.
            is_many: whether it is for calls of MANY_ROWS rows and more, or for smaller ones.
        """


class Predictor:
    """Applies a model to texts, as its task says.

    Calling it with texts returns the result of each of them, in input order; for a single text, its
    result alone. Programs pass the examples in rows of files to `predict`. Several threads may call
    a predictor at the same time.

    Args:
        task: the task, of the model.
        engine: what computes the model.
        batch_size: number of sequences per batch.

    Attributes:
        task: the task.
        tokenizer: the tokenizer of the model.
        max_seq_length: maximum sequence length, in tokens.
    """

    def __init__(self, task: AnyTask, engine: Engine, batch_size: int = BATCH_SIZE) -> None:
        self.task = task
        self.tokenizer = task.tokenizer
        self.max_seq_length = task.max_seq_length
        self._engine = engine
        self._batch_size = batch_size
        self._arguments = inspect.signature(task.parse_call)
        self._making_runners = threading.Lock()
        self._runners: dict[bool, BatchRunner] = {}  # whether rows are many → runner

    @property
    def engine(self) -> str:
        """What computes the model: "tensorflow", "openvino" or "onnx".

        If OpenVINO computes only calls of many rows, it is "openvino" from the first of them on.
        """
        return self._engine.name

    @property
    def model(self) -> tf_keras.layers.Layer | None:
        """The model of TensorFlow; None for a file that was exported for another runtime."""
        return self._engine.model

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
                f"a predictor for {self.task.name} takes {expected}, got {got or 'nothing'}"[:300]
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
        """Returns the runner for features; the first call makes it while those of others wait.

        Which one depends on the call alone: texts get the same answers first and later.
        """
        is_many = len(features) >= MANY_ROWS
        if is_many not in self._runners:
            with self._making_runners:
                if is_many not in self._runners:
                    started = self._engine.start(self.task, features, is_many)
                    self._runners[is_many] = self._make_runner(started)
        return self._runners[is_many]

    def _make_runner(self, computation: Computation) -> BatchRunner:
        padding = self.task.padding(Padding(self.max_seq_length, computation.multiple))
        return BatchRunner(computation.step, padding, self.task.outputs, shows_progress=False)

    def __reduce__(self) -> NoReturn:
        """Refuses to be pickled: what a predictor has compiled belongs to its process.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "a predictor cannot be pickled: its compiled model belongs to this process. Call "
            "albert_tf.load_predictor with the same folder in each process"
        )
