"""Models for fine-tuning: an ALBERT encoder with a task-specific head.

    AlbertForClassification       classification or regression of texts and text pairs
    AlbertForMultipleChoice       multiple-choice questions (RACE)
    AlbertForTokenClassification  a label for each token, as in named entity recognition
    AlbertForSpans                extractive question answering (SQuAD 1.1)
    AlbertForAnswerableSpans      the same with unanswerable questions (SQuAD 2.0)

These are Keras models with the encoder's inputs. Most return logits, so `compile`, `fit`,
`evaluate` and `predict` work with Keras' built-in losses (`from_logits=True`), of which `compile`
takes the head's own if none is given. The weights have the names used in Google's fine-tuned
checkpoints, so these can be loaded. `losses.py` has the losses of Google's programs.

Dimensions: B batch size, S sequence length, H hidden size, K labels, C choices; N starts and M ends
in the beam.
"""

from __future__ import annotations

import abc
import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf
import tf_keras

from albert_tf.model.config import AlbertConfig
from albert_tf.model.inputs import Features, Inputs, one_of, read_inputs, tokens_of
from albert_tf.model.layers import (
    AlbertLayer,
    LayerNorm,
    LayerOptions,
    Linear,
    OutputLayer,
    call_layer,
    register,
)
from albert_tf.model.modeling import AlbertModel, Outputs, add_layer_outputs
from albert_tf.model.ops import MASKED_SCORE, Seed, Seeds, dropout, dropout_seeds, sizes_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Standard deviation of new output weights. As in Google's code, the config does not change it.
HEAD_STDDEV = 0.02
FORBIDDEN_SCORE = -1e30  # at positions where no answer may start or end, as in Google's code
CLASSIFICATION_DROPOUT = 0.1  # on the pooled output, as in Google's and albert_zh's programs


def _no_positions(tokens: tf.Tensor) -> tf.Tensor:
    """Returns empty positions, int32 [B, 0], for heads that use only [CLS] of the last layer."""
    return tf.zeros((tf.shape(tokens)[0], 0), tf.int32)


def _check_count(num_labels: object) -> None:
    """Raises ValueError for a number of labels that is no number, or 0."""
    if not isinstance(num_labels, numbers.Integral) or num_labels < 1:
        raise ValueError(f"num_labels={num_labels!r}: expected an integer, 1 or more")


def _checked_labels(labels: Sequence[str], count: int) -> list[str]:
    """Returns the names of labels; raises ValueError if they are not `count` different ones."""
    if len(labels) and not len(labels) == len(set(labels)) == count:
        raise ValueError(f"labels={list(labels)}: expected {count} different ones, or none")
    return list(labels)


def _cross_entropy() -> tf_keras.losses.Loss:
    """Returns the cross-entropy of logits [..., K] and the ids of classes [...]."""
    return tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _accuracy() -> tf_keras.metrics.Metric:
    """Returns the accuracy of logits [..., K] and the ids of classes [...]."""
    return tf_keras.metrics.SparseCategoricalAccuracy(name="accuracy")


class _Head(AlbertModel):
    """Base class of models whose `answer` computes the output from the encoder's outputs.

    Call arguments: as in `AlbertEncoder`.
    Returns: the output of `answer`. With `output_hidden_states` or `output_attentions`, a dict of
        that (logits are `logits`) and the encoder's `hidden_states` or `attentions`, as in all
        models of this module.
    """

    num_dropouts = 1  # in `answer`, which receives a seed for each
    reads_sequence = True  # whether `answer` needs more of the last layer than [CLS]

    @abc.abstractmethod
    def answer(
        self, encoded: Outputs, inputs: Inputs, seeds: Sequence[Seed]
    ) -> tf.Tensor | Outputs:
        """Returns the model's output for the encoder's outputs and the model's inputs."""

    def rows_of(self, inputs: Inputs) -> Inputs:
        """Returns the inputs of the encoder: those of the model, if these are rows."""
        return inputs

    def call(
        self,
        input_ids: tf.Tensor | Features,
        input_mask: tf.Tensor | None = None,
        segment_ids: tf.Tensor | None = None,
        training: bool | None = False,
        dropout_seed: Seeds = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> tf.Tensor | Outputs:
        inputs = read_inputs(input_ids, input_mask, segment_ids)
        encoder_seed, *seeds = dropout_seeds(training, dropout_seed, 1 + self.num_dropouts)
        rows = self.rows_of(inputs)
        reads_all = self.reads_sequence or output_attentions
        positions = None if reads_all else _no_positions(tokens_of(rows))  # [B, 0]
        encoded = self.encoder(
            rows,
            training=training,
            dropout_seed=encoder_seed,
            output_positions=positions,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
        )
        return add_layer_outputs(self.answer(encoded, inputs, seeds), encoded)


@register
class AlbertForClassification(_Head):
    """ALBERT with a linear layer on the pooled output, for classification or regression.

    Args:
        config: the model configuration.
        num_labels: K.
        is_regression: whether the single output is a score; requires K = 1.
        is_multi_label: whether any number of labels can be true of a text, so that the probability
            of each is the sigmoid of its logit; excludes `is_regression`.
        use_pooled_output: whether to use the pooled output. False uses the mean of the last layer
            over all S positions. As with albert_zh's flag of this name, the mean includes padding,
            so the output depends on the length that inputs are padded to.
        labels: names of the K labels, which `save_pretrained` saves; () if they have none.

    Call arguments: as in `AlbertEncoder`.
    Returns: logits, float32 [B, K].

    >>> config = AlbertConfig(97, hidden_size=12, num_attention_heads=4, intermediate_size=20)
    >>> AlbertForClassification(config, num_labels=3)(tf.ones((5, 11), tf.int32)).shape
    TensorShape([5, 3])
    """

    label_axes = ("B",)

    def __init__(
        self,
        config: AlbertConfig,
        num_labels: int,
        is_regression: bool = False,
        use_pooled_output: bool = True,
        is_multi_label: bool = False,
        labels: Sequence[str] = (),
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        _check_count(num_labels)
        super().__init__(config, **kwargs)
        if is_regression and num_labels != 1:
            raise ValueError(f"num_labels={num_labels}: expected 1 for regression")
        if is_regression and is_multi_label:
            raise ValueError("a model predicts a number or labels: is_regression or is_multi_label")
        self.num_labels, self.is_regression = num_labels, is_regression
        self.is_multi_label = is_multi_label
        self.labels = _checked_labels(labels, num_labels)
        self.use_pooled_output = self.uses_pooler = use_pooled_output
        self.reads_sequence = not use_pooled_output
        # albert_zh's pre-LN encoder does not normalize its output; its fine-tuning programs do.
        self.norm = None
        if config.ln_type == "preln":
            self.norm = LayerNorm(config, "loss/LayerNorm", config.hidden_size, name="norm")
        self.classifier = OutputLayer(
            config, "", num_labels, HEAD_STDDEV, name="classifier", dtype=self.dtype_policy
        )

    def answer(self, encoded: Outputs, inputs: Inputs, seeds: Sequence[Seed]) -> tf.Tensor:
        (seed,) = seeds
        if self.use_pooled_output:
            x = encoded["pooled_output"]  # [B, H]
        else:
            x = tf.reduce_mean(encoded["sequence_output"], axis=1)  # [B, H]
        x = x if self.norm is None else self.norm(x)  # [B, H]
        return self.classifier(dropout(x, CLASSIFICATION_DROPOUT, seed))  # [B, K]

    def compile_defaults(self) -> dict[str, object]:
        """Returns cross-entropy and accuracy, those of each label, or the squared error."""
        if self.is_regression:
            return {"loss": tf_keras.losses.MeanSquaredError()}
        if self.is_multi_label:
            accuracy = tf_keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)
            loss = tf_keras.losses.BinaryCrossentropy(from_logits=True)
            return {"loss": loss, "metrics": [accuracy]}
        if self.num_labels == 1:
            raise ValueError("num_labels=1: the cross-entropy of one label is 0; pass a loss")
        return {"loss": _cross_entropy(), "metrics": [_accuracy()]}


@register
class AlbertForMultipleChoice(_Head):
    """ALBERT with a logit for each option of a multiple-choice question (RACE).

    Args:
        config: the model configuration.
        dropout_prob: dropout rate for the pooled output, in [0, 1).

    Call arguments: as in `AlbertEncoder`, with inputs of the shape [B, C, S]. If questions differ
        in their number of options, C is the largest; missing options consist of padding only.
    Returns: logits, float32 [B, C]; the softmax of missing options is 0.

    >>> config = AlbertConfig(97, hidden_size=12, num_attention_heads=4, intermediate_size=20)
    >>> AlbertForMultipleChoice(config)(tf.ones((5, 4, 11), tf.int32)).shape
    TensorShape([5, 4])
    """

    reads_sequence = False
    input_axes = ("B", "C", "S")
    label_axes = ("B",)

    def __init__(
        self, config: AlbertConfig, dropout_prob: float = 0.1, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(config, **kwargs)
        self.dropout_prob = dropout_prob
        self.classifier = OutputLayer(
            config, "", 1, HEAD_STDDEV, name="classifier", dtype=self.dtype_policy
        )

    def rows_of(self, inputs: Inputs) -> Inputs:
        return {name: _join_first_axes(x) for name, x in inputs.items()}  # [B·C, …] each

    def answer(self, encoded: Outputs, inputs: Inputs, seeds: Sequence[Seed]) -> tf.Tensor:
        (seed,) = seeds
        x = dropout(encoded["pooled_output"], self.dropout_prob, seed)  # [B·C, H]
        logits = tf.reshape(self.classifier(x), tf.shape(tokens_of(inputs))[:2])  # [B, C]
        if "input_mask" in inputs:
            exists = tf.reduce_any(inputs["input_mask"] > 0, axis=-1)  # [B, C]
            logits = tf.where(exists, logits, MASKED_SCORE)  # [B, C]
        return logits

    def compile_defaults(self) -> dict[str, object]:
        """Returns the cross-entropy and the accuracy of the options."""
        return {"loss": _cross_entropy(), "metrics": [_accuracy()]}


def _join_first_axes(x: tf.Tensor) -> tf.Tensor:
    """Returns `x`, [B, C, …], as [B·C, …]."""
    return tf.reshape(x, (-1, *sizes_of(x)[2:]))


@register
class AlbertForTokenClassification(_Head):
    """ALBERT with a linear layer on every token, as for named entity recognition.

    Args:
        config: the model configuration.
        num_labels: K.
        dropout_prob: dropout rate for the output of the last layer, in [0, 1).
        labels: names of the K labels, which `save_pretrained` saves; () if they have none.

    Call arguments: as in `AlbertEncoder`.
    Returns: logits, float32 [B, S, K].

    >>> config = AlbertConfig(97, hidden_size=12, num_attention_heads=4, intermediate_size=20)
    >>> AlbertForTokenClassification(config, num_labels=3)(tf.ones((5, 11), tf.int32)).shape
    TensorShape([5, 11, 3])
    """

    uses_pooler = False
    label_axes = ("B", "S")

    def __init__(
        self,
        config: AlbertConfig,
        num_labels: int,
        dropout_prob: float = 0.1,
        labels: Sequence[str] = (),
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        _check_count(num_labels)
        super().__init__(config, **kwargs)
        self.classifier = OutputLayer(
            config, "", num_labels, HEAD_STDDEV, name="classifier", dtype=self.dtype_policy
        )
        self.num_labels, self.dropout_prob = num_labels, dropout_prob
        self.labels = _checked_labels(labels, num_labels)

    def answer(self, encoded: Outputs, inputs: Inputs, seeds: Sequence[Seed]) -> tf.Tensor:
        (seed,) = seeds
        x = dropout(encoded["sequence_output"], self.dropout_prob, seed)  # [B, S, H]
        return self.classifier(x)  # [B, S, K]

    def compile_defaults(self) -> dict[str, object]:
        """Returns cross-entropy and accuracy, which sample weights [B, S] restrict to tokens."""
        return {"loss": _cross_entropy(), "weighted_metrics": [_accuracy()]}


@register
class AlbertForSpans(_Head):
    """ALBERT with a start and an end logit for each position (SQuAD 1.1).

    As in Google's program the softmax covers all positions, including the question and padding.

    Args:
        config: the model configuration.

    Call arguments: as in `AlbertEncoder`.
    Returns: dict of `start_logits` and `end_logits`, float32 [B, S].

    >>> config = AlbertConfig(97, hidden_size=12, num_attention_heads=4, intermediate_size=20)
    >>> AlbertForSpans(config)(tf.ones((5, 11), tf.int32))["start_logits"].shape
    TensorShape([5, 11])
    """

    num_dropouts = 0
    uses_pooler = False

    def __init__(self, config: AlbertConfig, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(config, **kwargs)
        self.spans = OutputLayer(
            config, "cls/squad/", 2, HEAD_STDDEV, name="spans", dtype=self.dtype_policy
        )

    def answer(self, encoded: Outputs, inputs: Inputs, seeds: Sequence[Seed]) -> Outputs:
        start, end = tf.unstack(self.spans(encoded["sequence_output"]), axis=-1)  # [B, S] each
        return {"start_logits": start, "end_logits": end}

    def compile_defaults(self) -> dict[str, object]:
        """Returns the mean of the cross-entropies of start and end, and the accuracy of both."""
        names = ("start_logits", "end_logits")
        return {
            "loss": {name: _cross_entropy() for name in names},
            "loss_weights": dict.fromkeys(names, 0.5),
            "metrics": {name: _accuracy() for name in names},
        }


@register
class AlbertForAnswerableSpans(AlbertModel):
    """ALBERT with XLNet's question answering head, for unanswerable questions too (SQuAD 2.0).

    The head predicts the start of the answer, and then its end given the start. It also predicts
    whether the question is unanswerable, from [CLS] and from the mean of all positions, weighted by
    their start probabilities.

    Args:
        config: the model configuration.
        start_n_top: N, number of starts in the beam; at most S.
        end_n_top: M, number of ends for each start; at most S.
        dropout_prob: dropout rate for the hidden layer of the answerability classifier, in [0, 1).

    Call arguments: as in `AlbertEncoder`, and, as arguments or in the dict,
        p_mask: [B, S], 1 where no answer may start or end; zeros by default.
        start_positions: int32 [B], the true starts; required in training.

    Returns: dict of
        cls_logits: float32 [B], the logits for unanswerable.
        start_log_probs: float32 [B, S].
        end_log_probs: float32 [B, S], given the true starts; only with `start_positions`.
        start_top_log_probs, start_top_index: float32 and int32 [B, N], the best starts. These two
            and the next two are absent in training.
        end_top_log_probs, end_top_index: float32 and int32 [B, N·M], the best ends for each start.

    >>> config = AlbertConfig(97, hidden_size=12, num_attention_heads=4, intermediate_size=20)
    >>> outputs = AlbertForAnswerableSpans(config)(tf.ones((5, 11), tf.int32))
    >>> outputs["cls_logits"].shape, outputs["end_top_index"].shape
    (TensorShape([5]), TensorShape([5, 25]))
    """

    uses_pooler = False

    def __init__(
        self,
        config: AlbertConfig,
        start_n_top: int = 5,
        end_n_top: int = 5,
        dropout_prob: float = 0.1,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(config, **kwargs)
        self.start_n_top, self.end_n_top = start_n_top, end_n_top
        self.dropout_prob, dtype = dropout_prob, self.dtype_policy
        self.start = Linear(
            config, "start_logits/dense", config.hidden_size, 1, name="start", dtype=dtype
        )
        self.end = SpanEnd(config, name="end", dtype=dtype)
        self.answerability = Answerability(config, dropout_prob, name="answerability", dtype=dtype)

    def call(
        self,
        input_ids: tf.Tensor | Features,
        input_mask: tf.Tensor | None = None,
        segment_ids: tf.Tensor | None = None,
        p_mask: tf.Tensor | None = None,
        start_positions: tf.Tensor | None = None,
        training: bool | None = False,
        dropout_seed: Seeds = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> tf.Tensor | Outputs:
        p_mask = one_of(input_ids, "p_mask", p_mask)
        start_positions = one_of(input_ids, "start_positions", start_positions)
        encoder_seed, seed = dropout_seeds(training, dropout_seed, 2)  # [2] each
        encoded = self.encoder(
            input_ids,
            input_mask,
            segment_ids,
            training=training,
            dropout_seed=encoder_seed,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
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
        return add_layer_outputs(outputs, encoded)

    def compile_defaults(self) -> dict[str, object]:
        """Returns half the sum of the cross-entropies of start, end and answerability.

        Log-probabilities are logits whose softmax has been computed, and stay what they are.
        """
        loss = {
            "start_log_probs": _cross_entropy(),
            "end_log_probs": _cross_entropy(),
            "cls_logits": tf_keras.losses.BinaryCrossentropy(from_logits=True),
        }
        return {"loss": loss, "loss_weights": dict.fromkeys(loss, 0.5)}

    def _best_spans(self, x: tf.Tensor, start_log_probs: tf.Tensor, p_mask: tf.Tensor) -> Outputs:
        """Returns the beam: the best starts, and the best ends for each."""
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
    """Predicts the end of the answer given its start.

    Call arguments: `x` float [B, S, H]; `starts` int32 [B, N]; `p_mask` float32 [B, S].
    Returns: log-probabilities, float32 [B, N, S].
    """

    def __init__(self, config: AlbertConfig, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(config, **kwargs)
        size, dtype = config.hidden_size, self.dtype_policy
        self.hidden = Linear(
            config, "end_logits/dense_0", 2 * size, size, name="hidden", dtype=dtype
        )
        self.norm = LayerNorm(config, "end_logits/LayerNorm", size, name="norm")
        self.output_layer = Linear(
            config, "end_logits/dense_1", size, 1, name="output_layer", dtype=dtype
        )

    def call(self, x: tf.Tensor, starts: tf.Tensor, p_mask: tf.Tensor) -> tf.Tensor:
        hidden = self.norm(tf.math.tanh(self.join(x, starts)))  # [B, N, S, H]
        # 3-D because TensorFlow 2.20's matmul of [B, 1, S, H] and [H, 1] writes out of bounds.
        joined = tf.reshape(hidden, (tf.shape(x)[0], -1, x.shape[-1]))  # [B, N·S, H]
        logits = tf.reshape(self.output_layer(joined), tf.shape(hidden)[:-1])  # [B, N, S]
        logits = _forbid(tf.cast(logits, tf.float32), p_mask[:, None])  # [B, N, S]
        return tf.nn.log_softmax(logits)  # [B, N, S]

    def join(self, x: tf.Tensor, starts: tf.Tensor) -> tf.Tensor:
        """Returns `hidden` of [end ; start] for every pair of positions, float [B, N, S, H].

        Splitting the kernel of a `Linear` layer gives the same with far fewer operations.
        """
        start = tf.gather(x, starts, batch_dims=1)  # [B, N, H]
        if type(self.hidden) is not Linear:
            shape = tf.concat((tf.shape(starts), tf.shape(x)[1:]), axis=0)
            pair = [tf.broadcast_to(y, shape) for y in (x[:, None], start[:, :, None])]
            return call_layer(self.hidden, tf.concat(pair, -1), x.shape[-1])  # [B, N, S, H]
        for_end, for_start = tf.split(self.hidden.kernel, 2)  # [H, H] each
        ends = tf.matmul(x, for_end) + tf.cast(self.hidden.bias, x.dtype)  # [B, S, H]
        return ends[:, None] + tf.matmul(start, for_start)[:, :, None]  # [B, N, S, H]


@register
class Answerability(AlbertLayer):
    """Predicts whether a question is unanswerable, from the expected start and [CLS].

    Call arguments: `x` float [B, S, H]; `start_probs` float32 [B, S]; `training` and `dropout_seed`
        as in `AlbertEncoder`.
    Returns: logits, float32 [B].
    """

    def __init__(
        self, config: AlbertConfig, dropout_prob: float = 0.1, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(config, **kwargs)
        size, self.dropout_prob = config.hidden_size, dropout_prob
        self.hidden = Linear(
            config,
            "answer_class/dense_0",
            2 * size,
            size,
            name="hidden",
            dtype=self.dtype_policy,
        )
        self.kernel = self.add_kernel("answer_class/dense_1/kernel", size, 1)  # there is no bias

    def call(
        self,
        x: tf.Tensor,
        start_probs: tf.Tensor,
        training: bool | None = False,
        dropout_seed: Seeds = None,
    ) -> tf.Tensor:
        weights = tf.cast(start_probs, x.dtype)[:, None]  # [B, 1, S]
        expected = tf.matmul(weights, x)[:, 0]  # [B, H]
        hidden = tf.math.tanh(self.hidden(tf.concat((expected, x[:, 0]), axis=-1)))  # [B, H]
        (seed,) = dropout_seeds(training, dropout_seed, 1)  # [2]
        hidden = dropout(hidden, self.dropout_prob, seed)  # [B, H]
        return tf.cast(tf.matmul(hidden, self.kernel)[:, 0], tf.float32)  # [B]


def _forbid(logits: tf.Tensor, p_mask: tf.Tensor) -> tf.Tensor:
    return logits * (1 - p_mask) + FORBIDDEN_SCORE * p_mask
