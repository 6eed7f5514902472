"""Which kernels for GPUs a run uses: what is tried on a GPU, and logged if it is refused."""

from __future__ import annotations

import types

import pytest
import tensorflow as tf
import tf_keras

from albert_tf.model import dispatch, tensorflow_internals
from albert_tf.model.config import AlbertConfig
from albert_tf.training import gpu_kernels
from tests.conftest import TINY_SHAPE

HEADS = {"hidden_size": 128, "num_attention_heads": 2, "max_position_embeddings": 200}
ALL = dispatch.with_kernels_for(dispatch.GPU)
NAMES = "attention, feed_forward, add_and_norm"


@pytest.fixture
def gpu(monkeypatch):
    """A machine that seems to have a GPU, on which all kernels have a difference of 0.005."""
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: ["GPU:0"])
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: True)
    monkeypatch.setattr(tensorflow_internals, "embeds_modules", lambda: True)
    tried = []

    def difference(*arguments):
        tried.append(arguments)
        return 0.005

    monkeypatch.setattr(gpu_kernels, "difference", difference)
    policy = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    yield tried
    tf_keras.mixed_precision.set_global_policy(policy)


@pytest.fixture
def said(monkeypatch):
    lines = []
    log = types.SimpleNamespace(info=lambda text, *values: lines.append(text % values))
    monkeypatch.setattr(gpu_kernels, "logging", log)
    return lines


def usable_kernels(**changes):
    model = types.SimpleNamespace(config=AlbertConfig(**TINY_SHAPE | HEADS | changes))
    return gpu_kernels.usable_kernels(model)


def refuse_attention(monkeypatch, result):
    """Lets the trial of attention return a result, or raise it."""

    def difference(part, *_):
        if part != "attention":
            return 0.005
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(gpu_kernels, "difference", difference)


def test_each_part_is_tried_once_with_the_models_sizes_and_dropout_rate(gpu, said):
    assert usable_kernels(attention_probs_dropout_prob=0.1, hidden_dropout_prob=0.2) == ALL
    arguments = (2, 2, 128, 64), tf.bfloat16
    assert gpu == [
        ("attention", *arguments, 0.1),
        ("feed_forward", *arguments, 0.2),
        ("add_and_norm", *arguments, 0.2),
    ]
    assert said == [f"kernels   for NVIDIA GPUs: {NAMES}"]


def test_without_dropout_attention_is_tried_with_the_longest_sequences_that_cudnn_takes(gpu):
    usable_kernels()
    assert {shape for _, shape, *_ in gpu} == {(2, 2, 192, 64)}


def test_a_release_of_tensorflow_that_cannot_call_them_is_one_line(gpu, said, monkeypatch):
    monkeypatch.setattr(tensorflow_internals, "embeds_modules", lambda: False)
    assert not usable_kernels()
    assert not gpu
    (line,) = said
    assert line.endswith("cannot call them")


def test_nothing_is_tried_or_said_without_a_gpu(said):
    assert not usable_kernels()
    assert said == []


def test_what_a_gpu_refuses_is_one_line_and_the_rest_is_used(gpu, said, monkeypatch):
    text = "CUDNN_STATUS_NOT_SUPPORTED\nin line 7"
    refuse_attention(monkeypatch, tf.errors.InternalError(None, None, text))
    assert usable_kernels() == {"feed_forward", "add_and_norm"}
    reason = "this GPU refuses it: CUDNN_STATUS_NOT_SUPPORTED in line 7"
    assert said == [
        "kernels   for NVIDIA GPUs: feed_forward, add_and_norm",
        f"kernels   attention as XLA compiles it, because {reason}",
    ]


@pytest.mark.parametrize("wrong", [0.2, float("nan")])
def test_wrong_results_are_not_used(gpu, said, monkeypatch, wrong):
    refuse_attention(monkeypatch, wrong)
    assert usable_kernels() == {"feed_forward", "add_and_norm"}
    assert f"differ by {wrong:.1e}" in said[1]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_attention_heads": 8, "hidden_size": 8 * 26}, "200 positions, and heads of 26"),
        ({"max_position_embeddings": 40}, "40 positions, and heads of 64"),
        # With dropout, Triton's kernels compute it, which take less than cuDNN.
        (
            {"attention_probs_dropout_prob": 0.1, "num_attention_heads": 8},
            "200 positions, and heads of 16",
        ),
        (
            {"attention_probs_dropout_prob": 0.1, "max_position_embeddings": 64},
            "64 positions, and heads of 64",
        ),
    ],
)
def test_attention_of_a_shape_that_it_does_not_take_is_not_tried(gpu, said, changes, reason):
    assert usable_kernels(**changes) == {"feed_forward", "add_and_norm"}
    assert [part for part, *_ in gpu] == ["feed_forward", "add_and_norm"]
    assert all(shape[2] > 0 for _, shape, *_ in gpu)
    assert f"this model has {reason} units" in said[1]


def test_nothing_is_tried_in_float32(gpu, said):
    tf_keras.mixed_precision.set_global_policy("float32")
    assert not usable_kernels()
    assert gpu == []
    reason = "they take bfloat16 or float16, and not float32"
    assert said == [f"kernels   none for NVIDIA GPUs, because {reason}"]


@pytest.mark.gpu
@pytest.mark.skipif(not tf.config.list_physical_devices("GPU"), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
@pytest.mark.parametrize("shape", [(2, 12, 512, 64), (5, 3, 64, 128), (1, 2, 128, 8)])
@pytest.mark.parametrize("part", gpu_kernels.PARTS)
def test_on_a_gpu_the_kernels_equal_the_formula(part, shape, dtype):
    for rate in (0.0, 0.1):
        assert gpu_kernels.difference(part, shape, dtype, rate) < 0.02
