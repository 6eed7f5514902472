"""The kernels in Triton's language compute the formula, and the shipped code is made of them.

`make test-kernels` names a Python with Triton, whose interpreter runs kernels on a CPU. On a GPU,
`tests/training/test_gpu_kernels.py` compares the shipped code with the formula.
"""

from __future__ import annotations

import os
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import ops
from tests.conftest import ROOT

TRITON = os.environ.get("ALBERT_TRITON", "")
TRITON_KERNELS = ROOT / "albert_tf" / "model" / "kernels" / "triton"
SOURCE = TRITON_KERNELS / "source"
INTERPRETER = ROOT / "tests" / "model" / "triton_interpreter.py"
SEED = (123, 2**31 - 2)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not TRITON, reason="needs ALBERT_TRITON: make test-kernels"),
]


def run_python(folder, *command):
    own = {"TRITON_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(SOURCE)}
    subprocess.run([TRITON, *map(str, command)], check=True, env=os.environ | own)


def interpreted(folder, name, **inputs):
    """Returns the results of kernels in Triton's interpreter."""
    np.savez(folder / "in.npz", **inputs)
    run_python(folder, INTERPRETER, name, folder)
    with np.load(folder / "out.npz") as found:
        return {name: found[name] for name in found.files}


def numbers_of(first, second, rate):
    """Returns what kernels read: two sizes, the threshold of dropout and the seed."""
    threshold = np.uint32(round(rate * 2**32)).view(np.int32)
    return np.array([first, second, threshold, *SEED], np.int32)


def check(found, names, tensors):
    for name, tensor in zip(names, tensors, strict=True):
        expected = tensor.numpy().reshape(found[name].shape)
        assert np.linalg.norm(found[name] - expected) < 2e-6 * np.linalg.norm(expected), name


@pytest.mark.parametrize(
    ("shape", "rate"), [((3, 256, 2, 32), 0.1), ((1, 128, 3, 64), 0.3), ((2, 128, 1, 128), 0.0)]
)
def test_kernels_of_attention_equal_the_formula(tmp_path, shape, rate):
    B, S, A, _ = shape
    random = np.random.default_rng(5)
    names = ("query", "key", "value", "dcontext")
    inputs = {name: random.standard_normal(shape, np.float32) for name in names}
    mask = (np.arange(S) < random.integers(1, S + 1, (B, 1))).astype(np.int32)
    numbers = numbers_of(S, A, rate)
    found = interpreted(tmp_path, "attention", **inputs, input_mask=mask, numbers=numbers)
    sources = [tf.constant(inputs[name]) for name in names[:3]]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        heads = [ops.swap_heads(x) for x in sources]  # [B, A, S, D] each
        context = ops.attention(*heads, tf.constant(mask), rate, tf.constant(SEED))  # [B, S, A·D]
    gradients = tape.gradient(context, sources, inputs["dcontext"].reshape(context.shape))
    check(found, ("context", "dquery", "dkey", "dvalue"), [context, *gradients])


@pytest.mark.parametrize(
    ("shape", "rate"), [((5, 1304), 0.1), ((67, 312), 0.3), ((33, 768), 0.0), ((3, 4096), 0.1)]
)
def test_kernels_of_add_and_norm_equal_the_formula(tmp_path, shape, rate):
    """Rows and columns do not fill the blocks of the kernels."""
    random = np.random.default_rng(5)
    names = ("x", "residual", "gamma", "beta")
    sizes = (shape, shape, shape[1:], shape[1:])
    inputs = {
        name: random.standard_normal(size, np.float32)
        for name, size in zip(names, sizes, strict=True)
    }
    dy, numbers = random.standard_normal(shape, np.float32), numbers_of(*shape, rate)
    found = interpreted(tmp_path, "norm", **inputs, dy=dy, numbers=numbers)
    sources = [tf.constant(inputs[name]) for name in names]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        y = ops.add_and_norm(*sources, rate, tf.constant(SEED))  # [N, H]
    gradients = tape.gradient(y, sources, dy)
    check(found, ("y", "dx", "dresidual", "dgamma", "dbeta"), [y, *gradients])


def test_the_kernel_of_gelu_equals_the_formula(tmp_path):
    """Rows do not fill the blocks of the kernel; of large numbers, the exponentials overflow."""
    random = np.random.default_rng(5)
    z, dy = random.standard_normal((2, 131, 512), np.float32)
    z[0, :4] = -1e4, -50, 50, 1e4
    numbers = np.array(z.shape, np.int32)
    found = interpreted(tmp_path, "gelu", z=z, dy=dy, numbers=numbers)
    bias = tf.zeros(512)
    with tf.GradientTape() as tape:
        tape.watch(bias)
        x = tf.constant(z)
        tape.watch(x)
        y = ops.gelu(ops.add_bias(x, bias))
    check(found, ("dz", "dbias"), tape.gradient(y, (x, bias), dy))


def test_the_shipped_code_is_that_of_the_source(tmp_path):
    run_python(tmp_path, SOURCE / "write.py", tmp_path)
    folders = tmp_path, TRITON_KERNELS / "code"
    made, shipped = ({x.name: x.read_text() for x in y.glob("*.ttir")} for y in folders)
    assert made == shipped
