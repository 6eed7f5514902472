"""The pre-training task: its features, its model and its losses.

The loss is the sum of the masked-LM loss and that of the sentence objective. Source: ALBERT
(arXiv 1909.11942), section 3.1, and Google's `run_pretraining.py`.
"""

from __future__ import annotations

import tensorflow as tf

from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertForPretraining
from albert_tf.model.objectives import SOP, find
from albert_tf.model.ops import cross_entropy
from albert_tf.pretraining.features import LABELS, pretraining_features
from albert_tf.training.task import Batch, LossTask, ModelOutputs, Sums


class PretrainingTask(LossTask):
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

    def __init__(
        self,
        config: AlbertConfig,
        max_seq_length: int,
        max_predictions_per_seq: int,
        sentence_objective: str = SOP,
    ) -> None:
        self.config = config
        self.objective = find(sentence_objective)
        self.features = pretraining_features(
            config, max_seq_length, max_predictions_per_seq, self.objective
        )

    def build_model(self) -> AlbertForPretraining:
        """Returns the model with random weights."""
        return AlbertForPretraining(self.config, self.objective.abbreviation)

    def loss_weights(self, batch: Batch) -> tf.Tensor:
        """Returns the numbers of masked tokens and of segment pairs in a batch, float32 [2]."""
        pairs = tf.cast(tf.shape(batch["input_ids"])[0], tf.float32)
        return tf.stack((tf.reduce_sum(batch["masked_lm_weights"]), pairs))

    def loss(
        self,
        outputs: ModelOutputs,
        batch: Batch,
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
