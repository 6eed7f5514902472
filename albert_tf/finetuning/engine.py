"""The engine of fine-tuning: what a run trains, and evaluates on the dev split.

`FineTuning` is a task with its data and devices. It makes batches, computes the loss of a batch and
the outputs of a model for whole splits, and keeps those of the best checkpoint.

Shapes: B batch size, N examples.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints import model_folder, record_comparison
from albert_tf.checkpoints.evaluations import Evaluation, digest_of_data
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning import batching
from albert_tf.finetuning.batching import (
    BatchRunner,
    Features,
    Outputs,
    Padding,
    Step,
    TrainingOrder,
    training_batches,
)
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.splits import DEV, TRAIN, AnySplit
from albert_tf.finetuning.task import AnyFineTuningTask
from albert_tf.model import dispatch
from albert_tf.model.modeling import AlbertModel
from albert_tf.model.schedules import WarmUpPolynomialDecay
from albert_tf.training import replicas
from albert_tf.training.task import Batch, ModelOutputs, Sums, TrainedTask, prefetch

GPU_MULTIPLE = 8  # for which tensor cores are fastest
MAX_LENGTHS = 64  # of batches on CPUs, by default

Compute: TypeAlias = Callable[[Batch], Mapping[str, tf.Tensor]]  # batch → outputs
SortedSignature: TypeAlias = tuple[tuple[str, tf.TensorSpec], ...]


class FineTuning(TrainedTask[FineTuningSettings]):
    """A fine-tuning task that can be trained and evaluated.

    Args:
        task: the task.
        splits: name → examples and their features.
        strategy: the distribution strategy, whose devices decide how batches are padded.

    Attributes:
        task, splits: the arguments.
    """

    def __init__(
        self,
        task: AnyFineTuningTask,
        splits: Mapping[str, AnySplit],
        strategy: tf.distribute.Strategy,
    ) -> None:
        settings = task.settings
        self.task = task
        self.splits = splits
        self.selection_metric = task.selection_metric
        self.percentages = task.percentages
        self.official_order = settings.official_order
        self.freezes_encoder = settings.freeze_encoder
        others = [split for name, split in splits.items() if name != TRAIN]
        counts = [-(-len(split.features) // self._batch_size(split)) for split in others]
        self._padding, self._eval_padding = (
            task.padding(
                Padding(settings.max_seq_length, padding_multiple(settings, strategy, num_batches))
            )
            for num_batches in (None, max(counts, default=0))
        )  # of training, and of all else
        self._outputs = {**task.measured_outputs, **task.outputs}  # name → padding value
        self._model: AlbertModel | None = None  # the one that the runners belong to
        self._runners: dict[SortedSignature, BatchRunner] = {}
        # Digest of a checkpoint → its selection metric, and its outputs on the dev split.
        self._dev_outputs: dict[str, tuple[float, Outputs]] = {}

    def build_model(self) -> AlbertModel:
        """Returns the model with random weights."""
        return self.task.build_model()

    # Training.

    def loss_weights(self, batch: Batch) -> tf.Tensor:
        """Returns the sum of a batch's sample weights, which divides its loss; float32 [1]."""
        return tf.reduce_sum(self.task.sample_weights(batch))[None]

    def loss(
        self, outputs: ModelOutputs, batch: Batch, weights: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the mean loss of a batch, and the weighted sums of its metrics.

        Args:
            outputs: the model's outputs.
            batch: the features of the batch.
            weights: `loss_weights` of the global batch, if `batch` is a micro-batch of it (gradient
                accumulation).

        Returns:
            The loss, a float32 scalar, and metric name → (weighted sum, weight), float32 scalars.
        """
        losses, logged = self.task.losses(outputs, batch)
        counts = self.task.sample_weights(batch)
        count = tf.reduce_sum(counts)
        total = count if weights is None else weights[0]
        sums = {
            name: (tf.reduce_sum(tf.cast(values, tf.float32) * counts), count)
            for name, values in logged.items()
        }
        return tf.reduce_sum(losses * counts) / total, sums

    def count_examples(self) -> int:
        """Returns the number of training examples in an epoch; each may have several features."""
        return self.task.count_examples(self.splits[TRAIN])

    def schedule(self, settings: FineTuningSettings) -> WarmUpPolynomialDecay:
        """Returns the learning rate schedule of a run."""
        steps = training_steps(settings, self.count_examples())
        return WarmUpPolynomialDecay(settings.single_learning_rate, *steps)

    def batches(self, settings: FineTuningSettings, step: int, rows: slice) -> tf.data.Dataset:
        """Returns the training batches from a step on."""
        features = self.splits[TRAIN].features
        return training_dataset(features, training_order(settings), self._padding, step, rows)

    def batch_signature(self) -> dict[str, tf.TensorSpec]:
        """Returns name → TensorSpec of a batch, with all dimensions unknown."""
        return batch_signature(self.splits[TRAIN].features)

    def keep_files(self, folder: RunFolder) -> None:
        """Copies the vocabulary to the folder of a run."""
        settings = self.task.settings
        model_folder.keep_vocabulary(
            settings.vocabulary_file, bool(settings.spm_model_file), folder.path
        )

    # Evaluation on the dev split.

    def measured_on(self) -> str:
        """Returns a `digest` of everything but the checkpoint that affects the metrics.

        The features contain the effect of all settings of reading and tokenization, so that no such
        setting can be forgotten.
        """
        task, settings, dev = self.task, self.task.settings, self.splits[DEV]
        features = batching.checksum(dev.features, settings.max_seq_length)
        names = {*settings.names_for_model, *task.measured_with} - record_comparison.OF_TEXT
        values = [(name, getattr(settings, name)) for name in sorted(names)]
        return digest_of_data(task.checksum(dev.data), features, task.name, task.labels, values)

    def compute_metrics(self, model: AlbertModel, checkpoint: str) -> dict[str, float]:
        """Returns the metrics on the dev split; see `training.task.Task`.

        The outputs of the best checkpoint, and of the one that was evaluated last, are kept.
        """
        dev = self.splits[DEV]
        outputs = self.compute_outputs(model, dev)
        metrics = self.task.measure(dev, outputs, self._batch_size(dev))
        best = max(self._dev_outputs.items(), key=lambda item: item[1][0], default=None)
        self._dev_outputs = {} if best is None else dict([best])
        self._dev_outputs[checkpoint] = metrics.get(self.selection_metric, -1.0), outputs
        return metrics

    def write_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> None:
        """Writes `eval_results.txt` after each evaluation."""
        self.task.write_evaluations(folder, evaluations)

    # The outputs of checkpoints.

    def compute_outputs(self, model: AlbertModel, split: AnySplit) -> Outputs:
        """Returns the outputs of a model for a split, name → [N, …], in the order of the examples.

        The model is traced once for all splits whose batches have the same signature. Its weights
        may change between calls.
        """
        if model is not self._model:
            self._model, self._runners = model, {}
        signature = batch_signature(split.features)
        key = tuple(sorted(signature.items()))
        if key not in self._runners:
            compute = functools.partial(self.task.compute, model)
            step = tensorflow_step(compute, signature, self._outputs)
            self._runners[key] = BatchRunner(step, self._eval_padding, self._outputs)
        return self._runners[key].run(split.features, self._batch_size(split))

    def known_outputs(self, split: AnySplit, checkpoint: str) -> Outputs | None:
        """Returns the outputs of a checkpoint that are kept since its evaluation, or None.

        Args:
            split: a split.
            checkpoint: digest of the checkpoint.
        """
        dev = self.splits.get(DEV)
        if dev is None or split.features is not dev.features:
            return None
        return self._dev_outputs[checkpoint][1] if checkpoint in self._dev_outputs else None

    def _batch_size(self, split: AnySplit) -> int:
        settings: FineTuningSettings = self.task.settings
        if split.name == DEV and settings.eval_batch_size:
            return settings.eval_batch_size
        return settings.predict_batch_size


# How many steps are trained, in which order, and how batches are padded: what the settings say.


def training_steps(settings: FineTuningSettings, num_examples: int) -> tuple[int, int]:
    """Returns the number of training steps and the number of warm-up steps.

    These are `train_step` and `warmup_step`. With `num_train_epochs`, they are the number of full
    batches in these epochs and the fraction `warmup_proportion` of it, both rounded down.

    Raises:
        ValueError: the epochs amount to less than one step.
    """
    if not settings.num_train_epochs:
        return settings.train_step, settings.warmup_step
    steps = int(num_examples / settings.train_batch_size * settings.num_train_epochs)
    if steps < 1:
        raise ValueError(
            f"--num_train_epochs={settings.num_train_epochs} with {num_examples} examples is less "
            f"than one step of --train_batch_size={settings.train_batch_size}"
        )
    return steps, int(steps * settings.warmup_proportion)


def training_order(settings: FineTuningSettings) -> TrainingOrder:
    """Returns how training examples are shuffled and batched."""
    size = settings.train_batch_size
    seed = settings.seed
    if settings.official_order:
        return TrainingOrder(size, seed, batching.OFFICIAL_SHUFFLE_BUFFER)
    return TrainingOrder(size, seed, batches_to_sort=settings.BATCHES_TO_SORT)


def padding_multiple(
    settings: FineTuningSettings, strategy: tf.distribute.Strategy, num_batches: int | None = None
) -> int:
    """Returns the number of tokens of which the lengths of batches are multiples.

    Args:
        settings: settings of the run.
        strategy: distribution strategy.
        num_batches: n if just n batches are computed, for which few lengths are compiled on CPUs:
            the square root of n, since the cost of the padding falls as 1 / lengths.
    """
    limit = settings.max_seq_length
    if replicas.is_tpu(strategy):  # a single length: TPUs compile each shape separately
        return limit
    if settings.pad_to_multiple:
        return settings.pad_to_multiple
    if tf.config.list_physical_devices("GPU"):
        return GPU_MULTIPLE
    # XLA compiles the operations between the matmuls once for each length.
    lengths = MAX_LENGTHS if num_batches is None else math.isqrt(max(num_batches, 1))
    return 2 * -(-limit // (2 * min(lengths, MAX_LENGTHS)))


# Batches for TensorFlow.


def batch_signature(features: Features) -> dict[str, tf.TensorSpec]:
    """Returns name → TensorSpec of the features of a batch, with all dimensions unknown."""
    batch = features.batch(np.zeros(1, np.int64), int(features.lengths[0]))
    return {
        name: tf.TensorSpec([None] * value.ndim, tf.as_dtype(value.dtype))
        for name, value in batch.items()
    }


def training_dataset(
    features: Features,
    order: TrainingOrder,
    padding: Padding,
    start_step: int = 0,
    rows: slice = slice(None),
) -> tf.data.Dataset:
    """Returns the batches of `batching.training_batches` as a prefetching dataset.

    Args:
        features: the features of the examples.
        order: how the examples are shuffled and batched.
        padding: how batches are padded.
        start_step: step of the first batch.
        rows: the rows of each batch that this process trains on; by default, all.
    """

    def make() -> Iterator[batching.Batch]:
        for batch in training_batches(features, order, padding, start_step):
            yield {name: value[rows] for name, value in batch.items()}

    signature = batch_signature(features)
    return prefetch(tf.data.Dataset.from_generator(make, output_signature=signature))


def tensorflow_step(
    compute: Compute,
    signature: Mapping[str, tf.TensorSpec],
    outputs: Iterable[str],
    is_compiled: bool = True,
) -> Step:
    """Returns a step that computes some outputs of batches, traced once for all lengths.

    Args:
        compute: computes the outputs of a batch.
        signature: name → TensorSpec of a batch.
        outputs: names of the outputs that the step returns.
        is_compiled: whether XLA compiles parts of it on CPUs, once for each length.
    """
    # A partial: TensorFlow counts the traces of functions with the same code together, and would
    # warn of the fifth predictor in a process.
    step = functools.partial(only(compute, outputs))
    if not is_compiled:
        step = functools.partial(dispatch.uncompiled()(step))
    # Conversion is not needed, and takes twice the time of tracing.
    return tf.function(step, input_signature=[signature], autograph=False)


def only(compute: Compute, outputs: Iterable[str]) -> Callable[[Batch], dict[str, tf.Tensor]]:
    """Returns a function that computes some of the outputs, and no others in a graph."""
    names = tuple(outputs)

    def compute_some(batch: Batch) -> dict[str, tf.Tensor]:
        computed = compute(batch)
        return {name: computed[name] for name in names}

    return compute_some
