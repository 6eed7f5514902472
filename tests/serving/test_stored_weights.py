"""Tests weights in half precision: the size, and the rounding of float32 outputs."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import acceleration, heads, modeling
from albert_tf.config import AlbertConfig
from albert_tf.serving import saved_model, stored_weights

CONFIG = AlbertConfig(
    97, hidden_size=48, num_attention_heads=4, num_hidden_layers=2, intermediate_size=20
)
MODELS = {
    "encoder": lambda: modeling.AlbertEncoder(CONFIG),
    "pretraining": lambda: modeling.AlbertForPretraining(CONFIG),
    "classification": lambda: heads.AlbertForClassification(CONFIG, 3),
    "spans": lambda: heads.AlbertForSpans(CONFIG),
    "answerable_spans": lambda: heads.AlbertForAnswerableSpans(CONFIG),
}


@pytest.mark.ci
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_float32_and_differ_by_rounding(name, precision):
    model = MODELS[name]()
    stored = stored_weights.store_in(model, precision)
    kinds = {weight.dtype.name for weight in stored.variables if weight.shape.rank > 1}
    assert kinds == {precision}
    batch = {"input_ids": tf.constant([[5, 6, 7, 8, 9, 10, 11], [5, 6, 7, 8, 9, 0, 0]])}
    with acceleration.plain():
        found = tf.nest.flatten(stored(batch, training=False))
        expected = tf.nest.flatten(model(batch, training=False))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        if ours.dtype == tf.float32:
            assert 0 < abs(ours - theirs).numpy().max() < 0.05


def test_float32_returns_the_model_itself():
    model = MODELS["encoder"]()
    assert stored_weights.store_in(model, "float32") is model


@pytest.mark.slow
def test_exports_in_half_precision_are_half_as_large(tmp_path):
    model = MODELS["classification"]()
    features = saved_model.token_features(7)
    batch = {
        "input_ids": tf.constant([[5, 6, 7, 8, 9, 10, 11]]),
        "input_mask": tf.ones([1, 7], tf.int32),
        "segment_ids": tf.zeros([1, 7], tf.int32),
    }
    sizes, found = {}, {}
    for precision in stored_weights.PRECISIONS:
        folder = saved_model.export_saved_model(
            str(tmp_path / precision),
            model,
            features,
            lambda logits: {"probabilities": tf.nn.softmax(logits)},
            precision=precision,
        )
        data = tmp_path / precision / folder.rsplit("/", 1)[1] / "variables"
        sizes[precision] = (data / "variables.data-00000-of-00001").stat().st_size
        served = tf.saved_model.load(folder).signatures["tensors"](**batch)["probabilities"]
        assert served.dtype == tf.float32
        found[precision] = served.numpy()
    assert max(sizes["bfloat16"], sizes["float16"]) < 0.6 * sizes["float32"]
    np.testing.assert_allclose(found["bfloat16"], found["float32"], atol=2e-3)
    np.testing.assert_allclose(found["float16"], found["float32"], atol=3e-4)
