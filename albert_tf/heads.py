"""Heads for fine-tuning: an encoder and what makes its output an answer.

`AlbertForClassification` serves classification and regression, `AlbertForMultipleChoice` questions
with options, `AlbertForSpans` questions whose answer is a span of the text (SQuAD 1.1), and
`AlbertForAnswerableSpans` those that may have no answer (SQuAD 2.0). Weights carry the names of
Google's fine-tuned checkpoints, so that these load.

Letters: B batch, S sequence, H hidden, K labels, C choices; N starts, M ends of a beam.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf
import tf_keras

from albert_tf import kernels
from albert_tf.config import AlbertConfig
from albert_tf.modeling import (
    MASKED_SCORE,
    AlbertEncoder,
    AlbertLayer,
    Dense,
    LayerNorm,
    OutputLayer,
    dropout,
)

HEAD_STDDEV = 0.02  # of new output weights, whatever initializer_range the config has, as Google's
FORBIDDEN_SCORE = -1e30  # of positions where no answer may begin or end, as Google's
CLASSIFICATION_DROPOUT = 0.1  # of the pooled output, in Google's and albert_zh's program alike


def _output_layer(config: AlbertConfig, num_outputs: int, scope: str = "") -> OutputLayer:
    config = dataclasses.replace(config, initializer_range=HEAD_STDDEV)
    return OutputLayer(config, scope, num_outputs)


def head_seeds(training: bool, dropout_seed: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
    """Seeds for the dropout of the encoder, int32 [2], and of the head, [1, 2]; None, None if off.

    Args:
        training: whether dropout is on.
        dropout_seed: int32 [2]; drawn when absent.
    """
    if not training:
        return None, None
    if dropout_seed is None:
        dropout_seed = tf.random.uniform((2,), maxval=2**31 - 1, dtype=tf.int32)  # [2]
    seeds = kernels.split_seed(dropout_seed, 2)  # [2, 2]
    return seeds[0], seeds[1:]


class AlbertForClassification(tf_keras.Model):
    """ALBERT with one linear layer on its pooled output, for classification or regression.

    Args:
        config: the architecture.
        num_labels: K.
        is_regression: one output, which is the score itself; needs K = 1.
        use_pooled_output: False takes the mean of the last layer over all S positions, padding
            included, as albert_zh's flag of that name: there, S is part of the model's meaning.

    Call arguments: as `AlbertEncoder`.

    Returns: the encoder's dict, and
        logits: float32 [B, K]; [B] in regression.
        probabilities: float32 [B, K], their softmax; in regression the scores, [B, 1].
        predictions: int32 [B], the most probable label; in regression the scores, float32.
    """

    def __init__(
        self,
        config: AlbertConfig,
        num_labels: int,
        is_regression: bool = False,
        use_pooled_output: bool = True,
    ) -> None:
        super().__init__(name=type(self).__name__)
        if num_labels < 1 or (is_regression and num_labels != 1):
            expected = "1 for a regression" if is_regression else "1 or more"
            raise ValueError(f"num_labels={num_labels}: expected {expected}")
        self.config, self.is_regression = config, is_regression
        self.use_pooled_output = use_pooled_output
        self.encoder = AlbertEncoder(config)
        # albert_zh's pre-LN stack ends without a norm; its fine-tuning programs add this one.
        is_unnormalized = config.ln_type == "preln"
        size = config.hidden_size
        self.norm = LayerNorm(config, "loss/LayerNorm", size) if is_unnormalized else None
        self.classifier = _output_layer(config, num_labels)

    def call(self, inputs, training=False, dropout_seed=None):
        encoder_seed, seeds = head_seeds(training, dropout_seed)
        outputs = self.encoder(inputs, training=training, dropout_seed=encoder_seed)
        x = outputs["pooled_output"]  # [B, H]
        if not self.use_pooled_output:
            x = tf.reduce_mean(outputs["sequence_output"], axis=1)  # [B, H]
        x = x if self.norm is None else self.norm(x)
        logits = self.classifier(dropout(x, CLASSIFICATION_DROPOUT, seeds))  # [B, K]
        if self.is_regression:
            scores = logits[:, 0]  # [B]
            return outputs | {"logits": scores, "probabilities": logits, "predictions": scores}
        return outputs | _choose(logits)


class AlbertForMultipleChoice(tf_keras.Model):
    """ALBERT with one logit for each of a question's options (RACE).

    Args:
        config: the architecture.
        dropout_prob: of the pooled output, in [0, 1).

    Call arguments: as `AlbertEncoder`, each input [B, C, S]. Where questions have different
        numbers of options, C is the largest, and options that a question lacks are all padding.

    Returns: the encoder's dict for B·C sequences, and `logits` and `probabilities`,
        float32 [B, C], 0 probability where there is no option; `predictions` int32 [B].
    """

    def __init__(self, config: AlbertConfig, dropout_prob: float = 0.1) -> None:
        super().__init__(name=type(self).__name__)
        if not 0 <= dropout_prob < 1:
            raise ValueError(f"dropout_prob={dropout_prob} is not in [0, 1)")
        self.config, self.dropout_prob = config, dropout_prob
        self.encoder = AlbertEncoder(config)
        self.classifier = _output_layer(config, 1)

    def call(self, inputs, training=False, dropout_seed=None):
        encoder_seed, seeds = head_seeds(training, dropout_seed)
        names = {"input_ids", "input_mask", "segment_ids"} & set(inputs)
        flat = {name: _join_first_axes(inputs[name]) for name in names}  # [B·C, S] each
        outputs = self.encoder(flat, training=training, dropout_seed=encoder_seed)
        x = dropout(outputs["pooled_output"], self.dropout_prob, seeds)  # [B·C, H]
        logits = tf.reshape(self.classifier(x), tf.shape(inputs["input_ids"])[:2])  # [B, C]
        if "input_mask" in inputs:
            exists = tf.reduce_any(inputs["input_mask"] > 0, axis=-1)  # [B, C]
            logits = tf.where(exists, logits, MASKED_SCORE)  # [B, C]
        return outputs | _choose(logits)


def _join_first_axes(x: tf.Tensor) -> tf.Tensor:
    return tf.reshape(x, (-1, x.shape[-1] or tf.shape(x)[-1]))  # [B·C, S]


def _choose(logits: tf.Tensor) -> dict[str, tf.Tensor]:
    """What is read off logits [B, K]."""
    return {
        "logits": logits,
        "probabilities": tf.nn.softmax(logits),  # [B, K]
        "predictions": tf.argmax(logits, axis=-1, output_type=tf.int32),  # [B]
    }


def classification_losses(logits: tf.Tensor, label_ids: tf.Tensor) -> tf.Tensor:
    """Cross-entropy of each example, float32 [B], of logits [B, K] and label ids [B]."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label_ids, logits=logits)


def regression_losses(scores: tf.Tensor, label_ids: tf.Tensor) -> tf.Tensor:
    """Squared error of each example, float32 [B], of scores [B] and labels [B]."""
    return tf.square(scores - tf.cast(label_ids, scores.dtype))


class AlbertForSpans(tf_keras.Model):
    """ALBERT with two logits for each position: an answer begins, or ends, here (SQuAD 1.1).

    As in Google's program every position counts, those of the question and the padding too.

    Args:
        config: the architecture.

    Call arguments: as `AlbertEncoder`.

    Returns: the encoder's dict, and `start_logits` and `end_logits`, float32 [B, S].
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(name=type(self).__name__)
        self.config = config
        self.encoder = AlbertEncoder(config)
        self.spans = _output_layer(config, 2, "cls/squad/")

    def call(self, inputs, training=False, dropout_seed=None):
        outputs = self.encoder(inputs, training=training, dropout_seed=dropout_seed)
        logits = self.spans(outputs["sequence_output"])  # [B, S, 2]
        return outputs | {"start_logits": logits[:, :, 0], "end_logits": logits[:, :, 1]}


class AlbertForAnswerableSpans(tf_keras.Model):
    """ALBERT with a head for questions that may have no answer (SQuAD 2.0).

    The head, which is XLNet's: where an answer begins; where it ends, given a beginning; and
    whether there is one, judged by the expected beginning and the first position.

    Args:
        config: the architecture.
        start_n_top: N, beginnings that are followed in prediction; S is at least as large.
        end_n_top: M, ends for each of these.
        dropout_prob: of the judgement's hidden layer, in [0, 1).

    Call arguments: as `AlbertEncoder`, `inputs` with `p_mask` int32 [B, S], 1 where no answer may
        begin or end; and with `start_positions` int32 [B] in training.

    Returns: the encoder's dict, and
        cls_logits: float32 [B], larger where there is no answer.
        start_log_probs: float32 [B, S].
        end_log_probs: float32 [B, S], given the true beginning; where `start_positions` is known.
        start_top_log_probs, start_top_index: float32, int32 [B, N], the best beginnings; these and
            the next two only outside training.
        end_top_log_probs, end_top_index: float32, int32 [B, N·M], the best ends of each.
    """

    def __init__(
        self,
        config: AlbertConfig,
        start_n_top: int = 5,
        end_n_top: int = 5,
        dropout_prob: float = 0.1,
    ) -> None:
        super().__init__(name=type(self).__name__)
        if start_n_top < 1 or end_n_top < 1 or not 0 <= dropout_prob < 1:
            raise ValueError(
                f"start_n_top={start_n_top}, end_n_top={end_n_top}: expected 1 or more; "
                f"dropout_prob={dropout_prob}: expected a number in [0, 1)"
            )
        self.config = config
        self.start_n_top, self.end_n_top = start_n_top, end_n_top
        self.encoder = AlbertEncoder(config)
        self.start = Dense(config, "start_logits/dense", config.hidden_size, 1)
        self.end = SpanEnd(config)
        self.answerability = Answerability(config, dropout_prob)

    def call(self, inputs, training=False, dropout_seed=None):
        encoder_seed, seeds = head_seeds(training, dropout_seed)
        outputs = self.encoder(inputs, training=training, dropout_seed=encoder_seed)
        x = outputs["sequence_output"]  # [B, S, H]
        p_mask = tf.cast(inputs["p_mask"], tf.float32)  # [B, S]
        start_logits = _forbid(tf.cast(self.start(x)[:, :, 0], tf.float32), p_mask)  # [B, S]
        start_log_probs = tf.nn.log_softmax(start_logits)  # [B, S]
        outputs["start_log_probs"] = start_log_probs
        outputs["cls_logits"] = self.answerability(x, tf.nn.softmax(start_logits), seeds)
        if "start_positions" in inputs:
            starts = tf.cast(inputs["start_positions"], tf.int32)[:, None]  # [B, 1]
            outputs["end_log_probs"] = self.end(x, starts, p_mask)[:, 0]  # [B, S]
        if not training:
            log_probs, starts = tf.math.top_k(start_log_probs, self.start_n_top)  # [B, N]
            ends = tf.math.top_k(self.end(x, starts, p_mask), self.end_n_top)  # [B, N, M]
            count = self.start_n_top * self.end_n_top
            outputs["start_top_log_probs"], outputs["start_top_index"] = log_probs, starts
            outputs["end_top_log_probs"] = tf.reshape(ends.values, (-1, count))  # [B, N·M]
            outputs["end_top_index"] = tf.reshape(ends.indices, (-1, count))  # [B, N·M]
        return outputs


class SpanEnd(AlbertLayer):
    """Where an answer ends, given where it begins.

    Call arguments: `x` float [B, S, H]; `starts` int32 [B, N]; `p_mask` float32 [B, S].
    Returns: log-probabilities, float32 [B, N, S].
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__(config)
        size = config.hidden_size
        self.hidden = Dense(config, "end_logits/dense_0", 2 * size, size)
        self.norm = LayerNorm(config, "end_logits/LayerNorm", size)
        self.output_layer = Dense(config, "end_logits/dense_1", size, 1)

    def call(self, x, starts, p_mask):
        # Google's layer takes [end ; start] for every pair: its halves apart are the same for less.
        for_end, for_start = tf.split(self.hidden.kernel, 2)  # [H, H] each
        ends = tf.matmul(x, for_end) + tf.cast(self.hidden.bias, x.dtype)  # [B, S, H]
        start = tf.matmul(tf.gather(x, starts, batch_dims=1), for_start)  # [B, N, H]
        hidden = self.norm(tf.math.tanh(ends[:, None] + start[:, :, None]))  # [B, N, S, H]
        # Three axes only: TensorFlow 2.20 writes beyond the result when [B, 1, S, H] meets [H, 1].
        joined = tf.reshape(hidden, (tf.shape(x)[0], -1, x.shape[-1]))  # [B, N·S, H]
        logits = tf.reshape(self.output_layer(joined), tf.shape(hidden)[:-1])  # [B, N, S]
        logits = _forbid(tf.cast(logits, tf.float32), p_mask[:, None])  # [B, N, S]
        return tf.nn.log_softmax(logits)  # [B, N, S]


class Answerability(AlbertLayer):
    """Whether there is no answer, float32 [B], from the beginning to be expected and [CLS].

    Call arguments: `x` float [B, S, H]; `start_probs` float32 [B, S]; `seeds` int32 [1, 2] or None.
    """

    def __init__(self, config: AlbertConfig, dropout_prob: float) -> None:
        super().__init__(config)
        size, self.dropout_prob = config.hidden_size, dropout_prob
        self.hidden = Dense(config, "answer_class/dense_0", 2 * size, size)
        self.kernel = self.add_kernel("answer_class/dense_1/kernel", size, 1)  # without a bias

    def call(self, x, start_probs, seeds=None):
        weights = tf.cast(start_probs, x.dtype)[:, None]  # [B, 1, S]
        expected = tf.matmul(weights, x)[:, 0]  # [B, H]
        hidden = tf.math.tanh(self.hidden(tf.concat((expected, x[:, 0]), axis=-1)))  # [B, H]
        hidden = dropout(hidden, self.dropout_prob, seeds)
        return tf.cast(tf.matmul(hidden, self.kernel)[:, 0], tf.float32)  # [B]


def _forbid(logits: tf.Tensor, p_mask: tf.Tensor) -> tf.Tensor:
    return logits * (1 - p_mask) + FORBIDDEN_SCORE * p_mask


def span_losses(
    outputs: dict[str, tf.Tensor], start_positions: tf.Tensor, end_positions: tf.Tensor
) -> tf.Tensor:
    """Mean cross-entropy of start and end of each example, float32 [B], of `AlbertForSpans`."""
    start = classification_losses(outputs["start_logits"], start_positions)  # [B]
    return (start + classification_losses(outputs["end_logits"], end_positions)) / 2


def answerable_span_losses(
    outputs: dict[str, tf.Tensor],
    start_positions: tf.Tensor,
    end_positions: tf.Tensor,
    is_impossible: tf.Tensor,
) -> tf.Tensor:
    """Losses of each example, float32 [B], of `AlbertForAnswerableSpans` with true beginnings.

    Half the cross-entropies of start and end, which are at [CLS] where there is no answer, and
    half that of having none.
    """
    start = tf.gather(outputs["start_log_probs"], start_positions, batch_dims=1)  # [B]
    end = tf.gather(outputs["end_log_probs"], end_positions, batch_dims=1)  # [B]
    none = tf.nn.sigmoid_cross_entropy_with_logits(
        labels=tf.cast(is_impossible, tf.float32), logits=outputs["cls_logits"]
    )  # [B]
    return 0.5 * (none - start - end)
