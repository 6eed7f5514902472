"""Kernels in float16 and at the limits of their ranges, and where they are used.

`test_every_mode.py` compares them with their operations.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import dispatch, ops
from albert_tf.model.dispatch import CPU, XLA
from albert_tf.model.kernels import loops
from tests.conftest import ROOT

B, S, A, D, H = 5, 11, 4, 3, 12


def normal(*shape):
    return tf.random.stateless_normal(shape, (sum(shape), 7), stddev=1.5)


def test_compiled_loops_round_to_bfloat16_as_tensorflow_does():
    bits = tf.random.stateless_uniform((99_999,), (3, 4), None, None, tf.uint32)
    ties = tf.range(0x3F800000, 0x3F900000, 0x8000, tf.int64)
    special = tf.constant((0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38))
    x = tf.concat(
        (tf.bitcast(bits, tf.float32), tf.bitcast(tf.cast(ties, tf.uint32), tf.float32)), 0
    )
    x = tf.concat((tf.boolean_mask(x, ~tf.math.is_nan(x)), special), 0)
    found = loops.compiled(lambda x: loops.narrow(x, tf.bfloat16))(x)
    expected = tf.cast(x, tf.bfloat16)
    np.testing.assert_array_equal(tf.cast(found, tf.float32), tf.cast(expected, tf.float32))


def test_kernels_run_in_graphs_outside_xla_and_are_compiled_for_wide_tensors():
    def kind(width, **options):
        """Returns what runs: the operation, the kernel, or the kernel compiled by XLA."""
        graph = tf.function(lambda x: ops.layer_norm(x, tf.ones(width), tf.ones(width)), **options)
        operations = graph.get_concrete_function(tf.zeros((5, width))).graph.get_operations()
        if any("Call" in op.type and op.get_attr("_XlaMustCompile") for op in operations):
            return "compiled"
        # The kernel has a gradient of its own, which `IdentityN` marks.
        return "kernel" if any(op.type == "IdentityN" for op in operations) else "operation"

    assert kind(loops.MIN_WIDTH) == "compiled"
    assert kind(loops.MIN_WIDTH - 1) == "kernel"
    assert kind(loops.MIN_WIDTH, jit_compile=True) == "operation"
    with dispatch.plain():
        assert kind(loops.MIN_WIDTH) == "operation"
    is_inside = []
    tf.function(lambda: is_inside.append(dispatch.target()))()
    outer = tf.function(lambda: tf.function(lambda: is_inside.append(dispatch.target()))())
    tf.function(outer, jit_compile=True).get_concrete_function()
    is_inside.append(dispatch.target())  # eager
    assert is_inside == [CPU, XLA, ""]


@pytest.mark.ci
def test_a_model_has_kernels_although_nothing_else_was_imported():
    code = (
        "import sys, albert_tf; albert_tf.AlbertEncoder\n"
        "from albert_tf.model import ops\n"
        "sys.exit(not ops.attention.kernels)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_no_kernel_runs_where_there_is_a_gpu(monkeypatch):
    found = []
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind=None: ["a GPU"] if kind == "GPU" else []
    )
    tf.function(lambda: found.append(dispatch.target()))()
    assert found == [""]


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_half_precision_inputs_are_computed_in_float32(dtype):
    """The result is that of float32, rounded once."""
    x, residual = (tf.cast(normal(B, size, H), dtype) for size in (S, S))
    gamma, beta = normal(H), normal(2 * H)[:H]
    full = tf.cast(x, tf.float32) + tf.cast(residual, tf.float32)
    expected = tf.cast(tf.cast(ops.layer_norm(full, gamma, beta), dtype), tf.float32)
    for function in (ops.add_and_norm, ops.add_and_norm.kernels[CPU].function):
        found = function(x, residual, gamma, beta, 0.0, None)
        assert found.dtype == dtype
        np.testing.assert_allclose(tf.cast(found, tf.float32), expected, rtol=0.02, atol=0.02)


ATTENTIONS = [ops.attention, ops.attention.kernels[CPU].function]


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16])
def test_attention_handles_scores_and_values_of_any_magnitude(attention, dtype):
    scores = tf.constant(((-3e4, 0.0, 3e4), (-3e4, -3e4, -3e4), (0.0, -0.0, -0.5)))
    value = tf.constant(((1.0, 0.0), (3e4, 1.0), (3e4, 0.0)))
    # The keys are the unit vectors times √D, so that the scaled scores are the queries.
    tensors = [tf.cast(t, dtype)[None, None] for t in (scores, tf.eye(3) * 3**0.5, value)]
    tensors[2] = tf.pad(tensors[2], ((0, 0), (0, 0), (0, 0), (0, 1)))
    found = tf.cast(attention(*tensors, None), tf.float32)[0, :, :2]
    # Processors without bfloat16 round the probabilities more often.
    rtol = 0.015 if dtype == tf.bfloat16 else 0.01
    np.testing.assert_allclose(found, tf.nn.softmax(scores) @ value, rtol=rtol)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_rows_without_any_token_are_finite(attention):
    tensors = [normal(B, A, S, D) for _ in range(3)]
    found = attention(*tensors, tf.zeros((B, S), tf.int32))
    np.testing.assert_allclose(found, attention(*tensors, None), rtol=0, atol=0.01)


@pytest.mark.parametrize(
    "cross_entropy", [ops.cross_entropy, ops.cross_entropy.kernels[CPU].function]
)
def test_the_first_of_equal_logits_is_the_answer(cross_entropy):
    logits = tf.constant(((-3.0, 2.0, 2.0), (-3.0, 2.0, 2.0), (-5.0, -7.0, -5.0), (0.0, 0.0, 0.0)))
    labels = tf.constant((1, 2, 0, 2))
    losses, hits = cross_entropy(logits, labels)
    assert hits.numpy().tolist() == [1.0, 0.0, 1.0, 0.0]
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    np.testing.assert_allclose(losses, expected, rtol=1e-6)


def numpy_mask(shape, rate, seed):
    """The hash of the positions, one element after the other, in Python's integers."""

    def mix(x, key):
        x = (x ^ x >> 16) * 0x7FEB352D & 0xFFFFFFFF ^ key
        x = (x ^ x >> 15) * 0x846CA68B & 0xFFFFFFFF
        return x ^ x >> 16

    def element(row, column):
        row, column = row * 0x9E3779B9, column * 0x9E3779B9
        keys = [mix(row + seed[i] & 0xFFFFFFFF, seed[1 - i]) for i in range(2)]
        return mix(column + keys[0] & 0xFFFFFFFF, keys[1]) >= round(rate * 2**32)

    rows, columns = int(np.prod(shape[:-1])), shape[-1]
    mask = [[element(row, column) for column in range(columns)] for row in range(rows)]
    return np.reshape(mask, shape)


def test_dropout_masks_are_the_hash_of_their_positions():
    shape, seed = (2, 3, 5, 37), (2**31 - 3, 7)
    expected = numpy_mask(shape, 0.3, seed)
    x, seed = tf.zeros(shape, tf.bfloat16), tf.constant(seed)
    for function in (
        ops.keep_mask,
        loops.compiled(ops.keep_mask),
        tf.function(ops.keep_mask),
    ):
        np.testing.assert_array_equal(function(x, 0.3, seed), expected)


def test_dropout_drops_elements_independently_at_its_rate():
    x = tf.zeros((1031, 997))
    seeds = (1, 2), (1, 3), (2, 2), (2, 1), (2**31 - 1, 0), (0, 0)
    masks = [ops.keep_mask(x, 0.1, tf.constant(seed)).numpy() for seed in seeds]
    for kept in masks:
        assert abs(kept.mean() - 0.9) < 5 * np.sqrt(0.1 * 0.9 / kept.size)
        for axis in range(2):  # the counts of rows and columns follow the binomial distribution
            spread = kept.sum(axis).var() / (0.1 * 0.9 * x.shape[axis])
            assert abs(spread - 1) < 5 * np.sqrt(2 / x.shape[1 - axis])
    steps = (0, 1), (1, 0), (1, 1), (0, 2), (512, 0), (0, 512), (7, 64)
    masks += [np.roll(masks[0], step, (0, 1)) for step in steps]
    correlations = np.corrcoef([mask.ravel() for mask in masks]) - np.eye(len(masks))
    assert np.abs(correlations).max() < 5 / np.sqrt(masks[0].size)
