"""Multiple choice as a task: features, loss, metrics, predictions and export.

Each option of a question is a separate sequence, and the model scores each of them.

Source: `run_race.py` and `race_utils.py` of google-research/albert.

Shapes: B batch size, N questions, C options, S sequence length.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning import metrics
from albert_tf.finetuning.batching import Outputs
from albert_tf.finetuning.examples import EncodedExamples, Examples, blocks_of
from albert_tf.finetuning.race.questions import Question, parse_choice
from albert_tf.finetuning.race.reading import read_data
from albert_tf.finetuning.race.sequences import OptionEncoder, OptionSequences
from albert_tf.finetuning.race.settings import Settings
from albert_tf.finetuning.rows import Row
from albert_tf.finetuning.splits import Split
from albert_tf.finetuning.task import FineTuningTask, Result, as_json, ranked
from albert_tf.finetuning.token_sequences import log_full_sequences
from albert_tf.model.tokenization import check_list, split_pairs
from albert_tf.tables import Table

if TYPE_CHECKING:  # what needs TensorFlow
    import tensorflow as tf
    import tf_keras
    from typing_extensions import Self

    from albert_tf.export.signatures import Export, Tensors
    from albert_tf.model.heads import AlbertForMultipleChoice
    from albert_tf.training.task import Batch


RaceSplit = Split[Examples[Question], OptionSequences]

MISSING_SCORE = -10_000.0  # logit of missing options, as in the model


class MultipleChoice(FineTuningTask[Settings, Examples[Question], OptionSequences]):
    """Chooses one of several options of a question, mostly about a passage.

        choose = albert_tf.load_predictor("race_model/")
        choose("The river was wider.", "The river is _ now.", ["narrower", "colder"])

    Lists of passages, questions and options are answered by a list of results. The result of a
    prediction is a dict of `prediction` (zero-based index), `answer` (the option) and
    `probabilities`.
    """

    settings_class = Settings
    selection_metric = "eval_accuracy"
    outputs: Mapping[str, float] = {"probabilities": 0.0}
    measured_outputs: Mapping[str, float] = {"logits": MISSING_SCORE}  # for the loss
    measured_with = ("eval_batch_size",)  # over which Google's program averages the loss
    argument_names = ("passage", "question", "options")
    flags = ("context", "question", "options")
    table_columns = ("option", "probability")
    demos = (
        {"passage": "Anna sells bread.", "question": "Anna sells _.", "options": "bread\ntea"},
        {"passage": "王小明卖面包。", "question": "王小明卖什么？", "options": "面包\n茶"},
    )

    @classmethod
    def open(
        cls, settings: Settings, source: ModelSource, given: Mapping[str, Table] | None = None
    ) -> Self:
        """Returns the task with the questions of each split; see `reading.read_data`."""
        tokenizer = source.unchecked_tokenizer
        data = read_data(settings, given, tokenizer)
        return cls(settings, source.config, tokenizer, data)

    # Features, of files and of calls.

    def as_row(self, example: Question) -> files.JsonObject:
        """Returns the passage, if there is one, the question and its options."""
        passage = {"passage": example.passage} if example.passage else {}
        return {**passage, "question": example.question, "options": list(example.options)}

    def make_features(self, data: Examples[Question], split: str) -> OptionSequences:
        """Returns the token sequences and labels of a split."""
        if isinstance(data, EncodedExamples):
            features: OptionSequences = data.features
        else:
            logging.info("Tokenizing the %d questions of %s", len(data), data.path)
            features = self.features_of(data.examples)
        log_full_sequences(data.path, features, self.settings.max_seq_length)
        return features

    def parse_call(  # type: ignore[override] # other input
        self,
        passage: str | Sequence[str],
        question: str | Sequence[str],
        options: Sequence[str] | Sequence[Sequence[str]],
    ) -> tuple[list[Question], bool]:
        """Returns the questions in the arguments of a call, and whether it is for a single one.

        Args:
            passage: the text that the question is about; or a list of them.
            question: the question, in which "_" stands for the option; may be "". Or a list.
            options: two or more options; or a list of them for each question.

        Raises:
            ValueError: the lists have different lengths, or hold other values.
        """
        passages, questions = split_pairs(passage, question)
        check_list(options, "options", "a list of str, or a list of these for each passage")
        # The options of one question, or of each.
        rows = cast("Sequence[Sequence[str]]", [options] if isinstance(passage, str) else options)
        if len(rows) != len(passages) or any(isinstance(row, str) for row in rows):
            raise ValueError(f"{len(passages)} passages: expected a list of options for each")
        found = [
            Question("", text, asked, tuple(row), None)
            for text, asked, row in zip(passages, questions, rows, strict=True)
        ]
        return found, isinstance(passage, str)

    @staticmethod
    def parse_row(row: Row) -> Question:
        """Returns the question of a row, without its label."""
        return parse_choice(row)

    def features_of(self, examples: Sequence[Question]) -> OptionSequences:
        """Returns C sequences per question, and `label_ids`, which is 0 if the label is unknown."""
        encoder = OptionEncoder(
            self.tokenizer, self.settings.max_seq_length, self.settings.max_qa_length
        )
        for block in blocks_of(examples):
            encoder.add(block)
        return encoder.features([question.label or 0 for question in examples])

    # The model, its loss and its predictions.

    def build_model(self) -> AlbertForMultipleChoice:
        """Returns the model with random weights."""
        from albert_tf.model.heads import AlbertForMultipleChoice

        return AlbertForMultipleChoice(self.config, self.settings.dropout_prob)

    def losses(self, outputs: tf.Tensor, batch: Batch) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the cross-entropies, [B], and whether predictions are correct, bool [B].

        Args:
            outputs: logits, float32 [B, C].
            batch: has `label_ids`, int32 [B].
        """
        import tensorflow as tf

        from albert_tf.model.losses import classification_losses

        labels = batch["label_ids"]
        predictions = tf.argmax(outputs, axis=-1, output_type=labels.dtype)
        return classification_losses(outputs, labels), {"accuracy": predictions == labels}

    def predictions(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns `logits` and `probabilities`, both [B, C]."""
        import tensorflow as tf

        return {"logits": outputs, "probabilities": tf.nn.softmax(outputs)}

    def results(
        self, examples: Sequence[Question], features: OptionSequences, outputs: Outputs
    ) -> list[Result]:
        """Returns the option that is chosen for each question."""
        return [
            {
                "prediction": int(row.argmax()),
                "answer": question.options[row.argmax()],
                "probabilities": as_json(row[: len(question.options)]),
            }
            for question, row in zip(examples, outputs["probabilities"], strict=True)
        ]

    @staticmethod
    def show(row: files.JsonObject, result: Result) -> dict[str, float]:
        """Returns the probabilities of the options, for the web page."""
        return dict(zip(row["options"], result["probabilities"], strict=True))

    @staticmethod
    def table(row: files.JsonObject, result: Result) -> list[Sequence[files.Json]]:
        """Returns the options with their probabilities."""
        return ranked(MultipleChoice.show(row, result))

    # Metrics, and the file of predictions.

    def measure(self, split: RaceSplit, outputs: Outputs, batch_size: int) -> dict[str, float]:
        """Returns the metrics of Google's program, and `eval_accuracy_<level>` for each level."""
        questions = split.data.examples
        logits = outputs["logits"]  # [N, C]
        labels = np.array([question.label for question in questions])  # [N]
        predictions = logits.argmax(axis=1)  # [N]
        name = self.selection_metric
        measured = {name: metrics.accuracy(predictions, labels)}
        levels = np.array([question.level for question in questions])
        for level in sorted(set(levels.tolist()) - {""}):
            chosen = levels == level
            measured[f"{name}_{level}"] = metrics.accuracy(predictions[chosen], labels[chosen])
        losses = metrics.losses_of_examples(logits, labels)
        return measured | metrics.loss_metrics(losses, batch_size)

    def write_predictions(
        self, folder: RunFolder, split: RaceSplit, outputs: Outputs, step: int
    ) -> str:
        """Writes `<task_name>_predictions.jsonl` and, if labels are known, `predict_results.txt`.

        A line of the former is a JSON object with the keys `id` (of the passage), `question`,
        `prediction` (an index, starting at 0), `answer` (the letter of the prediction) and
        `probabilities` (of the question's options).

        Returns:
            The text of `predict_results.txt`, or "" without labels.
        """
        path = folder.file(f"{self.settings.task_name}_predictions.jsonl")
        with files.write_atomically(path) as stream:
            for question, row in zip(split.data.examples, outputs["probabilities"], strict=True):
                prediction = int(row.argmax())
                line = {
                    "id": question.example_id,
                    "question": question.question,
                    "prediction": prediction,
                    "answer": chr(ord("A") + prediction),
                    "probabilities": [float(p) for p in row[: len(question.options)]],
                }
                stream.write(json.dumps(line, ensure_ascii=False) + "\n")
        if not split.data.has_labels:
            return ""
        return self.write_test_results(folder, split, outputs, step)

    # Export.

    def served_outputs(self, outputs: tf.Tensor) -> Tensors:
        """Returns `probabilities` [B, C] and `predictions` [B], the indices of the best options."""
        import tensorflow as tf

        return {
            "probabilities": tf.nn.softmax(outputs),
            "predictions": tf.argmax(outputs, axis=-1, output_type=tf.int32),
        }

    def make_export(
        self, model: tf_keras.layers.Layer, max_seq_length: int, folder: RunFolder
    ) -> Export:
        """Returns an export with inputs [B, C, S], for any number of options C.

        A missing option is a row of zeros. A serialized example contains the concatenated sequences
        of all options, as in Google's records.
        """
        import tensorflow as tf

        from albert_tf.export.signatures import Export, token_inputs, token_signatures

        options = tf.TensorSpec([None, None, max_seq_length], tf.int32)
        inputs = dict.fromkeys(token_inputs(max_seq_length), options)

        def serve(batch: Tensors) -> Tensors:
            return self.served_outputs(model(batch, training=False))

        return Export(token_signatures(inputs, serve, takes_examples=False))
