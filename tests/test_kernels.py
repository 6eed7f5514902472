"""Operations of `kernels` in TFLite, in float16 and at the limits of their ranges.

`test_every_mode.py` compares them with their plain forms.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf import kernels

B, S, A, D, H = 5, 11, 4, 3, 12


def normal(*shape):
    return tf.random.normal(shape, stddev=1.5)


def input_mask():
    lengths = tf.constant((11, 9, 7, 10, 8))
    return tf.range(S) < lengths[:, None]  # [B, S]


def cases():
    """Returns name → a function and its tensors; TFLite lacks the random numbers of dropout."""
    rows, kernel = (B, S, H), (H, 3 * H)
    heads = functools.partial(kernels.project_heads, heads=A)
    found = {
        "gelu": (lambda x, b: kernels.activate(x, b, "gelu"), normal(*rows), normal(H)),
        "relu": (lambda x, b: kernels.activate(x, b, "relu"), normal(*rows), normal(H)),
        "norm": (kernels.layer_norm, normal(B, 2, S, H), normal(H), normal(H)),
        "sum": (lambda *t: kernels.add_and_norm(*t, None), normal(*rows), normal(H), normal(*rows)),
        "attention": (
            lambda q, k, v: kernels.attend(q, k, v, input_mask()),
            normal(B, A, 3, D) * 9,
            normal(B, A, S, D),
            normal(B, A, S, D),
        ),
        "heads": (
            lambda x, k, b: heads(x, None, k, b),
            normal(*rows),
            normal(*kernel),
            normal(3 * H),
        ),
        "add and norm": (
            lambda x, b, r, beta, gamma: kernels.add_and_norm(x, b, r, (beta, gamma)),
            *(normal(*rows), normal(H), normal(*rows), normal(H), normal(H)),
        ),
        "bias": (kernels.add_bias, normal(B, S, H), normal(H)),
        "few queries": (heads, normal(*rows), normal(B, 2, H), normal(*kernel), normal(3 * H)),
    }
    for name in ("gelu", "relu"):
        found[f"feed-forward with {name}"] = (
            lambda x, k, b, o, name=name: kernels.feed_forward(x, k, b, name, o),
            normal(*rows),
            normal(H, 2 * H) / H,
            normal(2 * H),
            normal(2 * H, 7) / H,
        )
    return found


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning")
@pytest.mark.parametrize("name", list(cases()))
def test_tflite_computes_the_same_values(name):
    function, *tensors = cases()[name]
    specs = [tf.TensorSpec(x.shape, x.dtype, f"x{i}") for i, x in enumerate(tensors)]
    graph = tf.function(function, input_signature=specs).get_concrete_function()
    content = tf.lite.TFLiteConverter.from_concrete_functions([graph]).convert()
    interpreter = tf.lite.Interpreter(model_content=content)
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], tensors[int(detail["name"][1:])].numpy())
    interpreter.invoke()
    found = [interpreter.get_tensor(x["index"]) for x in interpreter.get_output_details()]
    expected = tf.nest.flatten(function(*tensors))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())


def test_compiled_loops_round_to_bfloat16_as_tensorflow_does():
    bits = tf.random.stateless_uniform((99_999,), (3, 4), None, None, tf.uint32)
    ties = tf.range(0x3F800000, 0x3F900000, 0x8000, tf.int64)
    special = tf.constant((0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38))
    x = tf.concat(
        (tf.bitcast(bits, tf.float32), tf.bitcast(tf.cast(ties, tf.uint32), tf.float32)), 0
    )
    x = tf.concat((tf.boolean_mask(x, ~tf.math.is_nan(x)), special), 0)
    narrow = tf.function(kernels.fused(lambda width, x: kernels._narrow(x, tf.bfloat16)))
    found, expected = narrow(kernels.MIN_COMPILED_WIDTH, x), tf.cast(x, tf.bfloat16)
    np.testing.assert_array_equal(tf.cast(found, tf.float32), tf.cast(expected, tf.float32))


def test_xla_compiles_only_large_models_in_graphs():
    def is_compiled(width):
        graph = tf.function(lambda x, b: kernels.activate(x, b, "gelu"), autograph=False)
        concrete = graph.get_concrete_function(tf.zeros((5, width)), tf.zeros(width))
        calls = [op for op in concrete.graph.get_operations() if "Call" in op.type]
        return any(op.get_attr("_XlaMustCompile") for op in calls)

    assert is_compiled(kernels.MIN_COMPILED_WIDTH)
    assert not is_compiled(kernels.MIN_COMPILED_WIDTH - 1)
    with kernels.plain():
        assert not is_compiled(kernels.MIN_COMPILED_WIDTH)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
@pytest.mark.parametrize("name", ["gelu", "add and norm"])
def test_half_precision_inputs_are_computed_in_float32(name, dtype):
    """The result is that of float32, rounded once."""
    function, x, *others = cases()[name]
    x = tf.cast(x, dtype)
    others = [tf.cast(t, dtype) if t.shape == x.shape else t for t in others]
    full = [tf.cast(t, tf.float32) for t in (x, *others)]
    half = function(x, *others)
    assert half.dtype == dtype
    expected = tf.cast(function(*full), dtype)
    np.testing.assert_allclose(
        tf.cast(half, tf.float32), tf.cast(expected, tf.float32), rtol=0.01, atol=1e-3
    )


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16])
def test_attention_handles_scores_and_values_of_any_magnitude(dtype):
    scores = tf.constant(((-3e4, 0.0, 3e4), (-3e4, -3e4, -3e4), (0.0, -0.0, -0.5)))
    value = tf.constant(((1.0, 0.0), (3e4, 1.0), (3e4, 0.0)))
    # The keys are the unit vectors times √D, so that the scaled scores are the queries.
    tensors = [tf.cast(t, dtype)[None, None] for t in (scores, tf.eye(3) * 3**0.5, value)]
    tensors[2] = tf.pad(tensors[2], ((0, 0), (0, 0), (0, 0), (0, 1)))
    found = tf.cast(kernels.attend(*tensors, None), tf.float32)[0, :, :2]
    np.testing.assert_allclose(found, tf.nn.softmax(scores) @ value, rtol=0.01)


def test_rows_without_any_token_are_finite():
    tensors = [normal(B, A, S, D) for _ in range(3)]
    found = kernels.attend(*tensors, tf.zeros((B, S), tf.int32))
    np.testing.assert_allclose(found, kernels.attend(*tensors, None), rtol=0, atol=0.01)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_the_first_of_equal_logits_is_the_answer(is_compiled, monkeypatch):
    monkeypatch.setattr(kernels, "MIN_COMPILED_WIDTH", 1 if is_compiled else 10**6)
    logits = tf.constant(((-3.0, 2.0, 2.0), (-3.0, 2.0, 2.0), (-5.0, -7.0, -5.0), (0.0, 0.0, 0.0)))
    labels = tf.constant((1, 2, 0, 2))
    losses, hits = tf.function(kernels.cross_entropy)(logits, labels)
    assert hits.numpy().tolist() == [1.0, 0.0, 1.0, 0.0]
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    np.testing.assert_allclose(losses, expected, rtol=1e-6)


def test_float16_sums_beyond_its_range_are_exact():
    x, bias = tf.ones((70_000, 2), tf.float16), tf.zeros(2)
    with tf.GradientTape() as tape:
        tape.watch(bias)
        total = tf.reduce_sum(tf.cast(kernels.add_bias(x, bias), tf.float32))
    assert tape.gradient(total, bias).numpy().tolist() == [70_000.0, 70_000.0]


def test_dropout_follows_its_rate_for_any_number_of_elements():
    kept = kernels.keep_mask((97, 1031), 0.1, tf.constant((1, 2))).numpy()
    assert abs(kept.mean() - 0.9) < 0.003
    # One random number decides about two elements, half the tensor apart: independently.
    first, second = kept.ravel()[:-1].reshape(2, -1)
    assert abs((first & second).mean() - 0.81) < 0.004
    assert kernels.keep_mask((3, 5), 0.1, tf.constant((1, 2))).shape == (3, 5)


class Layer(tf_keras.layers.Layer):
    """A layer with dropout and two weights."""

    def __init__(self):
        super().__init__()
        self.kernel = self.add_weight("kernel", (H, H))
        self.gamma = self.add_weight("gamma", (H,), initializer="ones")

    def call(self, x, seed):
        y = tf.matmul(x, kernels.value(self.kernel))
        norm = tf.zeros(H), kernels.value(self.gamma)
        return kernels.add_and_norm(y, tf.zeros(H), x, norm, 0.3, seed)


def test_shared_layers_compute_the_same_with_and_without_gradient_checkpointing():
    """The same as calling the layer repeatedly, with dropout."""
    layer, x, seeds = Layer(), normal(B * S, H), tf.constant(((1, 2), (3, 4)))

    @tf.function
    def run(apply):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = apply(layer, apply(layer, x, seeds[0]), seeds[1])
            loss = tf.reduce_sum(tf.sin(y))
        return y, *tape.gradient(loss, [x, *layer.trainable_variables])

    expected = run(lambda layer, *arguments: layer(*arguments))
    for is_recomputed in (False, True):
        found = run(lambda *call, flag=is_recomputed: kernels.share([layer], flag)(*call))
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def test_a_shared_layer_is_traced_once_and_its_weights_are_read_once():
    layer, x, seed = Layer(), normal(B * S, H), tf.constant((1, 2))

    @tf.function
    def run(x):
        apply = kernels.share([layer])
        for _ in range(5):
            x = apply(layer, x, seed)
        return x

    graph = run.get_concrete_function(x).graph
    kinds = [operation.type for operation in graph.get_operations()]
    assert kinds.count("ReadVariableOp") == 2
    called = {op.get_attr("f").name for op in graph.get_operations() if "Call" in op.type}
    assert len(called) == 1


@pytest.mark.parametrize("is_recomputed", [False, True])
def test_the_gradients_of_a_shared_kernel_are_added_up_one_call_at_a_time(is_recomputed):
    """So that they need not be kept until the last one is there."""
    layer, x, seed = Layer(), normal(B * S, H), tf.constant((1, 2))

    @tf.function
    def run(x):
        with tf.GradientTape() as tape:
            apply = kernels.share([layer] * 5, is_recomputed)
            for _ in range(5):
                x = apply(layer, x, seed)
        return tape.gradient(x, layer.trainable_variables)

    kernel = max((weight.shape for weight in layer.weights), key=lambda shape: shape.rank)
    operations = run.get_concrete_function(x).graph.get_operations()
    sums = [op for op in operations if op.type == "AddN" and op.outputs[0].shape == kernel]
    assert kernel.rank == 2
    assert not sums


def test_a_function_is_compiled_whole_if_xla_compiles_what_surrounds_it():
    found = []

    def note():
        found.append(kernels.is_compiled_whole())
        return tf.constant(0)

    note()
    tf.function(note)()
    tf.function(lambda: tf.function(note)(), jit_compile=True)()
    assert found == [False, False, True]
