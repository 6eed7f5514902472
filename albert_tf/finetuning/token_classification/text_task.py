"""Tags the tokens of texts that a predictor is given, and finds spans.

Shapes: B batch size, N windows, S sequence length, K labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from albert_tf import files
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.fine_tuned_text_task import FineTunedTextTask
from albert_tf.finetuning.json_values import as_json
from albert_tf.finetuning.splits import Split
from albert_tf.finetuning.text_task import Result, mark
from albert_tf.finetuning.token_classification.sentences import Sentence
from albert_tf.finetuning.token_classification.spans import find_spans
from albert_tf.finetuning.token_classification.units import cut, join_tokens
from albert_tf.finetuning.token_classification.windows import Windows
from albert_tf.model.tokenization import check_text, split_pairs

if TYPE_CHECKING:
    from albert_tf.finetuning.token_classification.predicting_task import PredictingTokenClassifier

Text = str | Sequence[str]  # or its tokens


class TokenTextTask(FineTunedTextTask[Text, Windows]):
    """Predicts texts, or lists of tokens.

    Args:
        task: the task.
    """

    task: PredictingTokenClassifier
    argument_names = ("text",)
    demos = (
        {"text": "Anna lives in Rome and sells bread."},
        {"text": "王小明住在北京。"},
    )
    marks_spans = True
    table_columns = ("token", "label", "probability")

    def __init__(self, task: PredictingTokenClassifier) -> None:
        super().__init__(task)
        self.outputs = {**task.outputs, "scores": 0.0}

    def parse_call(self, texts: str | Sequence[Text]) -> tuple[list[Text], bool]:
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

    def features_of(self, examples: Sequence[Text]) -> Windows:
        """Returns the windows of texts."""
        return self.task.windows(self._sentences(examples))

    def _words(self, text: Text) -> list[tuple[str, int]]:
        """Returns the tokens of a text with their character offsets, -1 if they are given."""
        if isinstance(text, str):
            return cut(text, self.task.tags.units)
        return [(word, -1) for word in text]

    def _sentences(self, texts: Sequence[Text]) -> Examples[Sentence]:
        """Returns texts as sentences without labels."""
        sentences = []
        for number, text in enumerate(texts, 1):
            tokens = tuple(word for word, _ in self._words(text))
            sentences.append(Sentence(number, tokens, (None,) * len(tokens)))
        return Examples("texts", sentences)

    def outputs_of(self, exported: Outputs) -> Outputs:
        """Returns `predictions` and `scores`, [B, S], given `probabilities`, [B, S, K]."""
        scores = exported["probabilities"].max(axis=-1)
        return {"predictions": exported["predictions"], "scores": scores}

    def results(
        self, examples: Sequence[Text], features: Windows, outputs: Outputs
    ) -> list[Result]:
        """Returns the tokens of each text with their labels, and the spans that these mark."""
        split = Split("texts", self._sentences(examples), features)
        labels = self.task.predicted_labels(split, outputs)
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

    def _spans(self, text: Text, labels: Sequence[str]) -> list[Result]:
        """Returns the spans that the labels of a text's tokens mark."""
        words = self._words(text)
        spans = []
        for kind, first, end in find_spans(labels, self.task.tags.is_raw):
            if isinstance(text, str):
                begin = words[first][1]
                stop = words[end - 1][1] + len(words[end - 1][0])
                place = {"text": text[begin:stop], "begin": begin, "end": stop}
            else:
                place = {"text": join_tokens(text[first:end], self.task.tags.units)}
            spans.append({"type": kind, **place})
        return spans

    @staticmethod
    def show(row: files.JsonObject, result: Result) -> files.JsonObject:
        """Returns the text with its spans, for the web page."""
        return mark(row["text"], result["spans"])

    @staticmethod
    def table(row: files.JsonObject, result: Result) -> list[Sequence[files.Json]]:
        """Returns the tokens with their labels, and the probabilities of these, in their order."""
        return list(zip(result["tokens"], result["labels"], result["scores"], strict=True))
