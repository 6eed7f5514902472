"""Whether a run fuses attention: what is tried on a GPU, and what is logged if it is refused."""

from __future__ import annotations

import types

import pytest
import tensorflow as tf
import tf_keras

from albert_tf.model import tensorflow_internals
from albert_tf.model.config import AlbertConfig
from albert_tf.training import gpu_kernels
from tests.conftest import TINY_SHAPE

HEADS = {"hidden_size": 128, "num_attention_heads": 2, "max_position_embeddings": 200}


@pytest.fixture
def gpu(monkeypatch):
    """A machine that seems to have a GPU, on which fused attention has a difference of 0.005."""
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


def can_be_fused(**changes):
    model = types.SimpleNamespace(config=AlbertConfig(**TINY_SHAPE | HEADS | changes))
    return gpu_kernels.can_be_fused(model)


def test_a_gpu_that_takes_it_is_tried_once_with_the_models_sizes(gpu, said):
    assert can_be_fused(attention_probs_dropout_prob=0.1)
    assert gpu == [((2, 2, 192, 64), tf.bfloat16, 0.1)]
    assert said == ["attention fused, by cuDNN or Triton"]


def test_a_release_of_tensorflow_that_cannot_call_it_is_one_line(gpu, said, monkeypatch):
    monkeypatch.setattr(tensorflow_internals, "embeds_modules", lambda: False)
    assert not can_be_fused()
    assert not gpu
    assert said[0].endswith("cannot call cuDNN")


def test_nothing_is_tried_or_said_without_a_gpu(said):
    assert not can_be_fused()
    assert said == []


def test_a_gpu_that_refuses_is_one_line(gpu, said, monkeypatch):
    def refuse(*_):
        raise tf.errors.InternalError(None, None, "CUDNN_STATUS_NOT_SUPPORTED\nin line 7")

    monkeypatch.setattr(gpu_kernels, "difference", refuse)
    assert not can_be_fused()
    reason = "this GPU refuses it: CUDNN_STATUS_NOT_SUPPORTED in line 7"
    assert said == [f"attention as XLA compiles it, because {reason}"]


@pytest.mark.parametrize("wrong", [0.2, float("nan")])
def test_wrong_results_are_not_used(gpu, said, monkeypatch, wrong):
    monkeypatch.setattr(gpu_kernels, "difference", lambda *_: wrong)
    assert not can_be_fused()
    assert f"differ by {wrong:.1e}" in said[0]


def test_what_it_does_not_take_is_not_tried(gpu, said):
    assert not can_be_fused(num_attention_heads=8, hidden_size=8 * 26)
    assert not can_be_fused(max_position_embeddings=40)
    tf_keras.mixed_precision.set_global_policy("float32")
    assert not can_be_fused()
    assert gpu == []
    assert "this model has bfloat16 and 26" in said[0]
    assert "this model has float32 and 64" in said[-1]


@pytest.mark.gpu
@pytest.mark.skipif(not tf.config.list_physical_devices("GPU"), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
@pytest.mark.parametrize("shape", [(2, 12, 512, 64), (5, 3, 64, 128), (1, 2, 128, 8)])
def test_on_a_gpu_fused_attention_equals_the_formula(shape, dtype):
    for rate in (0.0, 0.1):
        assert gpu_kernels.difference(shape, dtype, rate) < 0.02
