"""What a run asks of a task: pre-training, and every task that a model is fine-tuned for.

A training step needs a `LossTask`, the evaluation of checkpoints a `MeasuredTask`, and a run a
`TrainedTask`, which is both, and has the data to train on.

Shapes: B batch size.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Generic, Protocol, TypeAlias, TypeVar

import tensorflow as tf

from albert_tf.checkpoints.evaluations import Evaluation
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.model.modeling import AlbertModel
from albert_tf.model.schedules import WarmUpPolynomialDecay
from albert_tf.training.settings import RunSettings

Batch: TypeAlias = dict[str, tf.Tensor]
ModelOutputs: TypeAlias = tf.Tensor | Mapping[str, tf.Tensor]
Sums: TypeAlias = dict[str, tuple[tf.Tensor, tf.Tensor]]
Means: TypeAlias = Mapping[str, float]

SettingsT = TypeVar("SettingsT", bound=RunSettings)

# Names that a line of `metrics.jsonl` has besides the metrics of the task; no task or hook may give
# them to its own.
RESERVED = frozenset(
    (
        *("step", "loss", "gradient_norm", "learning_rate", "skipped_steps"),
        *("examples_per_second", "tokens_per_second"),
    )
)
BATCHES_AHEAD = 2  # in `prefetch`


class LossTask(Protocol):
    """A task that computes a loss and metrics from the outputs of a model.

    Attributes:
        derived: name of a metric → function of the means of the others that computes it. It is
            called for training and the evaluation of pre-training, such as `{"perplexity": lambda
            means: math.exp(means["masked_lm_loss"])}`; fine-tuning evaluates with `measure`.
    """

    derived: ClassVar[Mapping[str, Callable[[Means], float]]] = {}

    @abc.abstractmethod
    def loss_weights(self, batch: Batch) -> tf.Tensor:
        """Returns the weight that each term of the loss is divided by, float32 [terms]."""

    @abc.abstractmethod
    def loss(
        self, outputs: ModelOutputs, batch: Batch, weights: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the loss of a batch, and its metrics as name → (weighted sum, weight).

        If the batch is part of a larger one, `weights` are the `loss_weights` of the larger batch.
        """


class MeasuredTask(Protocol):
    """A task that measures the checkpoints of a run, and writes the results.

    Attributes:
        selection_metric: name of the metric, among those of `compute_metrics`, that selects the
            best checkpoint; larger is better.
        percentages: endings of the names of metrics in percent, for messages.
        official_order: whether the initial weights are evaluated too, and the best checkpoint is
            chosen as in Google's programs; see `best_of`.
    """

    selection_metric: str
    percentages: tuple[str, ...] = ()
    official_order: bool = False

    @abc.abstractmethod
    def build_model(self) -> AlbertModel:
        """Returns the model with random weights."""

    @abc.abstractmethod
    def measured_on(self) -> str:
        """Returns a `digest` of everything but the checkpoint that affects the metrics."""

    @abc.abstractmethod
    def compute_metrics(self, model: AlbertModel, checkpoint: str) -> dict[str, float]:
        """Returns metric → value on the evaluation data.

        Args:
            model: a model of `build_model`, with the weights of a checkpoint.
            checkpoint: digest of the checkpoint.
        """

    @abc.abstractmethod
    def write_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> object:
        """Writes `eval_results.txt` after each evaluation.

        Args:
            folder: folder of the run.
            evaluations: evaluations of all checkpoints so far, sorted by step.
        """


class TrainedTask(LossTask, MeasuredTask, Generic[SettingsT]):
    """Interface between a task and the run that trains and evaluates it, with these settings.

    Attributes:
        freezes_encoder: whether only the weights of the head are trained.
        init_from_group0: whether all groups start with the weights of group 0; see
            `load_checkpoint`.
    """

    freezes_encoder: bool = False
    init_from_group0: bool = False

    @abc.abstractmethod
    def count_examples(self) -> int:
        """Returns the number of training examples in an epoch."""

    @abc.abstractmethod
    def schedule(self, settings: SettingsT) -> WarmUpPolynomialDecay:
        """Returns the learning rate schedule of a run with these settings."""

    @abc.abstractmethod
    def batches(self, settings: SettingsT, step: int, rows: slice) -> Iterable[Batch]:
        """Returns the training batches from a step on.

        Args:
            settings: settings of the run.
            step: number of steps that have been taken.
            rows: the rows of each global batch that this process trains on.
        """

    def batch_signature(self) -> dict[str, tf.TensorSpec] | None:
        """Returns name → TensorSpec of a batch; None if all have the same shape."""
        return None

    def keep_files(self, folder: RunFolder) -> None:
        """Copies what the trained model needs, such as its vocabulary, to the folder of a run."""
        return


def add_derived(task: LossTask, means: dict[str, float]) -> dict[str, float]:
    """Returns means with the metrics that a task derives from them."""
    return means | {name: float(derive(means)) for name, derive in task.derived.items()}


def check_names(names: Iterable[str], what: str) -> None:
    """Raises ValueError if one of the names of metrics is reserved.

    Args:
        names: the names.
        what: what has them, for the message.
    """
    if taken := RESERVED.intersection(names):
        raise ValueError(
            f"{what} {min(taken)!r} has the name of a metric of every run: give it another one"
        )


def prefetch(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset with batches prepared in advance, and without autotuning.

    Deleting an iterator waits for its autotuning thread, which sleeps for up to a minute. In
    TensorFlow 2.20, the thread often misses the signal to stop: it is woken up before the iterator
    is marked as cancelled, and goes back to sleep. One run in four took 3 to 38 s longer to end.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(BATCHES_AHEAD).with_options(options)
