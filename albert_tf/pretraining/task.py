"""The pre-training task: its features, losses, metrics and evaluation files.

The loss is the sum of the masked-LM loss and that of the sentence objective. Source: ALBERT
(arXiv 1909.11942), section 3.1, and Google's `run_pretraining.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from albert_tf import files
from albert_tf.checkpoints.evaluations import Evaluation, digest_of_data, heading
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.weight_names import GLOBAL_STEP
from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertForPretraining
from albert_tf.model.objectives import SOP, find
from albert_tf.model.ops import cross_entropy
from albert_tf.model.schedules import WarmUpPolynomialDecay
from albert_tf.pretraining import input_pipeline, record_files, vocabulary
from albert_tf.pretraining.dynamic_masking import MADE_BY_MASKING, TOKEN_BOUNDARY
from albert_tf.pretraining.input_pipeline import Records
from albert_tf.pretraining.settings import Settings
from albert_tf.training.evaluator import Evaluator
from albert_tf.training.task import Batch, Sums, Task

LABELS = "next_sentence_labels"  # BERT's name, of the labels of any sentence objective


class PretrainingTask(Task):
    """Pre-training by masked language modeling and a sentence objective.

    Args:
        config: the model's config.
        max_seq_length: S, number of tokens per sequence.
        max_predictions_per_seq: P, number of masked positions per sequence.
        sentence_objective: abbreviation of the sentence objective. Without a head, there is no
            loss of pairs, and the labels in the records are not read.

    Raises:
        ValueError: there is no such objective.
    """

    selection_metric = "masked_lm_accuracy"
    official_order = True  # the initial weights show what training gained
    train_records: Records
    eval_records: Records

    def __init__(
        self,
        config: AlbertConfig,
        max_seq_length: int,
        max_predictions_per_seq: int,
        sentence_objective: str = SOP,
    ) -> None:
        self.config = config
        self.objective = find(sentence_objective)
        words = f"the model has vocab_size={config.vocab_size}: is the vocabulary a different one?"
        segments = f"the model has type_vocab_size={config.type_vocab_size}"
        tokens = (max_seq_length,)
        masked = (max_predictions_per_seq,)
        feature = record_files.Feature
        int64 = tf.int64
        self.features: record_files.Features = {
            "input_ids": feature(tokens, int64, config.vocab_size, words),
            "input_mask": feature(tokens, int64, 2),
            "segment_ids": feature(tokens, int64, config.type_vocab_size, segments),
            "masked_lm_positions": feature(masked, int64, max_seq_length),
            "masked_lm_ids": feature(masked, int64, config.vocab_size, words),
            "masked_lm_weights": feature(masked, tf.float32),
        }
        if self.objective.has_head:
            labels = f"the labels of sentence_objective={sentence_objective}"
            self.features[LABELS] = feature((1,), int64, self.objective.num_classes, labels)

    def use(
        self,
        train_records: Records,
        eval_records: Records,
        settings: Settings,
    ) -> None:
        """Sets the records to train and to evaluate on.

        Args:
            train_records: the records to train on.
            eval_records: the records to evaluate on.
            settings: the settings of the run.
        """
        self.train_records = train_records
        self.eval_records = eval_records
        self.init_from_group0 = settings.init_from_group0
        self._settings = settings
        self._evaluator: Evaluator | None = None

    def build_model(self) -> AlbertForPretraining:
        """Returns the model with random weights."""
        return AlbertForPretraining(self.config, self.objective.abbreviation)

    @property
    def unmasked_features(self) -> record_files.Features:
        """The features to read from records for dynamic masking."""
        features = {
            name: feature for name, feature in self.features.items() if name not in MADE_BY_MASKING
        }
        return features | {TOKEN_BOUNDARY: self.features["input_mask"]}

    def loss_weights(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the numbers of masked tokens and of segment pairs in a batch, float32 [2]."""
        pairs = tf.cast(tf.shape(batch["input_ids"])[0], tf.float32)
        return tf.stack((tf.reduce_sum(batch["masked_lm_weights"]), pairs))

    def loss(
        self,
        outputs: dict[str, tf.Tensor],
        batch: dict[str, tf.Tensor],
        weights: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the loss of a batch, and the weighted sums of its metrics.

        Args:
            outputs: the outputs of `AlbertForPretraining`.
            batch: the parsed features.
            weights: `loss_weights` of the global batch, if `batch` is a micro-batch of it (gradient
                accumulation).

        Returns:
            The loss, a float32 scalar, and metric name → (weighted sum, weight), float32 scalars.
        """
        totals = self.loss_weights(batch) if weights is None else weights  # [2]
        labels = batch["masked_lm_ids"]  # [B, P]
        weights = batch["masked_lm_weights"]  # [B, P]
        word_losses, word_hits = cross_entropy(outputs["masked_lm_logits"], labels)  # [B, P]
        words = tf.reduce_sum(weights)
        word_sum = tf.reduce_sum(weights * word_losses)
        # 1e-5 as in Google's `get_masked_lm_output`.
        loss = word_sum / (totals[0] + 1e-5)
        sums = {
            "masked_lm_loss": (word_sum, words),
            "masked_lm_accuracy": (tf.reduce_sum(weights * word_hits), words),
        }
        objective = self.objective
        if objective.has_head:
            labels = batch[LABELS][:, 0]  # [B]
            pair_losses, pair_hits = cross_entropy(outputs[objective.logits_name], labels)  # [B]
            pair_sum = tf.reduce_sum(pair_losses)
            count = tf.cast(tf.size(labels), tf.float32)
            loss += pair_sum / totals[1]
            sums[objective.loss_name] = (pair_sum, count)
            sums[objective.accuracy_name] = (tf.reduce_sum(pair_hits), count)
        return loss, sums

    def count_examples(self) -> int:
        """Returns the number of records to train on."""
        return sum(file.num_records for file in self.train_records.files)

    def schedule(self, settings: Settings) -> WarmUpPolynomialDecay:
        """Returns the learning rate schedule of a run."""
        return WarmUpPolynomialDecay(
            settings.learning_rate,
            settings.num_train_steps,
            settings.num_warmup_steps,
            settings.start_warmup_step,
            settings.poly_power,
        )

    def batches(self, settings: Settings, step: int, rows: slice) -> Iterator[Batch]:
        """Returns the training batches from a step on; see `Task`."""
        records = self.train_records
        dataset = input_pipeline.training_dataset(
            records.files,
            records.features,
            settings.train_batch_size,
            settings.seed,
            start=step * settings.train_batch_size,
            rows=rows,
            masking=records.masking,
        )
        return input_pipeline.batches(dataset, records.files)

    def keep_files(self, folder: RunFolder) -> None:
        """Copies the vocabulary of the records to the folder of a run, if it is found."""
        of_model = self._settings.source.folder
        vocabulary.keep_vocabulary(self.train_records.files, folder.path, of_model)

    def measured_on(self) -> str:
        """Returns a `digest` of everything but the checkpoint that affects the metrics."""
        settings, masking = self._settings, self.eval_records.masking
        return digest_of_data(
            record_files.checksum_of(self.eval_records.files),
            settings.eval_batch_size,
            settings.max_eval_steps,
            self.objective.abbreviation,
            *([] if masking is None else [masking.for_evaluation()]),
        )

    def compute_metrics(self, model: Any, checkpoint: str) -> dict[str, float]:
        """Returns the metrics on the records to evaluate on; see `Task`."""
        records, settings = self.eval_records, self._settings
        if self._evaluator is None or self._evaluator.model is not model:
            dataset = input_pipeline.evaluation_dataset(
                records.files, records.features, settings.eval_batch_size, records.masking
            )
            self._evaluator = Evaluator(model, self, dataset, settings.max_eval_steps)
        with record_files.damage_named(records.files):
            return self._evaluator.evaluate()

    def write_evaluations(self, folder: RunFolder, evaluations: Sequence[Evaluation]) -> None:
        """Writes `eval_results.txt`, with a block of lines for each evaluation."""
        files.write_file(
            folder.file("eval_results.txt"),
            heading(evaluations) + "".join(map(format_results, evaluations)),
        )


def format_results(evaluation: Evaluation) -> str:
    """Returns lines `key = value`, sorted by key, as in Google's `eval_results.txt`."""
    results = evaluation.metrics | {GLOBAL_STEP: evaluation.step}
    return "".join(f"{key} = {results[key]}\n" for key in sorted(results))
