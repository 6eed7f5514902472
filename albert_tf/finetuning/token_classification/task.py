"""Token classification as a fine-tuning task, such as named entity recognition (NER).

`tags` reads sentences, and knows tagging schemes and the metrics of spans; `windows` has the
features.

Shapes: B batch size, N windows, S sequence length, K labels.
"""

from __future__ import annotations

import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.task import FineTuningTask
from albert_tf.finetuning.token_classification import Settings
from albert_tf.finetuning.token_classification.exporter import TokenExporter
from albert_tf.finetuning.token_classification.metrics import span_metrics
from albert_tf.finetuning.token_classification.predicting_task import (
    PredictingTokenClassifier,
    TokenSplit,
)
from albert_tf.finetuning.token_classification.result_files import TokenFiles
from albert_tf.finetuning.token_classification.sentences import Sentence
from albert_tf.finetuning.token_classification.units import join_tokens
from albert_tf.finetuning.token_classification.windows import NO_LABEL, Windows
from albert_tf.model.heads import AlbertForTokenClassification
from albert_tf.model.losses import classification_losses
from albert_tf.training.task import Batch

SELECTION_METRIC = "f1"


class TokenClassifier(
    PredictingTokenClassifier, FineTuningTask[Settings, Examples[Sentence], Windows]
):
    """Token classification as a fine-tuning task.

        tag = albert_tf.load_predictor("ner_model/")
        tag("U.N. official Ekeus heads for Baghdad.")

    The tokens of a string are its words, where Chinese characters and punctuation around words are
    separate tokens. For a model that was trained with characters as tokens, they are its characters
    without spaces. A list of strings is used as the tokens of one text. The result of a prediction
    is a dict of `tokens`, `labels`, `scores` (the probabilities of the labels) and `spans`. A span
    is a dict of `type`, `text` and, for strings, `begin` and `end` (character offsets).

    Args:
        settings: the settings of the program.
        config: the model's config.
        tokenizer: the tokenizer.
        data: the tags, and the sentences of each split; see `tags.read_data`.

    Attributes:
        tags: the labels, and what they are labels of.
    """

    selection_metric = SELECTION_METRIC
    measured_with = ("tag_scheme",)

    # Data.

    def as_row(self, example: Sentence) -> files.JsonObject:
        """Returns the text of a sentence."""
        return {"text": join_tokens(example.tokens, self.tags.units)}

    def make_features(self, data: Examples[Sentence], split: str) -> Windows:
        """Returns the windows of sentences."""
        windows = self.windows(data)
        ids = windows.sequences.input_ids[: windows.lengths[0]].tolist()
        tokens = " ".join(self.tokenizer.convert_ids_to_tokens(ids))
        logging.info("%s, line %d: %s", data.path, data.examples[0].line, tokens)
        logging.info("%s: %d sentences, %d windows", data.path, len(data), len(windows))
        return windows

    # Training.

    def build_model(self) -> AlbertForTokenClassification:
        """Returns the model with random weights."""
        return AlbertForTokenClassification(
            self.config, len(self.tags.labels), self.settings.dropout_prob
        )

    def sample_weights(self, batch: Batch) -> tf.Tensor:
        """Returns 1 for the first piece of each token and 0 for the others, float32 [B, S]."""
        return tf.cast(batch["label_ids"] != NO_LABEL, tf.float32)

    def losses(self, outputs: tf.Tensor, batch: Batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the cross-entropies, [B, S], and whether labels are correct, bool [B, S].

        Args:
            outputs: logits, float32 [B, S, K].
            batch: has `label_ids`, int32 [B, S].
        """
        labels = batch["label_ids"]  # [B, S]
        hits = self.predictions(outputs)["predictions"] == labels  # [B, S]
        return classification_losses(outputs, tf.maximum(labels, 0)), {"accuracy": hits}

    # Evaluation and prediction.

    def predictions(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns `predictions`, label ids of pieces, and `scores`, their probabilities: [B, S]."""
        scores = tf.reduce_max(tf.nn.softmax(outputs), axis=-1)
        return {"predictions": tf.argmax(outputs, -1, tf.int32), "scores": scores}

    def measure(self, split: TokenSplit, outputs: Outputs, batch_size: int) -> dict[str, float]:
        """Returns the metrics of `span_metrics`."""
        gold = [[str(label) for label in sentence.labels] for sentence in split.data.examples]
        return span_metrics(gold, self.predicted_labels(split, outputs), self.tags.is_raw)

    def details(self) -> files.JsonObject:
        """Returns whether tokens are words or characters."""
        return {"token_units": self.tags.units}

    def result_files(self) -> TokenFiles:
        """Returns what writes files in the columns of CoNLL."""
        return TokenFiles(self)

    def exporter(self) -> TokenExporter:
        """Returns what is exported for tokens."""
        return TokenExporter(self)
