"""Heads for fine-tuning: an encoder and what makes its output an answer.

    AlbertForClassification       texts and pairs of texts; regression too
    AlbertForMultipleChoice       questions with options
    AlbertForTokenClassification  a label for each token, as in named entity recognition
    AlbertForSpans                questions whose answer is a span of the text (SQuAD 1.1)
    AlbertForAnswerableSpans      the same, where there may be no answer (SQuAD 2.0)

They are Keras models: inputs are the encoder's, outputs are logits, so that `compile`, `fit`,
`evaluate` and `predict` work with Keras' own losses (`from_logits=True`). The weights carry the
names of Google's fine-tuned checkpoints, so that these load. Losses beside them are the official
programs', one number an example.

Letters: B batch, S sequence, H hidden, K labels, C choices; N starts, M ends of a beam.
"""

from __future__ import annotations

import abc
from typing import Any

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.kernels import MASKED_SCORE, dropout, dropout_seeds
from albert_tf.modeling import (
    AlbertLayer,
    AlbertModel,
    LayerNorm,
    Linear,
    OutputLayer,
    one_of,
    register,
    unpack,
)

HEAD_STDDEV = 0.02  # of new output weights, whatever initializer_range the config has, as Google's
FORBIDDEN_SCORE = -1e30  # of positions where no answer may begin or end, as Google's
CLASSIFICATION_DROPOUT = 0.1  # of the pooled output, in Google's and albert_zh's program alike


def _check_dropout(dropout_prob: float) -> None:
    if not 0 <= dropout_prob < 1:
        raise ValueError(f"dropout_prob={dropout_prob} is not in [0, 1)")


def _no_positions(input_ids: tf.Tensor) -> tf.Tensor:
    """Positions, int32 [B, 0], for heads that read nothing of the last layer but [CLS]."""
    return tf.zeros((tf.shape(input_ids)[0], 0), tf.int32)


class _Head(AlbertModel):
    """An encoder and `answer`, by which subclasses make their output of the encoder's outputs.

    Call arguments: as `AlbertEncoder`.
    Returns: the answer. With `output_hidden_states`, a tuple of it and the encoder's
        `hidden_states`, as in all models here.
    """

    num_dropouts = 1  # in `answer`, which gets a seed for each
    reads_sequence = True  # whether `answer` reads more of the last layer than [CLS]

    @abc.abstractmethod
    def answer(self, encoded, *seeds):
        """The model's output from a dict of the encoder's outputs."""

    def call(
        self,
        input_ids,
        input_mask=None,
        segment_ids=None,
        training=False,
        dropout_seed=None,
        output_hidden_states=False,
    ):
        inputs = unpack(input_ids, input_mask, segment_ids)  # [B, S] each
        encoder_seed, *seeds = dropout_seeds(training, dropout_seed, 1 + self.num_dropouts)
        positions = None if self.reads_sequence else _no_positions(inputs[0])  # [B, 0]
        encoded = self.encode(inputs, training, encoder_seed, output_hidden_states, positions)
        answer = self.answer(encoded, *seeds)
        return (answer, encoded["hidden_states"]) if output_hidden_states else answer


@register
class AlbertForClassification(_Head):
    """ALBERT with one linear layer on its pooled output, for classification or regression.

    Args:
        config: the architecture.
        num_labels: K.
        is_regression: one output, which is the score itself; needs K = 1.
        use_pooled_output: False takes the mean of the last layer over all S positions, padding
            included, as albert_zh's flag of that name: there, S is part of the model's meaning.

    Call arguments: as `AlbertEncoder`.
    Returns: logits, float32 [B, K].

    >>> config = AlbertConfig(97, hidden_size=12, num_attention_heads=4, intermediate_size=20)
    >>> AlbertForClassification(config, num_labels=3)(tf.ones((5, 11), tf.int32)).shape
    TensorShape([5, 3])
    """

    def __init__(
        self,
        config: AlbertConfig,
        num_labels: int,
        is_regression: bool = False,
        use_pooled_output: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        if num_labels < 1 or (is_regression and num_labels != 1):
            expected = "1 for a regression" if is_regression else "1 or more"
            raise ValueError(f"num_labels={num_labels}: expected {expected}")
        self.num_labels, self.is_regression = num_labels, is_regression
        self.use_pooled_output = use_pooled_output
        self.reads_sequence = not use_pooled_output
        # albert_zh's pre-LN stack ends without a norm; its fine-tuning programs add this one.
        self.norm = None
        if config.ln_type == "preln":
            self.norm = LayerNorm(config, "loss/LayerNorm", config.hidden_size, name="norm")
        self.classifier = OutputLayer(
            config, "", num_labels, HEAD_STDDEV, name="classifier", dtype=self.dtype_policy
        )

    def answer(self, encoded, seed):
        if self.use_pooled_output:
            x = encoded["pooled_output"]  # [B, H]
        else:
            x = tf.reduce_mean(encoded["sequence_output"], axis=1)  # [B, H]
        x = x if self.norm is None else self.norm(x)  # [B, H]
        return self.classifier(dropout(x, CLASSIFICATION_DROPOUT, seed))  # [B, K]


@register
class AlbertForMultipleChoice(AlbertModel):
    """ALBERT with one logit for each of a question's options (RACE).

    Args:
        config: the architecture.
        dropout_prob: of the pooled output, in [0, 1).

    Call arguments: as `AlbertEncoder`, each input [B, C, S]. Where questions have different
        numbers of options, C is the largest, and options that a question lacks are all padding.
    Returns: logits, float32 [B, C], with a softmax of 0 where there is no option.

    >>> config = AlbertConfig(97, hidden_size=12, num_attention_heads=4, intermediate_size=20)
    >>> AlbertForMultipleChoice(config)(tf.ones((5, 4, 11), tf.int32)).shape
    TensorShape([5, 4])
    """

    def __init__(self, config: AlbertConfig, dropout_prob: float = 0.1, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        _check_dropout(dropout_prob)
        self.dropout_prob = dropout_prob
        self.classifier = OutputLayer(
            config, "", 1, HEAD_STDDEV, name="classifier", dtype=self.dtype_policy
        )

    def call(
        self,
        input_ids,
        input_mask=None,
        segment_ids=None,
        training=False,
        dropout_seed=None,
        output_hidden_states=False,
    ):
        input_ids, input_mask, segment_ids = unpack(input_ids, input_mask, segment_ids)
        encoder_seed, seed = dropout_seeds(training, dropout_seed, 2)  # [2] each
        flat = [_join_first_axes(x) for x in (input_ids, input_mask, segment_ids)]  # [B·C, S] each
        outputs = self.encode(
            flat, training, encoder_seed, output_hidden_states, _no_positions(flat[0])
        )
        x = dropout(outputs["pooled_output"], self.dropout_prob, seed)  # [B·C, H]
        logits = tf.reshape(self.classifier(x), tf.shape(input_ids)[:2])  # [B, C]
        if input_mask is not None:
            exists = tf.reduce_any(input_mask > 0, axis=-1)  # [B, C]
            logits = tf.where(exists, logits, MASKED_SCORE)  # [B, C]
        return (logits, outputs["hidden_states"]) if output_hidden_states else logits


def _join_first_axes(x: tf.Tensor | None) -> tf.Tensor | None:
    return None if x is None else tf.reshape(x, (-1, x.shape[-1] or tf.shape(x)[-1]))  # [B·C, S]


@register
class AlbertForTokenClassification(_Head):
    """ALBERT with one linear layer on every token, as for named entity recognition.

    Args:
        config: the architecture.
        num_labels: K.
        dropout_prob: of the last layer's output, in [0, 1).

    Call arguments: as `AlbertEncoder`.
    Returns: logits, float32 [B, S, K].

    >>> config = AlbertConfig(97, hidden_size=12, num_attention_heads=4, intermediate_size=20)
    >>> AlbertForTokenClassification(config, num_labels=3)(tf.ones((5, 11), tf.int32)).shape
    TensorShape([5, 11, 3])
    """

    def __init__(
        self, config: AlbertConfig, num_labels: int, dropout_prob: float = 0.1, **kwargs: Any
    ) -> None:
        super().__init__(config, **kwargs)
        if num_labels < 1:
            raise ValueError(f"num_labels={num_labels}: expected 1 or more")
        _check_dropout(dropout_prob)
        self.classifier = OutputLayer(
            config, "", num_labels, HEAD_STDDEV, name="classifier", dtype=self.dtype_policy
        )
        self.num_labels, self.dropout_prob = num_labels, dropout_prob

    def answer(self, encoded, seed):
        x = dropout(encoded["sequence_output"], self.dropout_prob, seed)  # [B, S, H]
        return self.classifier(x)  # [B, S, K]


def classification_losses(logits: tf.Tensor, label_ids: tf.Tensor) -> tf.Tensor:
    """Cross-entropy of each example, float32 [B], of logits [B, K] and label ids [B]."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label_ids, logits=logits)


def regression_losses(scores: tf.Tensor, label_ids: tf.Tensor) -> tf.Tensor:
    """Squared error of each example, float32 [B], of scores [B] and labels [B]."""
    return tf.square(scores - tf.cast(label_ids, scores.dtype))


@register
class AlbertForSpans(_Head):
    """ALBERT with two logits for each position: an answer begins, or ends, here (SQuAD 1.1).

    As in Google's program every position counts, those of the question and the padding too.

    Args:
        config: the architecture.

    Call arguments: as `AlbertEncoder`.
    Returns: dict of `start_logits` and `end_logits`, float32 [B, S].

    >>> config = AlbertConfig(97, hidden_size=12, num_attention_heads=4, intermediate_size=20)
    >>> AlbertForSpans(config)(tf.ones((5, 11), tf.int32))["start_logits"].shape
    TensorShape([5, 11])
    """

    num_dropouts = 0

    def __init__(self, config: AlbertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.spans = OutputLayer(
            config, "cls/squad/", 2, HEAD_STDDEV, name="spans", dtype=self.dtype_policy
        )

    def answer(self, encoded):
        start, end = tf.unstack(self.spans(encoded["sequence_output"]), axis=-1)  # [B, S] each
        return {"start_logits": start, "end_logits": end}


@register
class AlbertForAnswerableSpans(AlbertModel):
    """ALBERT with a head for questions that may have no answer (SQuAD 2.0).

    The head, which is XLNet's: where an answer begins; where it ends, given a beginning; and
    whether there is one, judged by the expected beginning and the first position.

    Args:
        config: the architecture.
        start_n_top: N, beginnings that are followed in prediction; S is at least as large.
        end_n_top: M, ends for each of these.
        dropout_prob: of the judgement's hidden layer, in [0, 1).

    Call arguments: as `AlbertEncoder`, and, here or in the dict,
        p_mask: [B, S], 1 where no answer may begin or end; default nowhere.
        start_positions: int32 [B], the true beginnings; needed in training.

    Returns: dict of
        cls_logits: float32 [B], larger where there is no answer.
        start_log_probs: float32 [B, S].
        end_log_probs: float32 [B, S], given the true beginning; where `start_positions` is known.
        start_top_log_probs, start_top_index: float32, int32 [B, N], the best beginnings; these and
            the next two only outside training.
        end_top_log_probs, end_top_index: float32, int32 [B, N·M], the best ends of each.

    >>> config = AlbertConfig(97, hidden_size=12, num_attention_heads=4, intermediate_size=20)
    >>> outputs = AlbertForAnswerableSpans(config)(tf.ones((5, 11), tf.int32))
    >>> outputs["cls_logits"].shape, outputs["end_top_index"].shape
    (TensorShape([5]), TensorShape([5, 25]))
    """

    def __init__(
        self,
        config: AlbertConfig,
        start_n_top: int = 5,
        end_n_top: int = 5,
        dropout_prob: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        if start_n_top < 1 or end_n_top < 1:
            raise ValueError(
                f"start_n_top={start_n_top}, end_n_top={end_n_top}: expected 1 or more"
            )
        _check_dropout(dropout_prob)
        self.start_n_top, self.end_n_top = start_n_top, end_n_top
        self.dropout_prob, dtype = dropout_prob, self.dtype_policy
        self.start = Linear(
            config, "start_logits/dense", config.hidden_size, 1, name="start", dtype=dtype
        )
        self.end = SpanEnd(config, name="end", dtype=dtype)
        self.answerability = Answerability(config, dropout_prob, name="answerability", dtype=dtype)

    def call(
        self,
        input_ids,
        input_mask=None,
        segment_ids=None,
        p_mask=None,
        start_positions=None,
        training=False,
        dropout_seed=None,
        output_hidden_states=False,
    ):
        p_mask = one_of(input_ids, "p_mask", p_mask)
        start_positions = one_of(input_ids, "start_positions", start_positions)
        encoder_seed, seed = dropout_seeds(training, dropout_seed, 2)  # [2] each
        encoded = self.encode(
            (input_ids, input_mask, segment_ids), training, encoder_seed, output_hidden_states
        )
        x = encoded["sequence_output"]  # [B, S, H]
        if p_mask is None:
            p_mask = tf.zeros(tf.shape(x)[:2])  # [B, S]
        p_mask = tf.cast(p_mask, tf.float32)  # [B, S]
        start_logits = _forbid(tf.cast(self.start(x)[:, :, 0], tf.float32), p_mask)  # [B, S]
        start_log_probs = tf.nn.log_softmax(start_logits)  # [B, S]
        outputs = {
            "start_log_probs": start_log_probs,
            "cls_logits": self.answerability(x, tf.nn.softmax(start_logits), training, seed),
        }
        if start_positions is not None:
            starts = tf.cast(start_positions, tf.int32)[:, None]  # [B, 1]
            outputs["end_log_probs"] = self.end(x, starts, p_mask)[:, 0]  # [B, S]
        if not training:
            outputs |= self._best_spans(x, start_log_probs, p_mask)
        return (outputs, encoded["hidden_states"]) if output_hidden_states else outputs

    def _best_spans(self, x, start_log_probs, p_mask):
        """The beam: the best beginnings, and the best ends of each."""
        log_probs, starts = tf.math.top_k(start_log_probs, self.start_n_top)  # [B, N]
        ends = tf.math.top_k(self.end(x, starts, p_mask), self.end_n_top)  # [B, N, M]
        count = self.start_n_top * self.end_n_top
        return {
            "start_top_log_probs": log_probs,
            "start_top_index": starts,
            "end_top_log_probs": tf.reshape(ends.values, (-1, count)),  # [B, N·M]
            "end_top_index": tf.reshape(ends.indices, (-1, count)),  # [B, N·M]
        }


@register
class SpanEnd(AlbertLayer):
    """Where an answer ends, given where it begins.

    Call arguments: `x` float [B, S, H]; `starts` int32 [B, N]; `p_mask` float32 [B, S].
    Returns: log-probabilities, float32 [B, N, S].
    """

    def __init__(self, config: AlbertConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        size, dtype = config.hidden_size, self.dtype_policy
        self.hidden = Linear(
            config, "end_logits/dense_0", 2 * size, size, name="hidden", dtype=dtype
        )
        self.norm = LayerNorm(config, "end_logits/LayerNorm", size, name="norm")
        self.output_layer = Linear(
            config, "end_logits/dense_1", size, 1, name="output_layer", dtype=dtype
        )

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


@register
class Answerability(AlbertLayer):
    """Whether there is no answer, float32 [B], from the beginning to be expected and [CLS].

    Call arguments: `x` float [B, S, H]; `start_probs` float32 [B, S]; `training` and `dropout_seed`
        as in `AlbertEncoder`.
    """

    def __init__(self, config: AlbertConfig, dropout_prob: float = 0.1, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        size, self.dropout_prob = config.hidden_size, dropout_prob
        self.hidden = Linear(
            config,
            "answer_class/dense_0",
            2 * size,
            size,
            "tanh",
            name="hidden",
            dtype=self.dtype_policy,
        )
        self.kernel = self.add_kernel("answer_class/dense_1/kernel", size, 1)  # without a bias

    def call(self, x, start_probs, training=False, dropout_seed=None):
        weights = tf.cast(start_probs, x.dtype)[:, None]  # [B, 1, S]
        expected = tf.matmul(weights, x)[:, 0]  # [B, H]
        hidden = self.hidden(tf.concat((expected, x[:, 0]), axis=-1))  # [B, H]
        (seed,) = dropout_seeds(training, dropout_seed, 1)  # [2]
        hidden = dropout(hidden, self.dropout_prob, seed)  # [B, H]
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
