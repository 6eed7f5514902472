"""Token classification as a task, such as named entity recognition (NER).

`reading` reads sentences, `tags` knows their labels, `spans` tagging schemes, and `windows` has the
features.

Shapes: B batch size, N windows, S sequence length, K labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.batching import Outputs
from albert_tf.finetuning.examples import EncodedExamples, Examples
from albert_tf.finetuning.rows import Row
from albert_tf.finetuning.splits import Split
from albert_tf.finetuning.task import FineTuningTask, Result, as_json, check_labels, mark
from albert_tf.finetuning.token_classification.reading import read_data
from albert_tf.finetuning.token_classification.sentences import (
    Sentence,
    parse_words,
    write_predictions,
)
from albert_tf.finetuning.token_classification.settings import RAW, Settings
from albert_tf.finetuning.token_classification.spans import find_spans, span_metrics
from albert_tf.finetuning.token_classification.tags import Tags, cut, join_tokens, recorded_tags
from albert_tf.finetuning.token_classification.windows import NO_LABEL, Windows, make_windows
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import Tokenizer, check_text, split_pairs
from albert_tf.model.tokenization.characters import past_marks
from albert_tf.tables import Table

if TYPE_CHECKING:  # what needs TensorFlow
    import tensorflow as tf
    from typing_extensions import Self

    from albert_tf.export.signatures import Tensors
    from albert_tf.model.heads import AlbertForTokenClassification
    from albert_tf.training.task import Batch

DEV_PREDICTIONS = "dev_predictions.tsv"
TEST_PREDICTIONS = "test_predictions.tsv"

Text = str | Sequence[str]  # or its tokens
TokenSplit = Split[Examples[Sentence], Windows]


class TokenClassifier(FineTuningTask[Settings, Examples[Sentence], Windows]):
    """Tags the tokens of texts.

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
        data: the tags, and the sentences of each split; see `reading.read_data`.

    Attributes:
        tags: the labels, and what they are labels of.
    """

    settings_class = Settings
    selection_metric = "f1"
    outputs: Mapping[str, float] = {"predictions": 0.0, "scores": 0.0}
    measured_with = ("tag_scheme",)
    argument_names = ("text",)
    flags = ("text",)
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
    def open(
        cls, settings: Settings, source: ModelSource, given: Mapping[str, Table] | None = None
    ) -> Self:
        """Returns the task with the tags and the sentences of each split; see `read_data`."""
        tokenizer = source.unchecked_tokenizer
        data = read_data(settings, source.trained, given, tokenizer)
        return cls(settings, source.config, tokenizer, data)

    @classmethod
    def of_trained(
        cls, name: str, settings: Settings, source: ModelSource, num_outputs: int
    ) -> Self:
        """Returns the task with the recorded labels.

        Raises:
            ValueError: the labels were not recorded, or are those of another head.
        """
        tags = recorded_tags(source.run, settings.tag_scheme == RAW)
        if tags is None:
            raise ValueError(
                f"{source.run.path} has no {run_record.FILE} or config.json with labels of tokens"
            )
        check_labels(tags.labels, num_outputs, source)
        return cls(settings, source.config, source.tokenizer, (tags, {}))

    # Features, of files and of calls.

    def as_row(self, example: Sentence) -> files.JsonObject:
        """Returns the text of a sentence."""
        return {"text": join_tokens(example.tokens, self.tags.units)}

    def make_features(self, data: Examples[Sentence], split: str) -> Windows:
        """Returns the windows of sentences."""
        if isinstance(data, EncodedExamples):
            windows: Windows = data.features.with_labels(self.labels)
        else:
            windows = self._windows(data.examples)
        ids = windows.sequences.input_ids[: windows.lengths[0]].tolist()
        tokens = " ".join(self.tokenizer.convert_ids_to_tokens(ids))
        logging.info("%s, line %d: %s", data.path, data.examples[0].line, tokens)
        logging.info("%s: %d sentences, %d windows", data.path, len(data), len(windows))
        return windows

    def _windows(self, sentences: Sequence[Sentence]) -> Windows:
        windows = make_windows(sentences, self.tokenizer, self.settings.max_seq_length)
        return windows.with_labels(self.labels)

    def parse_call(  # type: ignore[override] # other input
        self, texts: str | Sequence[Text]
    ) -> tuple[list[Text], bool]:
        """Returns the texts in the argument of a call, and whether it is a single one.

        Args:
            texts: a text, or a list of texts or of lists of tokens.

        Raises:
            ValueError: an input is not a string, or not a list of strings.
        """
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Sequence):
            return list(split_pairs(texts)[0]), isinstance(texts, str)
        for number, text in enumerate(texts):
            words = [text] if isinstance(text, str) else text
            if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
                raise ValueError(f"texts[{number}] is {text!r:.60}: expected a str, or its tokens")
            for word in words:
                check_text(word, f"texts[{number}]")
        return list(texts), False

    @staticmethod
    def parse_row(row: Row) -> Text:
        """Returns the text of a row, or its tokens."""
        return parse_words(row)

    def features_of(self, examples: Sequence[Text]) -> Windows:
        """Returns the windows of texts."""
        return self._windows(self._sentences(examples).examples)

    def _words(self, text: Text) -> list[tuple[str, int]]:
        """Returns the tokens of a text with their character offsets, -1 if they are given."""
        if isinstance(text, str):
            return cut(text, self.tags.units)
        return [(word, -1) for word in text]

    def _sentences(self, texts: Sequence[Text]) -> Examples[Sentence]:
        """Returns texts as sentences without labels."""
        sentences = []
        for number, text in enumerate(texts, 1):
            tokens = tuple(word for word, _ in self._words(text))
            sentences.append(Sentence(number, tokens, (None,) * len(tokens)))
        return Examples("texts", sentences)

    # The model, its loss and its predictions.

    def build_model(self) -> AlbertForTokenClassification:
        """Returns the model with random weights."""
        from albert_tf.model.heads import AlbertForTokenClassification

        return AlbertForTokenClassification(
            self.config, len(self.tags.labels), self.settings.dropout_prob
        )

    def sample_weights(self, batch: Batch) -> tf.Tensor:
        """Returns 1 for the first piece of each token and 0 for the others, float32 [B, S]."""
        import tensorflow as tf

        return tf.cast(batch["label_ids"] != NO_LABEL, tf.float32)

    def losses(self, outputs: tf.Tensor, batch: Batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the cross-entropies, [B, S], and whether labels are correct, bool [B, S].

        Args:
            outputs: logits, float32 [B, S, K].
            batch: has `label_ids`, int32 [B, S].
        """
        import tensorflow as tf

        from albert_tf.model.losses import classification_losses

        labels = batch["label_ids"]  # [B, S]
        hits = self.predictions(outputs)["predictions"] == labels  # [B, S]
        return classification_losses(outputs, tf.maximum(labels, 0)), {"accuracy": hits}

    def predictions(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns `predictions`, label ids of pieces, and `scores`, their probabilities: [B, S]."""
        import tensorflow as tf

        scores = tf.reduce_max(tf.nn.softmax(outputs), axis=-1)
        return {"predictions": tf.argmax(outputs, -1, tf.int32), "scores": scores}

    def outputs_of(self, exported: Outputs) -> Outputs:
        """Returns `predictions` and `scores`, [B, S], given `probabilities`, [B, S, K]."""
        scores = exported["probabilities"].max(axis=-1)
        return {"predictions": exported["predictions"], "scores": scores}

    def results(
        self, examples: Sequence[Text], features: Windows, outputs: Outputs
    ) -> list[Result]:
        """Returns the tokens of each text with their labels, and the spans that these mark."""
        split = Split("texts", self._sentences(examples), features)
        labels = self.predicted_labels(split, outputs)
        scores = iter(as_json(features.at_tokens(outputs["scores"])))
        return [
            {
                "tokens": [word for word, _ in self._words(text)],
                "labels": list(names),
                "scores": [next(scores) for _ in names],
                "spans": self._spans(text, names),
            }
            for text, names in zip(examples, labels, strict=True)
        ]

    def predicted_labels(self, split: TokenSplit, outputs: Outputs) -> list[tuple[str, ...]]:
        """Returns the predicted labels of each sentence."""
        ids = iter(split.features.at_tokens(outputs["predictions"]))
        names = self.tags.labels
        return [tuple(names[next(ids)] for _ in s.tokens) for s in split.data.examples]

    def _spans(self, text: Text, labels: Sequence[str]) -> list[Result]:
        """Returns the spans that the labels of a text's tokens mark."""
        words = self._words(text)
        spans = []
        for kind, first, end in find_spans(labels, self.tags.is_raw):
            if isinstance(text, str):
                begin = words[first][1]
                stop = past_marks(text, words[end - 1][1] + len(words[end - 1][0]), len(text))
                place = {"text": text[begin:stop], "begin": begin, "end": stop}
            else:
                place = {"text": join_tokens(text[first:end], self.tags.units)}
            spans.append({"type": kind, **place})
        return spans

    @staticmethod
    def show(row: files.JsonObject, result: Result) -> files.JsonObject:
        """Returns the text with its spans, for the web page."""
        return mark(row["text"], result["spans"])

    # Metrics, and the files in the columns of CoNLL.

    def measure(self, split: TokenSplit, outputs: Outputs, batch_size: int) -> dict[str, float]:
        """Returns the metrics of `span_metrics`."""
        gold = [[str(label) for label in sentence.labels] for sentence in split.data.examples]
        return span_metrics(gold, self.predicted_labels(split, outputs), self.tags.is_raw)

    def details(self) -> files.JsonObject:
        """Returns whether tokens are words or characters."""
        return {"token_units": self.tags.units}

    def write_dev_predictions(
        self, folder: RunFolder, split: TokenSplit, predict: Callable[[], Outputs]
    ) -> None:
        """Writes `dev_predictions.tsv`; see `write_predictions`."""
        labels = self.predicted_labels(split, predict())
        write_predictions(folder.file(DEV_PREDICTIONS), split.data, labels)

    def write_predictions(
        self, folder: RunFolder, split: TokenSplit, outputs: Outputs, step: int
    ) -> str:
        """Writes `test_predictions.tsv` and, if labels are known, `predict_results.txt`.

        Returns:
            The text of `predict_results.txt`, or "" without labels.
        """
        path = folder.file(TEST_PREDICTIONS)
        write_predictions(path, split.data, self.predicted_labels(split, outputs))
        logging.info("Predictions of %d sentences: %s", len(split.data), path)
        if not split.data.has_labels:
            return ""
        return self.write_test_results(folder, split, outputs, step)

    # Export.

    def served_outputs(self, outputs: tf.Tensor) -> Tensors:
        """Returns `probabilities`, float32 [B, S, K], and `predictions`, int32 [B, S]."""
        import tensorflow as tf

        predictions = self.predictions(outputs)["predictions"]
        return {"probabilities": tf.nn.softmax(outputs), "predictions": predictions}
