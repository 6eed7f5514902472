"""The kernels in Triton's language compute the formula, and the shipped code is made of them.

`make test-kernels` names a Python with Triton, whose interpreter runs kernels on a CPU. On a GPU,
`tests/training/test_fused_attention.py` compares the shipped code with the formula.
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
FOLDER = ROOT / "albert_tf" / "model" / "kernels" / "triton_attention"
INTERPRETER = ROOT / "tests" / "model" / "triton_interpreter.py"
SEED = (123, 2**31 - 2)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not TRITON, reason="needs ALBERT_TRITON: make test-kernels"),
]


def run_python(folder, *command):
    cache = {"TRITON_CACHE_DIR": str(folder / "cache")}
    subprocess.run([TRITON, *map(str, command)], check=True, env=os.environ | cache)


@pytest.mark.parametrize(
    ("shape", "rate"), [((3, 256, 2, 32), 0.1), ((1, 128, 3, 64), 0.3), ((2, 128, 1, 128), 0.0)]
)
def test_kernels_equal_the_formula(tmp_path, shape, rate):
    B, S, A, _ = shape
    random = np.random.default_rng(5)
    inputs = {
        name: random.standard_normal(shape, np.float32)
        for name in ("query", "key", "value", "dcontext")
    }
    mask = (np.arange(S) < random.integers(1, S + 1, (B, 1))).astype(np.int32)
    threshold = np.uint32(round(rate * 2**32)).view(np.int32)
    numbers = np.array([S, A, threshold, *SEED], np.int32)
    np.savez(tmp_path / "in.npz", **inputs, input_mask=mask, numbers=numbers)
    run_python(tmp_path, INTERPRETER, tmp_path)
    sources = [tf.constant(inputs[name]) for name in ("query", "key", "value")]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        heads = [ops.swap_heads(x) for x in sources]  # [B, A, S, D] each
        context = ops.attention(*heads, tf.constant(mask), rate, tf.constant(SEED))  # [B, S, A·D]
    dcontext = inputs["dcontext"].reshape(context.shape)
    gradients = tape.gradient(context, sources, dcontext)
    names = ("context", "dquery", "dkey", "dvalue")
    with np.load(tmp_path / "out.npz") as found:
        for name, expected in zip(names, [context, *gradients], strict=True):
            values = expected.numpy().reshape(shape)
            error = np.linalg.norm(found[name] - values) / np.linalg.norm(values)
            assert error < 2e-6, name


def test_the_shipped_code_is_that_of_the_source(tmp_path):
    (tmp_path / "source.py").write_bytes((FOLDER / "source.py").read_bytes())
    run_python(tmp_path, tmp_path / "source.py")
    made, shipped = ({x.name: x.read_text() for x in y.glob("*.ttir")} for y in (tmp_path, FOLDER))
    assert made == shipped
