"""A fine-tuning task with its data and devices: what a run trains, and evaluates on the dev split.

Shapes: B batch size, N examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from albert_tf.checkpoints import finding, record_comparison
from albert_tf.checkpoints.evaluations import Evaluation, digest_of_data
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning import batching
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.batching import Padding
from albert_tf.finetuning.dataset import batch_signature, training_dataset
from albert_tf.finetuning.dev_outputs import DevOutputs
from albert_tf.finetuning.plan import padding_multiple, training_order, training_steps
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.split_outputs import SplitOutputs
from albert_tf.finetuning.splits import DEV, TRAIN, AnySplit
from albert_tf.finetuning.task import AnyTask
from albert_tf.model.modeling import AlbertModel
from albert_tf.model.schedules import WarmUpPolynomialDecay
from albert_tf.training.task import Batch, ModelOutputs, Sums, Task


class PreparedTask(Task[FineTuningSettings]):
    """A fine-tuning task that can be trained and evaluated.

    Args:
        task: the task.
        splits: name → examples and their features.
        strategy: the distribution strategy, whose devices decide how batches are padded.

    Attributes:
        task, splits: the arguments.
        files: writes the files of results; see `FineTuningTask.result_files`.
    """

    def __init__(
        self,
        task: AnyTask,
        splits: Mapping[str, AnySplit],
        strategy: tf.distribute.Strategy,
    ) -> None:
        settings = task.settings
        self.task = task
        self.splits = splits
        self.files = task.result_files()
        self.selection_metric = task.selection_metric
        self.percentages = task.percentages
        self.official_order = settings.official_order
        self.freezes_encoder = settings.freeze_encoder
        others = [split for name, split in splits.items() if name != TRAIN]
        counts = [-(-len(split.features) // self._batch_size(split)) for split in others]
        self._padding, eval_padding = (
            task.padding(
                Padding(settings.max_seq_length, padding_multiple(settings, strategy, num_batches))
            )
            for num_batches in (None, max(counts, default=0))
        )  # of training, and of all else
        self._outputs = SplitOutputs(eval_padding, task.outputs, task.predictions)
        self._dev_outputs = DevOutputs()

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
        finding.keep_vocabulary(
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
        """Returns the metrics on the dev split; see `Task`."""
        dev = self.splits[DEV]
        outputs = self.compute_outputs(model, dev)
        metrics = self.task.measure(dev, outputs, self._batch_size(dev))
        self._dev_outputs.add(checkpoint, metrics.get(self.selection_metric, -1.0), outputs)
        return metrics

    def write_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> None:
        """Writes `eval_results.txt` after each evaluation."""
        self.files.write_evaluations(folder, evaluations)

    # The outputs of checkpoints.

    def compute_outputs(self, model: AlbertModel, split: AnySplit) -> Outputs:
        """Returns the outputs of a model for a split, name → [N, …]."""
        return self._outputs.compute(model, split.features, self._batch_size(split))

    def known_outputs(self, split: AnySplit, checkpoint: str) -> Outputs | None:
        """Returns the outputs of a checkpoint that are kept since its evaluation, or None.

        Args:
            split: a split.
            checkpoint: digest of the checkpoint.
        """
        dev = self.splits.get(DEV)
        if dev is None or split.features is not dev.features:
            return None
        return self._dev_outputs.get(checkpoint)

    def _batch_size(self, split: AnySplit) -> int:
        settings: FineTuningSettings = self.task.settings
        if split.name == DEV and settings.eval_batch_size:
            return settings.eval_batch_size
        return settings.predict_batch_size
