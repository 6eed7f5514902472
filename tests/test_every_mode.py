"""Kernels in every mode: with and without dropout, compiled or not, in all precisions.

Each kernel is compared with its operation; a whole model with the forward pass in NumPy
(`numpy_albert`), and in training its gradients with those without kernels. Arguments and models are
drawn in each mode; `--hypothesis-profile=thorough` draws ten times as many.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import settings

from albert_tf.checkpoints.weight_names import variable_name
from albert_tf.model import dispatch, ops, optimization
from albert_tf.model.config import ACTIVATIONS, AlbertConfig
from albert_tf.model.dispatch import CPU, GPU, KERNELS, TPU
from albert_tf.model.kernels import cpu_attention, loops
from albert_tf.model.modeling import AlbertForPretraining
from tests import kernel_arguments
from tests.conftest import TINY_SHAPE
from tests.numpy_albert import NumpyAlbert

RATE = 0.3


@dataclasses.dataclass(frozen=True)
class Mode:
    """How TensorFlow runs a function, and on which side of the thresholds on width it is."""

    run: str  # "eager", "graph" or "xla"
    compiled_from: int  # width from which kernels are compiled; 1: attention is computed by rows
    folded_from: int  # width below which an axis is reduced as it is
    dtype: str
    training: bool  # whether there is dropout

    @property
    def rounding(self):
        """Largest error that rounding explains; a missing factor of dropout makes RATE or more."""
        return 2e-5 if self.dtype == "float32" else 0.04

    @contextlib.contextmanager
    def thresholds(self):
        with (
            mock.patch.object(loops, "MIN_WIDTH", self.compiled_from),
            mock.patch.object(cpu_attention, "MIN_SCORES_BY_ROWS", self.compiled_from),
            mock.patch.object(loops, "_MIN_FOLDED_WIDTH", self.folded_from),
        ):
            yield

    def __call__(self, function, *arguments):
        """Returns the function's results in this mode."""
        if self.run != "eager":
            function = tf.function(function, jit_compile=self.run == "xla", autograph=False)
        with self.thresholds():
            return function(*arguments)


# In graphs, every dtype meets both sides of both thresholds, in training and outside.
MODES = [
    Mode(run, *sizes, dtype, training)
    for run in ("eager", "graph", "xla")
    for dtype, training, sizes in (
        ("float32", True, (1, 2)),
        ("float32", False, (10**6, 64)),
        ("bfloat16", True, (10**6, 2)),
        ("bfloat16", False, (1, 64)),
    )
]
OTHER_SIDES = [
    dataclasses.replace(mode, compiled_from=10**6 // mode.compiled_from)
    for mode in MODES
    if mode.run == "graph"
]
DRAWS = max(1, settings.default.max_examples // len(MODES))  # in each mode
# Whose kernels for GPUs are programs of CUDA: without a GPU, test_kernels_triton.py compares them.
OF_CUDA = (ops.attention, ops.feed_forward, ops.add_and_norm)
FIRST_SEED = 143  # of the models: its draws have every option


def values_and_gradients(function, *arguments):
    """Returns the results, and the gradients with respect to the floating-point tensors."""
    sources = [x for x in tf.nest.flatten(arguments) if tf.is_tensor(x) and x.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        results = tf.nest.flatten(function(*arguments))
        # Not the plain sum: that of a softmax has no gradient.
        total = tf.add_n([tf.reduce_sum(tf.sin(tf.cast(x, tf.float32))) for x in results])
    return results, tape.gradient(total, sources, unconnected_gradients="zero")


def error(found, expected, scale=1.0):
    """Returns the largest difference, relative to the largest of the expected values.

    Values that are all below `scale` are compared to that: some gradients are 0.
    """
    found, expected = (np.asarray(tf.cast(x, tf.float64)) for x in (found, expected))
    assert found.shape == expected.shape
    return np.abs(found - expected).max() / max(np.abs(expected).max(), scale)


def smooth(activation, dtype):
    """Returns the activation, for bfloat16 one with a continuous derivative.

    Rounding changes the sign of a few inputs of ReLU, and so all gradients there.
    """
    return "gelu" if (activation, dtype) == ("relu", "bfloat16") else activation


def with_dtype(arguments, dtype):
    """Casts activations and kernels; biases and LayerNorm's weights are always float32."""

    def cast(x):
        is_cast = tf.is_tensor(x) and x.dtype.is_floating and x.shape.rank > 1
        return tf.cast(x, dtype) if is_cast else x

    return tf.nest.map_structure(cast, arguments)


def check_kernel(kernel, mode, seeds):
    """Compares a kernel's results in a mode with the operation's, for arguments from seeds."""
    op = kernel.op
    dropout = RATE, tf.constant(seeds) if mode.training else None
    with mock.patch.object(kernel_arguments, "dropout", return_value=dropout):
        arguments = kernel_arguments.ARGUMENTS[op](np.random.default_rng(seeds))
    arguments = with_dtype(arguments, mode.dtype)
    is_of_cuda = kernel.target == GPU and kernel.op in OF_CUDA and kernel.applies(*arguments)
    if is_of_cuda and not tf.config.list_physical_devices("GPU"):
        return
    expected = values_and_gradients(op, *with_dtype(arguments, tf.float32))
    plain = values_and_gradients(op, *arguments)  # eager
    # The operation chooses the kernel for XLA itself, and runs as it is in eager execution.
    function = kernel.function if kernel.target == CPU and mode.run == "graph" else op
    contexts = {TPU: dispatch.for_tpu, GPU: dispatch.for_gpu}
    with contexts.get(kernel.target, contextlib.nullcontext)():
        found = mode(lambda: values_and_gradients(function, *arguments))
    for ours, theirs, exact in zip(*map(tf.nest.flatten, (found, plain, expected)), strict=True):
        assert ours.dtype == theirs.dtype, mode
        assert error(ours, exact) <= mode.rounding + 2 * error(theirs, exact), mode


@pytest.mark.ci
@pytest.mark.parametrize("seed", range(DRAWS))
@pytest.mark.parametrize(
    "kernel", KERNELS, ids=lambda kernel: f"{kernel.target} {kernel.op.__name__}"
)
def test_kernels_equal_their_operation(kernel, seed):
    """In half precision, they are as close to the results in float32 as the operation."""
    for number, mode in enumerate(MODES + OTHER_SIDES):
        if kernel.op is optimization.adam_update and mode.dtype != "float32":
            continue  # optimizers compute in float32
        if kernel.target == CPU or mode.run == "xla":
            check_kernel(kernel, mode, (seed, number))


def draw_config(draws, layers, is_released):
    """Returns a config of any layout with each of its options, or the released one with dropout."""
    changes = {
        "num_hidden_layers": layers,
        "num_hidden_groups": 1,
        "hidden_dropout_prob": RATE,
        "attention_probs_dropout_prob": RATE,
    }
    if is_released:
        return AlbertConfig(**TINY_SHAPE | changes)
    changes["hidden_act"] = draws.choice(list(ACTIVATIONS))
    changes["layout"] = draws.choice(("google", "albert_zh"))
    if changes["layout"] == "albert_zh":
        changes["ln_type"] = draws.choice(("postln", "preln"))
    else:
        changes["share"] = draws.choice(("groups", "attention", "ffn"))
        if changes["share"] == "groups":
            changes["num_hidden_groups"] = draws.randint(1, layers)
        changes["inner_group_num"] = draws.randint(1, layers)
        changes["embedding_size"] = draws.choice((8, 12))
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
    """Returns the outputs and, in training, the gradients of a weighted sum of them."""
    if not training:
        return outputs_of(model, inputs, training), []
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


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + DRAWS))
@pytest.mark.parametrize(
    "mode",
    [pytest.param(mode, marks=[pytest.mark.ci] * (mode.run != "eager")) for mode in MODES],
    ids=str,
)
def test_models_equal_numpy_and_themselves_without_kernels(tiny_batch, mode, seed):
    draws = random.Random(f"{mode} {seed}")
    layers = 1 if mode.run == "xla" else draws.randint(1, 2)  # XLA takes seconds for a block
    is_released = seed == FIRST_SEED and mode.training and mode.dtype == "float32"
    config = draw_config(draws, layers, is_released)
    if mode.training:
        config = dataclasses.replace(config, hidden_act=smooth(config.hidden_act, mode.dtype))
    dtype = "float32" if mode.dtype == "float32" else "mixed_bfloat16"
    model, full = (AlbertForPretraining(config, dtype=name) for name in (dtype, "float32"))
    randomize(model)
    randomize(full)
    names = {"input_ids", "segment_ids"}
    names |= {name for name in ("input_mask", "masked_lm_positions") if draws.random() < 0.6}
    inputs = {name: tiny_batch[name] for name in names}
    keeps, keep_mask = [], ops.keep_mask

    def record(*arguments):
        keeps.append(keep_mask(*arguments))
        return keeps[-1]

    with dispatch.plain():
        with mock.patch.object(ops, "keep_mask", record):
            exact, gradients = outputs_and_gradients(full, inputs, mode.training)
        expected = numpy_outputs(
            full, inputs, [x.numpy() for x in keeps] if mode.training else None
        )
        rounded, rounded_gradients = (
            (exact, gradients)
            if mode.dtype == "float32"
            else outputs_and_gradients(model, inputs, mode.training)
        )
    model.encoder.recompute = draws.random() < 0.5
    tensors = {name: tf.constant(value) for name, value in inputs.items()}
    found, found_gradients = mode(
        lambda batch: outputs_and_gradients(model, batch, mode.training), tensors
    )
    for ours, plain, theirs in zip(found, rounded, expected, strict=True):
        assert error(ours, theirs) <= mode.rounding + 2 * error(plain, theirs), config
        assert mode.dtype != "float32" or error(plain, theirs) <= 2e-5, config
    if not mode.training:
        return
    # The gradient of the keys' bias is 0; in bfloat16, rounding leaves a tenth of this.
    scale = 0.1 * max(np.abs(x).max() for x in gradients)
    for ours, plain, theirs in zip(found_gradients, rounded_gradients, gradients, strict=True):
        limit = 10 * mode.rounding + 2 * error(plain, theirs, scale)
        assert error(ours, theirs, scale) <= limit, config
