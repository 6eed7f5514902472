"""Layers in the place of ours, frozen parts, and the encoder's other inputs and outputs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import albert_tf
from albert_tf import heads, modeling
from albert_tf.checkpoints.loading import load_checkpoint
from albert_tf.checkpoints.names import variable_name
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.config import AlbertConfig
from tests.conftest import TINY_SHAPE

CONFIG = AlbertConfig(**TINY_SHAPE | {"num_hidden_layers": 2, "num_hidden_groups": 1})
LABELS = np.array([0, 2, 1, 1, 0])
CROSS_ENTROPY = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class LoRA(tf_keras.layers.Layer):
    """A frozen dense layer plus a trained low-rank update (arXiv 2106.09685)."""

    def __init__(self, dense, rank, **kwargs):
        super().__init__(name=f"{dense.name}_lora", dtype=dense.dtype_policy, **kwargs)
        self.dense = dense
        dense.trainable = False
        size, scope = (dense.input_size, rank), f"adapters/lora/{dense.scope}"
        self.down = self.add_weight(f"{scope}/down", size, initializer=tf_keras.initializers.Ones())
        self.up = self.add_weight(f"{scope}/up", (rank, dense.output_size), initializer="zeros")

    def call(self, x):
        return self.dense(x) + (x @ self.down) @ self.up


@pytest.fixture
def inputs(tiny_batch):
    return {name: tiny_batch[name] for name in ("input_ids", "input_mask", "segment_ids")}


def seeded(make, **changes):
    tf_keras.utils.set_random_seed(5)
    return make(dataclasses.replace(CONFIG, initializer_range=0.3, **changes))


@pytest.mark.ci
@pytest.mark.parametrize("recompute", [False, True])
def test_lora_on_query_and_value_trains_and_saves(inputs, tmp_path, recompute):
    model = seeded(lambda config: heads.AlbertForClassification(config, 3))
    model.encoder.recompute = recompute
    before = model(inputs).numpy()
    attention = wrap(model)
    np.testing.assert_allclose(model(inputs), before, atol=1e-5)
    ours = modeling.Embeddings, modeling.Linear, modeling.LayerNorm
    for layer in model.encoder.submodules:
        if isinstance(layer, ours):
            layer.trainable = False
    names = {variable_name(variable) for variable in model.trainable_variables}
    scope = "adapters/lora/bert/encoder/transformer/group_0/inner_group_0/attention_1/self"
    lora = {f"{scope}/{part}/{way}" for part in ("query", "value") for way in ("down", "up")}
    assert names == {*lora, "output_weights", "output_bias"}

    frozen = {variable_name(v): v.numpy() for v in model.non_trainable_variables}
    model.compile(tf_keras.optimizers.Adam(0.05), CROSS_ENTROPY)
    data = tf.data.Dataset.from_tensor_slices((inputs, LABELS)).batch(5)
    losses = model.fit(data, epochs=9, verbose=0).history["loss"]
    assert losses[-1] < 0.8 * losses[0]
    assert np.abs(attention.query.up).max() > 0.1
    for variable in model.non_trainable_variables:
        np.testing.assert_array_equal(variable, frozen[variable_name(variable)])

    albert_tf.save_pretrained(model, str(tmp_path))
    again = heads.AlbertForClassification(model.config, 3)
    with pytest.raises(ValueError, match=f"{scope}/query/down is not in the model"):
        load_checkpoint(again, str(tmp_path))
    wrap(again)
    assert load_checkpoint(again, str(tmp_path)).missing == []
    np.testing.assert_allclose(again(inputs), model(inputs), atol=1e-5)


def wrap(model):
    """Replaces query and value, as docs/reference/model.md does; returns the attention."""
    attention = getattr(model, "encoder", model).blocks[0].attention
    attention.query = LoRA(attention.query, rank=2)
    attention.value = LoRA(attention.value, rank=2)
    return attention


def test_weights_that_would_be_lost_are_not_saved(tmp_path):
    model = modeling.AlbertEncoder(CONFIG)
    attention = wrap(model)
    attention.value.up = attention.value.add_weight(attention.query.up.name[:-2], (2, 12))
    with pytest.raises(ValueError, match=r"two variables .* called 'adapters/lora/.*/query/up'"):
        albert_tf.save_pretrained(model, str(tmp_path / "new"))
    with pytest.raises(ValueError, match="two variables"):
        load_checkpoint(model, write_weights(tmp_path))
    attention.value.up = attention.value.add_weight("lora/up", (2, 12))
    with pytest.raises(ValueError, match=r"called 'lora/up'.* begin its name with 'adapters/'"):
        albert_tf.save_pretrained(model, str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def write_weights(folder):
    prefix = str(folder / "model.ckpt-best")
    save_checkpoint(
        prefix, {variable_name(v): v.numpy() for v in modeling.AlbertEncoder(CONFIG).variables}
    )
    return prefix


@pytest.mark.ci
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_every_layer_of_the_attention_can_be_wrapped(inputs, dtype):
    encoder = seeded(
        lambda config: modeling.AlbertEncoder(config, dtype=dtype), num_hidden_layers=1
    )

    def traced():
        function = tf.function(lambda: encoder(inputs)["sequence_output"])
        return lambda: tf.cast(function(), tf.float32).numpy()

    expected = traced()()
    attention = encoder.blocks[0].attention
    for name in ("query", "key", "value", "projection"):
        plain = getattr(attention, name)
        setattr(attention, name, LoRA(plain, 2))
        outputs, up = traced(), getattr(attention, name).up
        atol = 1e-5 if dtype == "float32" else 0.1
        np.testing.assert_allclose(outputs(), expected, atol=atol, err_msg=name)
        up.assign(tf.random.stateless_normal(up.shape, (3, 4)))
        assert np.abs(outputs() - expected).max() > 0.1, name
        setattr(attention, name, plain)
    assert encoder(inputs)["sequence_output"].dtype == encoder.compute_dtype


@pytest.mark.parametrize("name", ["intermediate", "projection"])
def test_layers_of_the_feed_forward_network_can_be_wrapped(inputs, name):
    encoder = seeded(modeling.AlbertEncoder)
    expected = encoder(inputs)["sequence_output"]
    network = encoder.blocks[0].feed_forward
    setattr(network, name, LoRA(getattr(network, name), 2))
    np.testing.assert_allclose(encoder(inputs)["sequence_output"], expected, atol=1e-5)


def test_the_hidden_layer_of_the_span_head_can_be_wrapped(inputs):
    model = seeded(heads.AlbertForAnswerableSpans)
    expected = model(inputs)["end_top_log_probs"]
    model.end.hidden = LoRA(model.end.hidden, 2)
    np.testing.assert_allclose(model(inputs)["end_top_log_probs"], expected, atol=1e-5)


@pytest.mark.parametrize(("part", "name"), [("attention", "query"), ("feed_forward", "projection")])
def test_a_layer_of_the_wrong_shape_fails_with_both_shapes(inputs, part, name):
    encoder = seeded(modeling.AlbertEncoder)
    setattr(getattr(encoder.blocks[0], part), name, tf_keras.layers.Dense(7, name="mine"))
    message = r"the layer 'mine' returned the shape \(5, 11, 7\) .* expected \(5, 11, 12\)"
    with pytest.raises(ValueError, match=message):
        encoder(inputs)


@pytest.mark.ci
def test_a_frozen_encoder_stays_as_it_is_in_fit(inputs):
    model = seeded(lambda config: heads.AlbertForClassification(config, 3), num_hidden_layers=1)
    model.encoder.recompute, model.encoder.trainable = True, False
    before = [variable.numpy() for variable in model.encoder.variables]
    model.compile(tf_keras.optimizers.Adam(0.05), CROSS_ENTROPY)
    data = tf.data.Dataset.from_tensor_slices((inputs, LABELS)).batch(5)
    losses = model.fit(data, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    for variable, value in zip(model.encoder.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


@pytest.mark.parametrize("layout", ["google", "albert_zh"])
def test_word_embeddings_can_be_given_instead_of_ids(inputs, layout):
    encoder = seeded(modeling.AlbertEncoder, layout=layout)
    others = {name: inputs[name] for name in ("input_mask", "segment_ids")}
    words = tf.gather(encoder.embeddings.word_table, inputs["input_ids"])  # [B, S, E]
    found = encoder({"inputs_embeds": words, **others})
    expected = encoder(inputs)
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-6)
    with pytest.raises(ValueError, match="sequence length 22 exceeds max_position_embeddings=13"):
        encoder({"inputs_embeds": tf.concat((words, words), 1)})


@pytest.mark.parametrize("ln_type", [None, "postln", "preln"])
def test_attention_probabilities_can_be_returned(inputs, ln_type):
    layout = {} if ln_type is None else {"layout": "albert_zh", "ln_type": ln_type}
    encoder = seeded(modeling.AlbertEncoder, **layout, attention_probs_dropout_prob=0.3)
    outputs = encoder(inputs, output_attentions=True, output_hidden_states=True)
    assert len(outputs["attentions"]) == 2
    is_padding = np.broadcast_to(inputs["input_mask"][:, None, None] == 0, (5, 4, 11, 11))
    for probs in outputs["attentions"]:
        np.testing.assert_allclose(tf.reduce_sum(probs, -1), np.ones((5, 4, 11)), atol=1e-5)
        assert np.abs(probs)[is_padding].max() == 0
    # They are those that the outputs are computed with.
    first, x = encoder.blocks[0].attention, outputs["hidden_states"][0]
    normal = first.norm(x) if ln_type == "preln" else x
    value = tf.reshape(first.value(normal), (5, 11, 4, 3))
    context = tf.einsum("bnqs,bsnd->bqnd", outputs["attentions"][0], value)
    y = first.projection(tf.reshape(context, (5, 11, 12)))
    expected = y + x if ln_type == "preln" else first.norm(y, x)
    np.testing.assert_allclose(first(x, inputs["input_mask"]), expected, atol=1e-5)
    in_graph = tf.function(lambda: encoder(inputs, output_attentions=True)["attentions"])()
    np.testing.assert_allclose(in_graph, outputs["attentions"], atol=1e-5)


def test_other_columns_are_ignored(inputs):
    encoder = seeded(modeling.AlbertEncoder)
    others = {"labels": LABELS, "special_tokens_mask": inputs["input_mask"], "weight": LABELS * 0.1}
    expected = encoder(inputs)["pooled_output"]
    np.testing.assert_array_equal(encoder(inputs | others)["pooled_output"], expected)
