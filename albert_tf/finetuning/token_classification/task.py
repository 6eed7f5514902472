"""Token classification as a fine-tuning task, such as named entity recognition (NER).

`tags` reads sentences, and knows tagging schemes and the metrics of spans; `windows` has the
features.

Shapes: B batch size, N windows, S sequence length, K labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.batching import Features
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.json_values import as_json
from albert_tf.finetuning.task import FineTuningTask, Split
from albert_tf.finetuning.text_task import Outputs, mark
from albert_tf.finetuning.token_classification import RAW, Settings
from albert_tf.finetuning.token_classification.conll import write_predictions
from albert_tf.finetuning.token_classification.metrics import span_metrics
from albert_tf.finetuning.token_classification.sentences import Sentence
from albert_tf.finetuning.token_classification.spans import find_spans
from albert_tf.finetuning.token_classification.tags import Tags, recorded_tags
from albert_tf.finetuning.token_classification.units import cut, join_tokens
from albert_tf.finetuning.token_classification.windows import NO_LABEL, Windows, make_features
from albert_tf.finetuning.trained_model import TrainedModel
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForTokenClassification, classification_losses
from albert_tf.model.tokenization import Tokenizer
from albert_tf.training.task import Batch

DEV_PREDICTIONS = "dev_predictions.tsv"
TEST_PREDICTIONS = "test_predictions.tsv"
SELECTION_METRIC = "f1"
OUTPUTS = {"predictions": 0.0}  # the outputs to collect, and their padding values


class TokenClassifier(FineTuningTask):
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
    outputs = OUTPUTS
    demos = (
        {"text": "Anna lives in Rome and sells bread."},
        {"text": "王小明住在北京。"},
    )
    marks_spans = True

    def __init__(
        self,
        settings: Settings,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        data: tuple[Tags, Mapping[str, Examples[Sentence]]],
    ) -> None:
        self.tags, splits = data
        super().__init__(settings, config, tokenizer, splits)
        self.labels = self.tags.labels

    @classmethod
    def of_trained(cls, trained: TrainedModel) -> TokenClassifier:
        """Returns the task with the recorded labels, which also collects their probabilities.

        Raises:
            ValueError: the labels were not recorded, or are those of another head.
        """
        tags = recorded_tags(trained.run, trained.settings.tag_scheme == RAW)
        if tags is None:
            raise ValueError(
                f"{trained.run.path} has no {run_record.FILE} or config.json with labels of tokens"
            )
        trained.check_labels(tags.labels)
        task = cls(trained.settings, trained.config, trained.tokenizer, (tags, {}))
        task.outputs = {**cls.outputs, "scores": 0.0}
        return task

    # Data.

    def make_features(self, data: Examples[Sentence], split: str) -> Windows:
        """Returns the windows of sentences."""
        windows = self._windows(data)
        ids = windows.sequences.input_ids[: windows.lengths[0]].tolist()
        tokens = " ".join(self.tokenizer.convert_ids_to_tokens(ids))
        logging.info("%s, line %d: %s", data.path, data.examples[0].line, tokens)
        logging.info("%s: %d sentences, %d windows", data.path, len(data), len(windows))
        return windows

    def _windows(self, data: Examples[Sentence]) -> Windows:
        return make_features(data, self.labels, self.tokenizer, self.max_seq_length)

    # Training.

    def build_model(self) -> AlbertForTokenClassification:
        """Returns the model with random weights."""
        return AlbertForTokenClassification(
            self.config, len(self.tags.labels), self.settings.dropout_prob
        )

    def sample_weights(self, batch: Batch) -> tf.Tensor:
        """Returns 1 for the first piece of each token and 0 for the others, float32 [B, S]."""
        return tf.cast(batch["label_ids"] != NO_LABEL, tf.float32)

    def losses(self, outputs: Any, batch: Batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the cross-entropies, [B, S], and whether labels are correct, bool [B, S].

        Args:
            outputs: logits, float32 [B, S, K].
            batch: has `label_ids`, int32 [B, S].
        """
        labels = batch["label_ids"]  # [B, S]
        hits = self.predictions(outputs)["predictions"] == labels  # [B, S]
        return classification_losses(outputs, tf.maximum(labels, 0)), {"accuracy": hits}

    # Evaluation and prediction.

    def predictions(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns `predictions`, label ids of pieces, and `scores`, their probabilities: [B, S]."""
        scores = tf.reduce_max(tf.nn.softmax(outputs), axis=-1)
        return {"predictions": tf.argmax(outputs, -1, tf.int32), "scores": scores}

    def predicted_labels(self, split: Split, outputs: Outputs) -> list[tuple[str, ...]]:
        """Returns the predicted labels of each sentence."""
        windows = cast(Windows, split.features)
        ids = iter(windows.at_tokens(outputs["predictions"]))
        names = self.tags.labels
        return [tuple(names[next(ids)] for _ in s.tokens) for s in split.data.examples]

    def parse_call(  # type: ignore[override]
        self, texts: str | Sequence[str | Sequence[str]]
    ) -> tuple[list[Any], bool]:
        """Returns the texts in the argument of a call, and whether it is a single one.

        Args:
            texts: a text, or a list of texts or of lists of tokens.
        """
        return [texts] if isinstance(texts, str) else list(texts), isinstance(texts, str)

    def features_of(self, examples: Sequence[str | Sequence[str]]) -> Windows:
        """Returns the windows of texts."""
        return self._windows(self._sentences(examples))

    def _words(self, text: str | Sequence[str]) -> list[tuple[str, int]]:
        """Returns the tokens of a text with their character offsets, -1 if they are given."""
        if isinstance(text, str):
            return cut(text, self.tags.units)
        return [(word, -1) for word in text]

    def _sentences(self, texts: Sequence[str | Sequence[str]]) -> Examples[Sentence]:
        """Returns texts as sentences without labels."""
        sentences = []
        for number, text in enumerate(texts, 1):
            tokens = tuple(word for word, _ in self._words(text))
            sentences.append(Sentence(number, tokens, (None,) * len(tokens)))
        return Examples("texts", sentences)

    def results(
        self, examples: Sequence[Any], features: Features, outputs: Outputs
    ) -> list[dict[str, Any]]:
        """Returns the tokens of each text with their labels, and the spans that these mark."""
        windows = cast(Windows, features)
        labels = self.predicted_labels(Split("test", self._sentences(examples), windows), outputs)
        scores = iter(as_json(windows.at_tokens(outputs["scores"])))
        return [
            {
                "tokens": [word for word, _ in self._words(text)],
                "labels": list(names),
                "scores": [next(scores) for _ in names],
                "spans": self._spans(text, names),
            }
            for text, names in zip(examples, labels, strict=True)
        ]

    def _spans(self, text: str | Sequence[str], labels: Sequence[str]) -> list[dict[str, Any]]:
        """Returns the spans that the labels of a text's tokens mark."""
        words = self._words(text)
        spans = []
        for kind, first, end in find_spans(labels, self.tags.is_raw):
            if isinstance(text, str):
                begin = words[first][1]
                stop = words[end - 1][1] + len(words[end - 1][0])
                place = {"text": text[begin:stop], "begin": begin, "end": stop}
            else:
                place = {"text": join_tokens(text[first:end], self.tags.units)}
            spans.append({"type": kind, **place})
        return spans

    @staticmethod
    def show(row: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the text with its spans, for the web page."""
        return mark(row["text"], result["spans"])

    def measure(self, split: Split, outputs: Outputs, batch_size: int) -> dict[str, float]:
        """Returns the metrics of `span_metrics`."""
        gold = [sentence.labels for sentence in split.data.examples]
        return span_metrics(gold, self.predicted_labels(split, outputs), self.tags.is_raw)

    def write_dev_predictions(
        self, folder: RunFolder, split: Split, predict: Callable[[], Outputs]
    ) -> None:
        """Writes `dev_predictions.tsv`; see `write_predictions`."""
        labels = self.predicted_labels(split, predict())
        write_predictions(folder.file(DEV_PREDICTIONS), split.data, labels)

    def write_predictions(
        self, folder: RunFolder, split: Split, outputs: Outputs, step: int
    ) -> str:
        """Writes `test_predictions.tsv` and, if labels are known, `predict_results.txt`.

        Returns:
            The text of `predict_results.txt`, or "" without labels.
        """
        path = folder.file(TEST_PREDICTIONS)
        write_predictions(path, split.data, self.predicted_labels(split, outputs))
        logging.info("Predictions of %d sentences: %s", len(split.data), path)
        return self.write_test_results(folder, split, outputs, step)

    # The folder of a run, and its export.

    def details(self) -> dict[str, Any]:
        """Returns whether tokens are words or characters."""
        return {"token_units": self.tags.units}

    def served_outputs(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Returns `probabilities`, float32 [B, S, K], and `predictions`, int32 [B, S]."""
        predictions = self.predictions(outputs)["predictions"]
        return {"probabilities": tf.nn.softmax(outputs), "predictions": predictions}
