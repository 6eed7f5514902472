"""When attention is fused for NVIDIA GPUs, and what the program for one then calls.

No GPU is needed to lower a program for one. `test_compiled_programs.py` compiles such programs.
"""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import tensorflow as tf
from lowering import lower

from albert_tf.model import dispatch, ops, tensorflow_internals
from albert_tf.model.kernels import gpu
from albert_tf.model.kernels.custom_calls import CallResult, call, escaped
from albert_tf.model.kernels.triton import attention as triton_attention
from albert_tf.model.kernels.triton import norm as triton_norm
from tests.conftest import ROOT

B, A, S, D = 3, 2, 64, 8
CALL = re.compile(r'custom_call_target="([^"]+)"')
CUDNN = ["__cudnn$fmhaScaleBiasSoftmax", "__cudnn$fmhaScaleBiasSoftmaxBackward"]


def arguments(dtype="bfloat16", queries=S, length=S, size=D):
    """Returns query, key, value and mask as float of a dtype and int32."""
    shapes = [(B, A, count, size) for count in (queries, length, length)]
    half = tf.as_dtype(dtype).as_numpy_dtype
    return [*(np.zeros(shape, half) for shape in shapes), np.ones((B, length), np.int32)]


def lowered(function, *args):
    return lower(function, [], "GPU", *args, stage="hlo")


def gradients(query, key, value, mask=None, rate=0.0, seed=None):
    with tf.GradientTape() as tape:
        tape.watch((query, key, value))
        context = ops.attention(query, key, value, mask, rate, seed)
    return context, tape.gradient(context, (query, key, value))


needs_modules = pytest.mark.skipif(
    not tensorflow_internals.embeds_modules(), reason="this TensorFlow embeds no StableHLO"
)


def project(x, kernels, biases, gradient):
    sources = [x, *kernels, *biases]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        heads = ops.project_heads(x, x, kernels, biases, A)
    return [*heads, *tape.gradient(heads, sources, gradient)]


def count_barriers(graph):
    return sum(node.type == "XlaOptimizationBarrier" for node in graph.get_operations())


@pytest.mark.ci
def test_projections_with_matmuls_of_their_own_equal_a_common_one():
    """With their gradients; the projections call nothing of a GPU, so XLA compiles them here."""
    random = np.random.default_rng(5)

    def normal(*shape):
        return tf.cast(random.standard_normal(shape, np.float32), tf.bfloat16)

    x, gradient = normal(B, S, 12), [normal(B, A, S, D) for _ in range(3)]
    kernels = [normal(12, A * D) for _ in range(3)]
    biases = [tf.cast(normal(A * D), tf.float32) for _ in range(3)]

    with dispatch.for_gpu():
        compiled = tf.function(project, jit_compile=True, autograph=False)
        found = compiled(x, kernels, biases, gradient)
        graph = compiled.get_concrete_function(x, kernels, biases, gradient).graph
    assert count_barriers(graph) == 6
    exact = tf.nest.map_structure(
        lambda tensor: tf.cast(tensor, tf.float32), (x, kernels, biases, gradient)
    )
    for ours, expected in zip(found, project(*exact), strict=True):
        difference = np.linalg.norm(tf.cast(ours, tf.float32) - expected)
        assert difference < 0.01 * np.linalg.norm(expected)


@pytest.mark.parametrize(
    ("operations", "count"), [(None, 6), ({"project_heads"}, 6), ({"attention"}, 1), ((), 1)]
)
def test_only_operations_that_are_named_run_their_kernels_for_gpus(operations, count):
    """A common projection has one barrier, behind the gradient of its bias."""

    def specs(*shape):
        return [tf.TensorSpec(shape, tf.bfloat16)] * 3

    biases = [tf.TensorSpec((A * D,), tf.float32)] * 3
    compiled = tf.function(project, jit_compile=True, autograph=False)
    with dispatch.for_gpu(operations):
        traced = compiled.get_concrete_function(
            specs(B, S, 12)[0], specs(12, A * D), biases, specs(B, A, S, D)
        )
    assert count_barriers(traced.graph) == count


@needs_modules
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_attention_without_dropout_is_two_calls_of_cudnn(dtype):
    text = lowered(gradients, *arguments(dtype))
    assert sorted(CALL.findall(text)) == CUDNN
    assert "exponential" not in text  # no softmax is left
    options = [json.loads(x) for x in re.findall(r"backend_config=(\{.*\})$", text, re.MULTILINE)]
    for found in (x["cudnn_fmha_backend_config"] for x in options):
        assert found["fmha_scale"] == pytest.approx(D**-0.5)
        assert found["intermediate_tensor_shape"]["dimensions"] == [str(x) for x in (B, A, S, S)]


@needs_modules
def test_attention_without_a_mask_has_no_bias():
    calls = CALL.findall(lowered(gradients, *arguments()[:3]))
    assert sorted(calls) == ["__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"]


@needs_modules
def test_attention_with_dropout_is_three_kernels_of_triton():
    seed, rate = np.array((5, 7), np.int32), 0.3
    sizes = {"queries": 256, "length": 256, "size": 32}
    for dtype, short in (("bfloat16", "bf16"), ("float16", "f16")):
        with_dropout = lambda *x: gradients(*x[:4], rate, x[4])  # noqa: E731
        text = lowered(with_dropout, *arguments(dtype, **sizes), seed)
        assert CALL.findall(text) == ["__gpu$xla.gpu.triton"] * 3
        assert "exponential" not in text
        names = re.findall(r'\{name = \\?"(\w+)', text)
        assert sorted(names) == ["forward", "gradient_of_keys", "gradient_of_queries"]
        assert set(re.findall(r"ptr<(b?f16)>", text)) == {short}
        assert text.count(f"grid_x = 2 : i32, grid_y = {B * A} : i32") == 3


@pytest.mark.parametrize(
    ("length", "size"), [(64, 64), (192, 64), (128, 40)], ids=["64", "192", "40"]
)
def test_attention_with_dropout_of_other_sizes_stays_as_xla_compiles_it(length, size):
    seed = np.array((5, 7), np.int32)
    with_dropout = lambda *x: gradients(*x[:4], 0.3, x[4])  # noqa: E731
    text = lowered(with_dropout, *arguments(queries=length, length=length, size=size), seed)
    assert CALL.findall(text) == []


def norm_gradients(x, residual, gamma, seed, rate=0.3):
    sources = [x, residual, gamma]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        y = ops.add_and_norm(x, residual, gamma, gamma, rate, seed)
    return y, tape.gradient(y, sources)


def norm_arguments(dtype="bfloat16", size=312):
    x = np.zeros((B, S, size), tf.as_dtype(dtype).as_numpy_dtype)
    return x, x, np.ones(size, np.float32), np.array((5, 7), np.int32)


@needs_modules
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sum_and_norm_are_two_kernels_of_triton(dtype):
    text = lowered(norm_gradients, *norm_arguments(dtype))
    assert CALL.findall(text) == ["__gpu$xla.gpu.triton"] * 2
    assert "rsqrt" not in re.sub('"[^"]*"', "", text)
    blocks = re.findall(r"name = .{,3}(forward|gradient)\W.*grid_x = (\d+)", text)
    assert sorted(blocks) == [("forward", str(B * S // 8)), ("gradient", str(B * S // 32))]


def feed_forward_arguments(dtype="bfloat16", size=512):
    random = np.random.default_rng(5)
    shapes = (B, S, 24), (24, size), (size,), (size, 24)
    x, kernel, bias, output_kernel = (random.standard_normal(shape, np.float32) for shape in shapes)
    half = [tf.cast(y, dtype) for y in (x, kernel, output_kernel)]
    return half[0], half[1], tf.constant(bias), half[2]


def feed_forward(x, kernel, bias, output_kernel, activation="gelu"):
    return ops.feed_forward(x, kernel, bias, activation, output_kernel, tf.zeros(24))


def feed_forward_gradients(*sources):
    with tf.GradientTape() as tape:
        tape.watch(sources)
        y = feed_forward(*sources)
    return y, tape.gradient(y, sources)


def test_gelu_in_the_form_that_xla_recognizes_is_the_formula():
    """Nothing of the forward pass is a call, so XLA compiles it here."""
    for dtype in ("bfloat16", "float16"):
        sources = feed_forward_arguments(dtype)
        with dispatch.for_gpu():
            found = tf.function(feed_forward, jit_compile=True, autograph=False)(*sources)
        expected = feed_forward(*(tf.cast(x, tf.float32) for x in sources))
        difference = np.linalg.norm(tf.cast(found, tf.float32) - expected)
        assert difference < 0.01 * np.linalg.norm(expected)


@needs_modules
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_gradient_of_gelu_and_its_bias_is_a_kernel_of_triton(dtype):
    text = lowered(feed_forward_gradients, *feed_forward_arguments(dtype))
    assert CALL.findall(text) == ["__gpu$xla.gpu.triton"]
    assert len(re.findall(r" tanh\(", text)) == 1
    assert "grid_x = 2 : i32, grid_y = 2 : i32" in text  # of 192 rows and 512 columns


@pytest.mark.parametrize("changed", [{"dtype": "float32"}, {"size": 384}], ids=str)
def test_gradients_of_gelu_of_other_sizes_stay_as_xla_compiles_them(changed):
    text = lowered(feed_forward_gradients, *feed_forward_arguments(**changed))
    assert CALL.findall(text) == []


@pytest.mark.parametrize("changed", [{"dtype": "float32"}, {"size": 4104}, {"size": 44}], ids=str)
def test_sums_and_norms_of_other_sizes_stay_as_xla_compiles_them(changed):
    assert CALL.findall(lowered(norm_gradients, *norm_arguments(**changed))) == []


def test_the_kernels_of_triton_have_the_hash_of_dropout():
    numbers = (ops.HASH_STEP, *ops.HASH_FACTORS)
    signed = {str(x - 2**32 if x >= 2**31 else x) for x in numbers} | set(map(str, ops.HASH_SHIFTS))
    folder = ROOT / "albert_tf" / "model" / "kernels" / "triton" / "code"
    codes = [path.read_text() for path in folder.glob("*.ttir") if "gelu" not in path.name]
    assert len(codes) == 3 * len(triton_attention.HEAD_SIZES) + 2 * len(triton_norm.SIZES)
    for code in codes:
        assert signed <= set(re.findall(r"dense<(-?\d+)> : tensor<[\dx]+i32>", code))


@pytest.mark.parametrize(
    "changed",
    [{"dtype": "float32"}, {"queries": 5}, {"length": 65, "queries": 65}, {"size": 26}],
    ids=str,
)
def test_what_is_not_fused_stays_as_xla_compiles_it(changed):
    assert CALL.findall(lowered(gradients, *arguments(**changed))) == []


def test_a_function_for_another_device_calls_nothing_of_a_gpu():
    compiled = tf.function(lambda *x: gradients(*x), jit_compile=True, autograph=False)
    text = compiled.experimental_get_compiler_ir(*map(tf.constant, arguments()))(stage="hlo")
    assert CALL.findall(text) == []


@pytest.mark.parametrize(
    ("dtype", "length", "size", "is_taken"),
    [
        (tf.bfloat16, 512, 64, True),
        (tf.float16, 64, 128, True),
        (tf.float32, 512, 64, False),
        (tf.bfloat16, 512, 136, False),
        (tf.bfloat16, 512, 26, False),
        (tf.bfloat16, 96, 64, False),
        (tf.bfloat16, None, 64, False),
        (tf.bfloat16, 512, None, False),
    ],
)
def test_precision_length_and_head_size_decide(dtype, length, size, is_taken):
    assert gpu.takes(dtype, length, size) is is_taken


@needs_modules
def test_a_result_has_its_axes_as_they_lie_in_memory():
    x = np.zeros((2, 3), np.float32)
    result = CallResult((2, 5, 3), tf.float32, order=(0, 2, 1))
    text = lowered(lambda x: call("target", 'a "b"\n', [x], [result]), x)
    assert re.search(r"f32\[2,5,3\]\{1,2,0\} custom-call\(", text)
    assert re.search(r"f32\[2,3,5\]\{2,1,0\} transpose\(", text)
    assert r"a \"b\"" in text


def test_options_are_escaped_as_strings_of_mlir():
    assert escaped('{"a": 1}\n\\') == r"{\22a\22: 1}\0A\5C"


@pytest.mark.parametrize(("context", "count"), [(dispatch.for_gpu, 1), (dispatch.for_tpu, 0)])
def test_gradients_of_biases_are_summed_after_a_barrier_but_for_tpus(context, count):
    def gradients_of(x, bias):
        with tf.GradientTape() as tape:
            tape.watch((x, bias))
            y = ops.add_bias(x, bias)
        return tape.gradient(y, (x, bias), x)

    function = tf.function(gradients_of, jit_compile=True, autograph=False)
    with context():
        program = function.experimental_get_compiler_ir(tf.zeros((B, S, D)), tf.zeros(D))
    assert program(stage="hlo").count(" opt-barrier(") == count
