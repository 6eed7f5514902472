"""Accelerated forms in every mode: with and without dropout, compiled or not, in all precisions.

Hypothesis draws operations, models and modes. Each operation is held to its plain form. A whole
model is held to the forward pass in NumPy (`numpy_albert`), its gradients to those of its plain
form. `--hypothesis-profile=thorough` draws ten times as many.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, note
from hypothesis import strategies as st

from albert_tf import kernels
from albert_tf.checkpoints.names import variable_name
from albert_tf.config import ACTIVATIONS, AlbertConfig
from albert_tf.modeling import AlbertForPretraining
from tests.conftest import TINY_SHAPE
from tests.numpy_albert import NumpyAlbert

RATES = st.sampled_from((0.0, 0.3))


@dataclasses.dataclass(frozen=True)
class Mode:
    """How TensorFlow runs a function, and on which side of the thresholds on width it is."""

    run: str  # "eager", "graph" or "xla"
    compiled_from: int  # width from which a fused operation is compiled inside a graph
    folded_from: int  # width below which an axis is reduced as it is
    dtype: str

    @property
    def rounding(self):
        """Largest error that rounding explains; a missing factor of dropout makes 0.3 or more."""
        return 2e-5 if self.dtype == "float32" else 0.04

    @contextlib.contextmanager
    def thresholds(self):
        with (
            mock.patch.object(kernels, "MIN_COMPILED_WIDTH", self.compiled_from),
            mock.patch.object(kernels, "_MIN_FOLDED_WIDTH", self.folded_from),
        ):
            yield

    def __call__(self, function, *arguments):
        """Returns the function's results in this mode."""
        if self.run != "eager":
            function = tf.function(function, jit_compile=self.run == "xla", autograph=False)
        with self.thresholds():
            return function(*arguments)


MODES = st.builds(
    Mode,
    st.sampled_from(("graph", "eager", "xla")),
    compiled_from=st.sampled_from((1, 10**6)),
    folded_from=st.sampled_from((2, 64)),
    dtype=st.sampled_from(("float32", "bfloat16")),
)


def normal(draw, *shape):
    seed = draw(st.integers(0, 2**31 - 1))
    return tf.random.stateless_normal(shape, (seed, 7), stddev=1.5)


def draw_seed(draw):
    """Returns a seed for dropout; None, as outside training, in half of the cases."""
    seed = draw(st.none() | st.integers(0, 2**31 - 1))
    return None if seed is None else tf.constant((seed, 11))


def draw_sizes(draw):
    """Returns a batch size, a sequence length, a number of heads and a head size."""
    head_size = st.sampled_from((3, 8, 32))
    return tuple(map(draw, (st.integers(1, 5), st.integers(1, 11), st.integers(1, 4), head_size)))


def draw_mask(draw, B, S):
    """Returns an attention mask whose rows have one token or more; or None."""
    if draw(st.booleans()):
        return None
    lengths = draw(st.lists(st.integers(1, S), min_size=B, max_size=B))
    return tf.cast(tf.range(S) < tf.constant(lengths)[:, None], tf.int32)  # [B, S]


def attend(draw):
    B, S, A, D = draw_sizes(draw)
    mask, rate, seed = draw_mask(draw, B, S), draw(RATES), draw_seed(draw)
    Q = draw(st.integers(1, S))
    tensors = normal(draw, B, A, Q, D), normal(draw, B, A, S, D), normal(draw, B, A, S, D)
    return lambda *qkv: kernels.attend(*qkv, mask, rate, seed), *tensors


def add_and_norm(draw):
    B, S, A, D = draw_sizes(draw)
    rate, seed, has_norm = draw(RATES), draw_seed(draw), draw(st.booleans())

    def run(x, bias, residual, beta, gamma):
        norm = (beta, gamma) if has_norm else None
        return kernels.add_and_norm(x, bias, residual, norm, rate, seed)

    vectors = (normal(draw, A * D) for _ in range(3))
    bias, beta, gamma = vectors
    rows = B, S, A * D
    return run, normal(draw, *rows), bias, normal(draw, *rows), beta, gamma


def layer_norm(draw):
    B, S, A, D = draw_sizes(draw)
    H = A * D
    return kernels.layer_norm, normal(draw, B, S, H), normal(draw, H), normal(draw, H)


def activate(draw):
    B, S, A, D = draw_sizes(draw)
    name = draw(st.sampled_from(ACTIVATIONS))
    tensors = normal(draw, B, S, A * D), normal(draw, A * D)
    return functools.partial(kernels.activate, name=name), *tensors


def feed_forward(draw):
    B, S, A, D = draw_sizes(draw)
    name, H, K = draw(st.sampled_from(ACTIVATIONS)), 12, 7

    def run(x, kernel, bias, output_kernel):
        return kernels.feed_forward(x, kernel, bias, name, output_kernel)

    kernel, output_kernel = normal(draw, H, A * D) / H, normal(draw, A * D, K) / H
    return run, normal(draw, B, S, H), kernel, normal(draw, A * D), output_kernel


def add_bias(draw):
    B, S, A, D = draw_sizes(draw)
    return kernels.add_bias, normal(draw, B, S, A * D), normal(draw, A * D)


def project_heads(draw):
    B, S, A, D = draw_sizes(draw)
    Q, H = draw(st.none() | st.integers(1, S)), 12
    kernel, bias = normal(draw, H, 3 * A * D), normal(draw, 3 * A * D)
    x = normal(draw, B, S, H)
    if Q is None:
        return lambda x, *weights: kernels.project_heads(x, None, *weights, A), x, kernel, bias
    run = functools.partial(kernels.project_heads, heads=A)
    return run, x, normal(draw, B, Q, H), kernel, bias


def cross_entropy(draw):
    B, S, A, D = draw_sizes(draw)
    labels = tf.random.stateless_uniform((B, S), (3, 5), 0, A * D, tf.int32)
    return lambda logits: kernels.cross_entropy(logits, labels), normal(draw, B, S, A * D)


OPERATIONS = (
    attend,
    add_and_norm,
    layer_norm,
    activate,
    feed_forward,
    add_bias,
    project_heads,
    cross_entropy,
)


def values_and_gradients(function, *tensors):
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        results = tf.nest.flatten(function(*tensors))
        # Not the plain sum: that of a softmax has no gradient.
        total = tf.add_n([tf.reduce_sum(tf.sin(tf.cast(x, tf.float32))) for x in results])
    return results, tape.gradient(total, tensors, unconnected_gradients="zero")


def error(found, expected, scale=1.0):
    """Returns the largest difference, relative to the largest of the expected values.

    Values that are all below `scale` are compared to that: some gradients are 0.
    """
    found, expected = (np.asarray(tf.cast(x, tf.float64)) for x in (found, expected))
    assert found.shape == expected.shape
    return np.abs(found - expected).max() / max(np.abs(expected).max(), scale)


@pytest.mark.parametrize("operation", OPERATIONS)
@given(data=st.data(), mode=MODES)
def test_operations_equal_their_plain_form(operation, data, mode):
    """In half precision, they are as close to the results in float32 as the plain form."""
    function, *tensors = operation(data.draw)
    # Activations and kernels are half precision, biases and LayerNorm's weights always float32.
    tensors = [tf.cast(x, mode.dtype) if x.shape.rank > 1 else x for x in tensors]
    with kernels.plain():
        plain = values_and_gradients(function, *tensors)
        full = values_and_gradients(function, *(tf.cast(x, tf.float32) for x in tensors))
    found = mode(functools.partial(values_and_gradients, function), *tensors)
    for ours, theirs, expected in zip(*map(tf.nest.flatten, (found, plain, full)), strict=True):
        assert ours.dtype == theirs.dtype
        assert error(ours, expected) <= mode.rounding + 2 * error(theirs, expected)


@st.composite
def configs(draw):
    """Returns a config of any layout, with each of its options."""
    changes = {
        "num_hidden_layers": draw(st.integers(1, 2)),
        "hidden_act": draw(st.sampled_from(ACTIVATIONS)),
        "hidden_dropout_prob": draw(RATES),
        "attention_probs_dropout_prob": draw(RATES),
        "layout": draw(st.sampled_from(("google", "albert_zh"))),
        "num_hidden_groups": 1,
    }
    if changes["layout"] == "albert_zh":
        changes["ln_type"] = draw(st.sampled_from(("postln", "preln")))
    else:
        changes["num_hidden_groups"] = draw(st.integers(1, changes["num_hidden_layers"]))
        changes["inner_group_num"] = draw(st.integers(1, 2))
        changes["embedding_size"] = draw(st.sampled_from((8, 12)))
    return AlbertConfig(**TINY_SHAPE | changes)


def randomize(model):
    """Gives all weights values far from their initial ones."""
    for number, variable in enumerate(model.variables):
        values = tf.random.stateless_normal(variable.shape, (3, number), stddev=0.4)
        variable.assign(values + (1.0 if "gamma" in variable.name else 0.0))


def outputs_of(model, inputs, training):
    seed = tf.constant((5, 7)) if training else None
    outputs = model(inputs, training=training, dropout_seed=seed)
    return outputs["masked_lm_logits"], outputs["sentence_order_logits"]


def outputs_and_gradients(model, inputs, training):
    """Returns the outputs, and the gradients of a weighted sum of them."""
    random = np.random.default_rng(2)
    with tf.GradientTape() as tape:
        outputs = outputs_of(model, inputs, training)
        directions = [random.standard_normal(x.shape, np.float32) for x in outputs]
        weighted = [
            tf.reduce_mean(tf.cast(x, tf.float32) * direction)
            for x, direction in zip(outputs, directions, strict=True)
        ]
        total = tf.add_n(weighted)
    gradients = tape.gradient(total, model.trainable_variables)
    return outputs, [tf.convert_to_tensor(gradient) for gradient in gradients]


def numpy_outputs(model, inputs, keeps):
    weights = {variable_name(v): v.numpy() for v in model.variables}
    ids = inputs["input_ids"]
    return NumpyAlbert(model.config, weights, keeps)(
        ids,
        inputs.get("input_mask", np.ones_like(ids)),
        inputs["segment_ids"],
        inputs.get("masked_lm_positions"),
    )


@pytest.mark.timeout(600)
@given(
    config=configs(),
    mode=MODES,
    training=st.booleans(),
    recompute=st.booleans(),
    left_out=st.sets(st.sampled_from(("input_mask", "masked_lm_positions"))),
)
def test_models_equal_numpy_and_their_plain_form(
    tiny_batch, config, mode, training, recompute, left_out
):
    dtype = "float32" if mode.dtype == "float32" else "mixed_bfloat16"
    model, full = (AlbertForPretraining(config, dtype=name) for name in (dtype, "float32"))
    randomize(model)
    randomize(full)
    names = {"input_ids", "input_mask", "segment_ids", "masked_lm_positions"} - left_out
    inputs = {name: tiny_batch[name] for name in names}
    keeps, keep_mask = [], kernels.keep_mask

    def record(*arguments):
        keeps.append(keep_mask(*arguments))
        return keeps[-1]

    with kernels.plain():
        with mock.patch.object(kernels, "keep_mask", record):
            outputs_of(full, inputs, training)
        expected = numpy_outputs(full, inputs, [x.numpy() for x in keeps] if training else None)
        _, gradients = outputs_and_gradients(full, inputs, training)
        rounded, rounded_gradients = outputs_and_gradients(model, inputs, training)
    model.encoder.recompute = recompute
    tensors = {name: tf.constant(value) for name, value in inputs.items()}
    found, found_gradients = mode(
        lambda batch: outputs_and_gradients(model, batch, training), tensors
    )
    note(
        f"errors of the plain form: {[error(x, y) for x, y in zip(rounded, expected, strict=True)]}"
    )
    for ours, plain, theirs in zip(found, rounded, expected, strict=True):
        assert error(ours, theirs) <= mode.rounding + 2 * error(plain, theirs)
        assert mode.dtype != "float32" or error(plain, theirs) <= 2e-5
    # The gradient of the keys' bias is 0; in bfloat16, rounding leaves a tenth of this.
    scale = 0.1 * max(np.abs(x).max() for x in gradients)
    for ours, plain, theirs in zip(found_gradients, rounded_gradients, gradients, strict=True):
        assert error(ours, theirs, scale) <= 10 * mode.rounding + 2 * error(plain, theirs, scale)
