"""Layers and models used with Keras: called, trained, configured, saved, and replaced."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import albert_tf
from albert_tf.checkpoints.loading import load_checkpoint
from albert_tf.checkpoints.weight_names import variable_name
from albert_tf.model import heads, layers, modeling, optimization
from albert_tf.model.config import AlbertConfig
from albert_tf.model.layers import Configured
from albert_tf.tensorflow_releases import set_random_seed
from tests.conftest import TINY_SHAPE
from tests.numpy_albert import RecordingAlbert

INPUTS = ("input_ids", "input_mask", "segment_ids")
CONFIG = AlbertConfig(**TINY_SHAPE | {"num_hidden_layers": 2})
SHALLOW = dataclasses.replace(CONFIG, num_hidden_layers=1, num_hidden_groups=1)
SHARED = dataclasses.replace(CONFIG, num_hidden_groups=1)
ZH = dataclasses.replace(SHARED, layout="albert_zh")
PRE_LN = dataclasses.replace(ZH, ln_type="preln")
WITH_DROPOUT = dataclasses.replace(
    CONFIG, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.2
)
MODELS = {
    "pretraining": lambda config, **kwargs: modeling.AlbertForPretraining(config, **kwargs),
    "classification": lambda config, **kwargs: heads.AlbertForClassification(config, 3, **kwargs),
    "regression": lambda config, **kwargs: heads.AlbertForClassification(config, 1, True, **kwargs),
    "choice": lambda config, **kwargs: heads.AlbertForMultipleChoice(config, 0.2, **kwargs),
    "tokens": lambda config, **kwargs: heads.AlbertForTokenClassification(config, 3, **kwargs),
    "spans": lambda config, **kwargs: heads.AlbertForSpans(config, **kwargs),
    "answerable": lambda config, **kwargs: heads.AlbertForAnswerableSpans(config, 2, 3, **kwargs),
}
LABELS = np.array([0, 2, 1, 1, 0])
CROSS_ENTROPY = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.fixture
def inputs(tiny_batch):
    return {name: tiny_batch[name] for name in INPUTS}


def features_of(name, tiny_batch):
    """Returns the inputs of a model in `MODELS`."""
    features = {name: tiny_batch[name] for name in INPUTS}
    if name == "choice":
        return {name: np.stack([value, value[::-1]], axis=1) for name, value in features.items()}
    if name == "pretraining":
        return features | {"masked_lm_positions": tiny_batch["masked_lm_positions"]}
    return features


def assert_same(found, expected, atol=0.0):
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=atol), found, expected
    )


def randomize(model):
    """Assigns random weights from a fixed seed, so that none is constant."""
    rng = np.random.default_rng(3)
    for variable in model.variables:
        variable.assign(rng.normal(size=variable.shape, scale=0.3))
    return model


# Layers called directly.


def test_layers_can_be_called_directly_and_apply_dropout_only_in_training(tiny_batch):
    x, mask = tf.random.stateless_normal((5, 11, 12), (1, 2)), tiny_batch["input_mask"]
    for layer in (modeling.TransformerBlock(WITH_DROPOUT), modeling.SelfAttention(WITH_DROPOUT)):
        y = layer(x, mask)
        np.testing.assert_array_equal(layer(x, mask), y)
        assert np.any(layer(x, mask, training=True) != y)
        np.testing.assert_array_equal(layer(x), layer(x, np.ones_like(mask)))
        assert np.abs(layer(x) - y)[~mask.all(axis=1)].max() > 1e-4
    embeddings, ids = modeling.Embeddings(WITH_DROPOUT), tiny_batch["input_ids"]
    np.testing.assert_array_equal(embeddings(ids), embeddings(ids))
    assert np.any(embeddings(ids, training=True) != embeddings(ids, training=True))


def test_inputs_are_ids_tensors_lists_or_a_dict_with_googles_or_hugging_faces_names(inputs):
    encoder = modeling.AlbertEncoder(SHALLOW)
    expected = encoder(inputs)
    assert set(expected) == {"sequence_output", "pooled_output"}
    lists = {name: value.tolist() for name, value in inputs.items()}
    names = ("input_ids", "attention_mask", "token_type_ids")
    for same in (lists, dict(zip(names, inputs.values(), strict=True))):
        assert_same(encoder(same), expected)
    for values in (inputs, lists):
        assert_same(encoder(*values.values()), expected)
    ids, segments = inputs["input_ids"], inputs["segment_ids"]
    unmasked = encoder(ids, np.ones_like(ids), segments)
    assert_same(encoder(ids, segment_ids=segments), unmasked)
    assert_same(encoder({"input_ids": ids, "segment_ids": segments}), unmasked)
    full = encoder(ids, np.ones_like(ids), np.zeros_like(ids))
    assert_same(encoder(ids), full)
    assert_same(encoder(ids.astype(np.int64)), full)
    others = {"labels": LABELS, "special_tokens_mask": inputs["input_mask"], "weight": LABELS * 0.1}
    assert_same(encoder(inputs | others), expected)


@pytest.mark.parametrize(
    ("name", "argument"),
    [("choice", "input_mask"), ("pretraining", "masked_lm_positions"), ("answerable", "p_mask")],
)
def test_inputs_are_in_a_dict_with_either_names_or_separate(tiny_batch, name, argument):
    model, features = MODELS[name](SHALLOW), features_of(name, tiny_batch)
    features |= {"p_mask": tiny_batch["segment_ids"]} if argument == "p_mask" else {}
    expected = model(features)
    theirs = {"input_mask": "attention_mask", "segment_ids": "token_type_ids"}
    assert_same(model({theirs.get(key, key): x for key, x in features.items()}), expected)
    separate = {argument: features[argument]}
    with pytest.raises(ValueError, match=f"{argument} is given twice"):
        model(features, **separate)
    del features[argument]
    assert_same(model(features, **separate), expected)


def ids_as(*names):
    return dict.fromkeys(names, np.ones((2, 4), np.int32))


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (ids_as("input_ids", "input_mask", "attention_mask"), "two of them are input_mask"),
        (ids_as("input_ids", "input_masks"), "input 'input_masks': is it input_mask?"),
        (ids_as("input_ids", "position_ids"), "input 'position_ids' is not supported"),
        (ids_as("input_ids", "inputs_embeds"), "input_ids and inputs_embeds: expected one"),
        (ids_as("input_word_ids"), "input_word_ids: input_ids is missing"),
        (np.ones((2, 4)), "input_ids have the dtype float64, expected int32 or int64"),
        ([[2.0, 5.0, 3.0]], "input_ids have the dtype float32"),
        ([2, 5, 3], r"the input has the shape \(3,\): expected \[B, S\]"),
        (np.ones((2, 14), np.int32), "length 14 exceeds max_position_embeddings=13"),
    ],
)
def test_inputs_that_would_be_ignored_or_misread_are_refused(inputs, said):
    with pytest.raises(ValueError, match=said):
        modeling.AlbertEncoder(SHALLOW)(inputs)


def test_inputs_may_be_as_long_as_the_position_embeddings():
    outputs = modeling.AlbertEncoder(SHALLOW)(np.ones((2, 13), np.int32))
    assert outputs["sequence_output"].shape == (2, 13, SHALLOW.hidden_size)


SHAPES = {
    "pretraining": {"masked_lm_logits": (5, 7, 97), "sentence_order_logits": (5, 2)},
    "classification": (5, 3),
    "regression": (5, 1),
    "choice": (5, 2),
    "tokens": (5, 11, 3),
    "spans": {"start_logits": (5, 11), "end_logits": (5, 11)},
    "answerable": {
        "cls_logits": (5,),
        "start_log_probs": (5, 11),
        "start_top_log_probs": (5, 2),
        "start_top_index": (5, 2),
        "end_top_log_probs": (5, 6),
        "end_top_index": (5, 6),
    },
}


@pytest.mark.ci
@pytest.mark.parametrize("name", MODELS)
def test_models_return_logits_and_optionally_every_layer_and_its_attention(name, tiny_batch):
    model, features = MODELS[name](WITH_DROPOUT), features_of(name, tiny_batch)
    outputs, is_dict = model(features), isinstance(SHAPES[name], dict)
    found = {key: x.shape for key, x in outputs.items()} if is_dict else outputs.shape
    assert found == SHAPES[name]
    assert_same(model(*features.values()), outputs, atol=1e-6)
    again = model(features, output_hidden_states=True, output_attentions=True)
    states, attentions = again.pop("hidden_states"), again.pop("attentions")
    assert_same(again if is_dict else again["logits"], outputs, atol=1e-6)
    rows, queries = 10 if name == "choice" else 5, 8 if name == "pretraining" else 11
    assert [tuple(state.shape[::2]) for state in states] == [(rows, 12)] * 3
    assert [tuple(x.shape) for x in attentions] == [(rows, 4, 11, 11), (rows, 4, queries, 11)]
    inputs = {key: tf.reshape(features[key], (-1, 11)) for key in INPUTS}
    positions = features.get("masked_lm_positions")
    of_encoder = model.encoder(inputs, output_positions=positions, output_attentions=True)
    assert_same(attentions, of_encoder["attentions"], atol=1e-6)


# compile, fit, evaluate, predict.


def dataset(features, labels, *weights):
    return tf.data.Dataset.from_tensor_slices((features, labels, *weights)).batch(5)


@pytest.mark.ci
def test_classification_learns_by_fit(inputs):
    model = heads.AlbertForClassification(SHALLOW, 3, name="my_model")
    adam = tf_keras.optimizers.Adam(0.03)
    model.compile(adam, CROSS_ENTROPY, metrics=["accuracy"], run_eagerly=True)
    data = dataset(inputs, LABELS)
    losses = model.fit(data, epochs=20, verbose=0).history["loss"]
    after = model.evaluate(data, verbose=0, return_dict=True)
    assert after["loss"] < losses[0] / 2
    assert after["accuracy"] == 1
    predicted = model.predict(data, verbose=0)
    assert isinstance(predicted, np.ndarray)
    assert predicted.shape == (5, 3)
    np.testing.assert_array_equal(predicted.argmax(axis=1), LABELS)


def test_pretraining_trains_with_a_loss_for_each_head(tiny_batch):
    model = modeling.AlbertForPretraining(SHALLOW)
    names = ("masked_lm_logits", "sentence_order_logits")
    losses = dict.fromkeys(names, CROSS_ENTROPY)
    model.compile("adam", losses, weighted_metrics=[], run_eagerly=True)
    labels = tiny_batch["masked_lm_ids"], tiny_batch["next_sentence_labels"]
    weights = tiny_batch["masked_lm_weights"], np.ones(5, np.float32)
    data = dataset(
        features_of("pretraining", tiny_batch),
        dict(zip(names, labels, strict=True)),
        dict(zip(names, weights, strict=True)),
    )
    history = model.fit(data, epochs=2, verbose=0).history
    assert set(history) == {"loss", "masked_lm_logits_loss", "sentence_order_logits_loss"}
    assert history["loss"][1] < history["loss"][0]
    shapes = {name: value.shape for name, value in model.predict(data, verbose=0).items()}
    assert shapes == {"masked_lm_logits": (5, 7, 97), "sentence_order_logits": (5, 2)}


@pytest.mark.slow
def test_mixed_float16_fits_as_float32_does(inputs):
    def fit(policy):
        tf_keras.mixed_precision.set_global_policy(policy)
        set_random_seed(5)
        model = heads.AlbertForClassification(SHALLOW, 3)
        optimizer = optimization.fine_tuning_optimizer(0.003, 4, warmup_proportion=0.25)
        model.compile(optimizer, CROSS_ENTROPY)
        is_scaled = isinstance(model.optimizer, tf_keras.mixed_precision.LossScaleOptimizer)
        assert is_scaled == (policy == "mixed_float16")
        return model.fit(inputs, LABELS, epochs=4, verbose=0).history["loss"]

    exact, losses = fit("float32"), fit("mixed_float16")
    np.testing.assert_allclose(losses, exact, rtol=0.02)
    assert losses[3] < losses[0]


WITHOUT_POOLER = {
    "mean": lambda: heads.AlbertForClassification(SHALLOW, 3, use_pooled_output=False),
    "masked words": lambda: modeling.AlbertForPretraining(SHALLOW, "none"),
}


@pytest.mark.parametrize("name", [*MODELS, *WITHOUT_POOLER])
def test_the_trainable_weights_are_those_that_the_output_depends_on(name, tiny_batch):
    model = WITHOUT_POOLER[name]() if name in WITHOUT_POOLER else MODELS[name](SHALLOW)
    features = features_of("pretraining" if name == "masked words" else name, tiny_batch)
    with tf.GradientTape() as tape:
        outputs = tf.nest.flatten(model(features))
        total = tf.add_n([tf.reduce_sum(x) for x in outputs if x.dtype.is_floating])
    gradients = tape.gradient(total, model.weights)
    found = [w.name for w, g in zip(model.weights, gradients, strict=True) if g is not None]
    assert found == [weight.name for weight in model.trainable_weights]
    both = [*model.trainable_weights, *model.non_trainable_weights]
    assert sorted(w.name for w in both) == sorted(w.name for w in model.weights)
    model.trainable = False
    assert not model.trainable_weights
    assert len(model.non_trainable_weights) == len(model.weights)


def test_an_encoder_may_have_no_pooler(inputs):
    encoder = modeling.AlbertEncoder(SHALLOW)
    bare = modeling.AlbertEncoder(SHALLOW, add_pooling_layer=False)
    names = {weight.name for weight in encoder.weights}
    assert names - {w.name for w in bare.weights} == {
        f"bert/pooler/dense/{kind}:0" for kind in ("kernel", "bias")
    }
    bare.set_weights([w.numpy() for w in encoder.weights if "pooler" not in w.name])
    outputs = bare(inputs)
    assert list(outputs) == ["sequence_output"]
    assert_same(outputs["sequence_output"], encoder(inputs)["sequence_output"])
    assert_round_trip(bare)


# get_config, from_config, clone_model, names.


def assert_round_trip(made):
    config = json.loads(json.dumps(made.get_config()))
    again = type(made).from_config(config)
    assert again.get_config() == made.get_config()
    assert again.name == made.name
    assert [(w.name, w.shape, w.dtype) for w in again.weights] == [
        (w.name, w.shape, w.dtype) for w in made.weights
    ]


@pytest.mark.ci
@pytest.mark.parametrize("config", [CONFIG, ZH, PRE_LN], ids=["google", "postln", "preln"])
@pytest.mark.parametrize("name", MODELS)
def test_models_and_their_layers_can_be_recreated_from_their_config(name, config):
    model = MODELS[name](config, name="mine", dtype="mixed_bfloat16")
    ours = (layer for layer in model.submodules if isinstance(layer, Configured))
    for made in (model, *{type(layer): layer for layer in ours}.values()):
        assert_round_trip(made)
    assert type(tf_keras.models.clone_model(model)) is type(model)


def test_models_may_have_any_name_and_sublayers_have_fixed_names():
    """Gradients are summed in the order of names, so others would change the last bits."""
    made = [modeling.AlbertEncoder(CONFIG, name=name) for name in ("x", None, None)]
    assert made[0].name == "x"
    assert len({encoder.name for encoder in made}) == 3
    for models in (made, [modeling.AlbertForPretraining(CONFIG) for _ in range(2)]):
        assert len({tuple(layer.name for layer in m._flatten_layers())[1:] for m in models}) == 1
        assert len({tuple(map(variable_name, model.variables)) for model in models}) == 1


# Functional models.


@pytest.mark.ci
def test_a_functional_model_can_have_two_encoders_and_be_cloned_and_saved(inputs, tmp_path):
    """They share no weights."""
    ids = tf_keras.Input((None,), dtype="int32", name="input_ids")
    mask = tf_keras.Input((None,), dtype="int32", name="input_mask")
    encoders = modeling.AlbertEncoder(CONFIG, name="first"), modeling.AlbertEncoder(ZH)
    first = encoders[0]({"input_ids": ids, "input_mask": mask})
    assert first["sequence_output"].shape.as_list() == [None, None, 12]
    pooled = first["pooled_output"], encoders[1](ids, mask)["pooled_output"]
    outputs = tf_keras.layers.Dense(3)(tf_keras.layers.concatenate(pooled))
    model = randomize(tf_keras.Model([ids, mask], outputs))
    arguments = inputs["input_ids"], inputs["input_mask"]
    pooled = [encoder(*arguments)["pooled_output"] for encoder in encoders]
    expected = model.layers[-1](tf.concat(pooled, axis=-1))
    clone = tf_keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    model.save(tmp_path / "model.keras")
    for same in (model, clone, tf_keras.models.load_model(tmp_path / "model.keras")):
        np.testing.assert_allclose(same(arguments), expected, atol=1e-5)
    lines = []
    model.summary(print_fn=lines.append)
    assert any("first (AlbertEncoder)" in line for line in lines)
    assert any(f"Total params: {model.count_params()} " in line for line in lines)


# Files.


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "config"),
    [*((name, CONFIG) for name in MODELS), ("pretraining", PRE_LN), ("answerable", PRE_LN)],
    ids=[*MODELS, "pretraining-albert_zh", "answerable-albert_zh"],
)
def test_models_can_be_saved_and_loaded(name, config, tiny_batch, tmp_path):
    features = features_of(name, tiny_batch)
    model = randomize(MODELS[name](config))
    expected = model(features)
    model.save(tmp_path / "model.keras")
    assert_same(tf_keras.models.load_model(tmp_path / "model.keras")(features), expected)
    other = MODELS[name](config)
    for file in ("model.weights.h5", "model.h5"):
        model.save_weights(tmp_path / file)
        other.set_weights([0 * weight for weight in model.get_weights()])
        other.load_weights(tmp_path / file)
        assert_same(other.get_weights(), model.get_weights())


@pytest.mark.slow
def test_a_saved_model_works_with_and_without_its_classes(inputs, tmp_path):
    model = randomize(MODELS["classification"](SHALLOW))
    expected = model(inputs)
    model.save(tmp_path / "model", save_format="tf")
    as_keras = tf_keras.models.load_model(tmp_path / "model", compile=False)
    assert type(as_keras) is type(model)
    assert_same(as_keras(inputs), expected, atol=1e-6)
    serve = tf.saved_model.load(tmp_path / "model").signatures["serving_default"]
    found = serve(**{name: tf.constant(value) for name, value in inputs.items()})
    assert_same(found["output_1"], expected, atol=1e-6)


# Precision.


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_a_policy_applies_to_all_sublayers(dtype, inputs):
    model = MODELS["classification"](CONFIG, dtype=dtype)
    half = tf.as_dtype(dtype.removeprefix("mixed_"))
    assert {variable.dtype for variable in model.variables} == {tf.float32}
    assert model(inputs).dtype == tf.float32
    assert model.encoder(inputs)["sequence_output"].dtype == half
    again = type(model).from_config(model.get_config())
    assert again.encoder.blocks[0].attention.query.compute_dtype == half
    assert again.encoder.embeddings.norm.compute_dtype == "float32"


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("config", [ZH, SHARED])
def test_the_gradient_of_one_hot_segments_is_dense_and_summed_in_float32(config, dtype):
    """In bfloat16, a sum of ones would end at 256."""
    embeddings = modeling.Embeddings(config, dtype=dtype)
    assert embeddings.has_one_hot_segments == (config is ZH)
    embeddings.has_one_hot_segments = True
    with tf.GradientTape() as tape:
        found = embeddings.embed_segments(tf.ones((8, 500), tf.int32))
    table = embeddings.segment_table
    np.testing.assert_array_equal(found[3, 7], tf.cast(table[1], found.dtype))
    gradient = tape.gradient(found, table)
    assert isinstance(gradient, tf.Tensor)
    np.testing.assert_array_equal(gradient, np.outer([0, 4000, 0], np.ones(embeddings.size)))


# Layers in the place of ours, and frozen ones.


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


def seeded(make, **changes):
    set_random_seed(5)
    return make(dataclasses.replace(SHARED, initializer_range=0.3, **changes))


@pytest.mark.slow
def test_lora_on_query_and_value_trains_and_saves(inputs, tmp_path):
    model = seeded(lambda config: heads.AlbertForClassification(config, 3))
    model.encoder.recompute = True
    before = model(inputs).numpy()
    attention = wrap(model)
    np.testing.assert_allclose(model(inputs), before, atol=1e-5)
    ours = modeling.Embeddings, layers.Linear, layers.Normalization
    for layer in model.encoder.submodules:
        if isinstance(layer, ours):
            layer.trainable = False
    names = {variable_name(variable) for variable in model.trainable_variables}
    scope = "adapters/lora/bert/encoder/transformer/group_0/inner_group_0/attention_1/self"
    lora = {f"{scope}/{part}/{way}" for part in ("query", "value") for way in ("down", "up")}
    assert names == {*lora, "output_weights", "output_bias"}

    frozen = {variable_name(v): v.numpy() for v in model.non_trainable_variables}
    model.compile(tf_keras.optimizers.Adam(0.05), CROSS_ENTROPY)
    losses = model.fit(dataset(inputs, LABELS), epochs=9, verbose=0).history["loss"]
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
    model = modeling.AlbertEncoder(SHARED)
    attention = wrap(model)
    attention.value.up = attention.value.add_weight(attention.query.up.name[:-2], (2, 12))
    with pytest.raises(ValueError, match=r"two variables .* called 'adapters/lora/.*/query/up'"):
        albert_tf.save_pretrained(model, str(tmp_path / "new"))
    attention.value.up = attention.value.add_weight("lora/up", (2, 12))
    with pytest.raises(ValueError, match=r"called 'lora/up'.* begin its name with 'adapters/'"):
        albert_tf.save_pretrained(model, str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


@pytest.mark.ci
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_every_layer_of_a_block_can_be_wrapped(inputs, dtype):
    encoder = seeded(
        lambda config: modeling.AlbertEncoder(config, dtype=dtype), num_hidden_layers=1
    )

    def traced():
        function = tf.function(lambda: encoder(inputs)["sequence_output"])
        return lambda: tf.cast(function(), tf.float32).numpy()

    expected, block = traced()(), encoder.blocks[0]
    in_attention = [(block.attention, name) for name in ("query", "key", "value", "projection")]
    in_network = [(block.feed_forward, name) for name in ("intermediate", "projection")]
    for part, name in in_attention + in_network:
        plain = getattr(part, name)
        setattr(part, name, LoRA(plain, 2))
        outputs, up = traced(), getattr(part, name).up
        atol = 1e-5 if dtype == "float32" else 0.1
        np.testing.assert_allclose(outputs(), expected, atol=atol, err_msg=name)
        up.assign(tf.random.stateless_normal(up.shape, (3, 4)))
        if name != "intermediate":  # whose inputs, of a LayerNorm, add up to 0
            assert np.abs(outputs() - expected).max() > 0.1, name
        setattr(part, name, plain)
    assert encoder(inputs)["sequence_output"].dtype == encoder.compute_dtype


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


@pytest.mark.parametrize("ln_type", [None, "postln", "preln"])
def test_attention_probabilities_and_all_layers_are_those_of_numpy(inputs, ln_type):
    layout = {} if ln_type is None else {"layout": "albert_zh", "ln_type": ln_type}
    encoder = seeded(modeling.AlbertEncoder, **layout, attention_probs_dropout_prob=0.3)
    weights = {variable_name(variable): variable.numpy() for variable in encoder.variables}
    model = RecordingAlbert(encoder.config, weights)
    model.encode(*(inputs[name] for name in INPUTS))
    outputs = encoder(inputs, output_attentions=True, output_hidden_states=True)
    assert_same(outputs["attentions"], tuple(model.probs), atol=1e-5)
    states = (model.transitions[0][0], *(y for _, y in model.transitions))
    assert_same(outputs["hidden_states"], states, atol=1e-5)
    in_graph = tf.function(lambda: encoder(inputs, output_attentions=True)["attentions"])()
    assert_same(in_graph, outputs["attentions"], atol=1e-5)
