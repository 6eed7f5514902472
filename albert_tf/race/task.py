"""Multiple choice: features, loss, metrics, and the file of predictions.

    [CLS] passage [SEP] question and option [SEP] padding

once for each option. The questions come from `race_data`. Source: `run_race.py` and
`race_utils.py` of google-research/albert.

Letters: B batch, N questions, C options, S sequence length.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.config import AlbertConfig
from albert_tf.finetuning import feature_cache, metrics
from albert_tf.finetuning.sequences import TokenSequences
from albert_tf.heads import AlbertForMultipleChoice, classification_losses
from albert_tf.kernels import MASKED_SCORE
from albert_tf.race.reading import QuestionSet
from albert_tf.tokenization import FullTokenizer

BLANK = "_"
SPECIAL_TOKENS = 3
SELECTION_METRIC = "eval_accuracy"
# What is predicted, and what stands there for an option that a question does not have.
OUTPUTS = {"logits": MASKED_SCORE}

Sums = dict[str, tuple[tf.Tensor, tf.Tensor]]


def fill_in(question: str, option: str) -> str:
    """The option in place of every "_" of the question, or behind a question without one."""
    return question.replace(BLANK, option) if BLANK in question else f"{question} {option}"


def _sequences(
    data: QuestionSet, tokenizer: FullTokenizer, max_seq_length: int, max_qa_length: int
) -> Iterator[tuple[list[int], int]]:
    cls_id, sep_id, num_choices = tokenizer.cls_id, tokenizer.sep_id, data.num_choices
    passage, passage_ids = "", [0]
    num_cut = 0
    for question in data.questions:
        if question.passage != passage:  # several questions have one passage
            passage, passage_ids = question.passage, tokenizer.encode(question.passage)
        text = tokenizer.preprocess(question.question)
        for option in question.options:
            # Not `encode`: question and option are normalized one by one, and not once more.
            tokens = tokenizer.tokenize_preprocessed(fill_in(text, tokenizer.preprocess(option)))
            ending = tokenizer.convert_tokens_to_ids(tokens)[-max_qa_length:]
            kept = passage_ids[: max_seq_length - SPECIAL_TOKENS - len(ending)]
            num_cut += len(kept) < len(passage_ids)
            yield [cls_id, *kept, sep_id, *ending, sep_id], len(kept) + 2
        yield from [([], 0)] * (num_choices - len(question.options))
    if num_cut:
        logging.info(
            "%s: %d sequences are longer than max_seq_length=%d: their passages were cut",
            data.path,
            num_cut,
            max_seq_length,
        )


def make_features(
    data: QuestionSet,
    tokenizer: FullTokenizer,
    max_seq_length: int,
    max_qa_length: int,
    cache_file: str = "",
) -> TokenSequences:
    """Token ids of questions, id for id those of the official program.

    Args:
        data: the questions.
        tokenizer: of the model's vocabulary.
        max_seq_length: S; passages keep their first tokens.
        max_qa_length: questions with their option keep so many of their last tokens.
        cache_file: an `.npz` file, which is used again where nothing has changed; "" for none.

    Returns:
        C sequences a question, with the column `label_ids`, 0 where the label is not known.

    Raises:
        ValueError: lengths that leave no room.
    """
    room = max_seq_length - SPECIAL_TOKENS
    if max_qa_length < 1 or room < 1:
        raise ValueError(
            f"--max_seq_length={max_seq_length} and --max_qa_length={max_qa_length}: at least "
            f"{SPECIAL_TOKENS + 1} and 1 were expected"
        )
    if max_qa_length > room:
        logging.warning(
            "max_qa_length=%d: at most %d fit beside [CLS], [SEP] and [SEP]", max_qa_length, room
        )
        max_qa_length = room
    made_of = {
        "task": data.name,
        "split": data.split,
        "max_qa_length": max_qa_length,
        "vocabulary": tokenizer.checksum,
        "do_lower_case": tokenizer.do_lower_case,
        "text": data.checksum(),
    }

    def make() -> TokenSequences:
        logging.info("Tokenizing the %d questions of %s", len(data), data.path)
        labels = np.array([question.label or 0 for question in data.questions], np.int32)
        sequences = _sequences(data, tokenizer, max_seq_length, max_qa_length)
        return TokenSequences.pack(sequences, {"label_ids": labels}, data.num_choices)

    return feature_cache.load_or_make(cache_file, made_of, max_seq_length, make, TokenSequences)


class MultipleChoice:
    """Multiple choice as the training loop takes it.

    Args:
        config: the architecture.
        dropout_prob: as in `AlbertForMultipleChoice`.
    """

    selection_metric = SELECTION_METRIC

    def __init__(self, config: AlbertConfig, dropout_prob: float = 0.1) -> None:
        self.config, self.dropout_prob = config, dropout_prob

    def build_model(self) -> AlbertForMultipleChoice:
        """A model with random weights."""
        return AlbertForMultipleChoice(self.config, self.dropout_prob)

    def loss_weights(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """Questions of a batch, float32 [1]."""
        return tf.cast(tf.shape(batch["input_ids"])[:1], tf.float32)

    def loss(
        self,
        logits: tf.Tensor,
        batch: dict[str, tf.Tensor],
        weights: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, Sums]:
        """The mean loss of a batch, and what its metrics are made of.

        Args:
            logits: of `AlbertForMultipleChoice`, [B, C].
            batch: with `label_ids` [B].
            weights: `loss_weights` of the larger batch that this one is a part of.

        Returns:
            the loss, float32 scalar, and metric → (sum, number of questions), float32 scalars.
        """
        labels = batch["label_ids"]
        losses = classification_losses(logits, labels)  # [B]
        predictions = tf.argmax(logits, axis=-1, output_type=labels.dtype)  # [B]
        hits = tf.cast(predictions == labels, tf.float32)  # [B]
        count = tf.cast(tf.size(labels), tf.float32)
        loss = tf.reduce_sum(losses) / (count if weights is None else weights[0])
        return loss, {"accuracy": (tf.reduce_sum(hits), count)}


def probabilities_of(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probabilities of the options, [N, C], of logits [N, C]."""
    return tf.nn.softmax(logits).numpy()


def evaluate(data: QuestionSet, logits: NDArray[Any], batch_size: int) -> dict[str, float]:
    """Metrics of a whole set: the official keys, and `eval_accuracy_<level>` for each level.

    Args:
        data: the questions, which must have labels.
        logits: [N, C], in their order.
        batch_size: as in `metrics.loss_metrics`.

    Raises:
        ValueError: a question has no label, or there are not as many rows as questions.
    """
    if not data.has_labels:
        raise ValueError(f"{data.path}: not all questions have a label, so nothing can be measured")
    labels = np.array([question.label for question in data.questions])
    predictions = logits.argmax(axis=1)
    results = {SELECTION_METRIC: metrics.accuracy(predictions, labels)}
    levels = np.array([question.level for question in data.questions])
    for level in sorted(set(levels.tolist()) - {""}):
        chosen = levels == level
        results[f"{SELECTION_METRIC}_{level}"] = metrics.accuracy(
            predictions[chosen], labels[chosen]
        )
    losses = metrics.losses_of_examples(logits, labels)
    return results | metrics.loss_metrics(losses, batch_size)


def write_predictions(
    output_dir: str, data: QuestionSet, probabilities: NDArray[np.float32]
) -> str:
    """Writes `<task>_predictions.jsonl`: a JSON object a question.

    Its keys are `id` (of the passage), `question`, `prediction` (number from 0), `answer` (its
    letter) and `probabilities` of the options that the question has.

    Returns:
        the file.

    Raises:
        ValueError: not as many rows as questions.
    """
    if len(probabilities) != len(data):
        raise ValueError(f"{len(probabilities)} predictions for {len(data)} questions")
    path = os.path.join(output_dir, f"{data.name}_predictions.jsonl")
    with files.write_atomically(path) as stream:
        for question, row in zip(data.questions, probabilities, strict=True):
            prediction = int(row.argmax())
            line = {
                "id": question.example_id,
                "question": question.question,
                "prediction": prediction,
                "answer": chr(ord("A") + prediction),
                "probabilities": [float(p) for p in row[: len(question.options)]],
            }
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")
    return path
