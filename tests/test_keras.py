"""Layers and models used with Keras: built, called, trained, configured, saved."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from absl import logging

from albert_tf import heads, modeling, optimization
from albert_tf.checkpoints.names import variable_name
from albert_tf.config import AlbertConfig
from tests.conftest import TINY_SHAPE

INPUTS = ("input_ids", "input_mask", "segment_ids")
CONFIG = AlbertConfig(**TINY_SHAPE | {"num_hidden_layers": 2})
SHALLOW = dataclasses.replace(CONFIG, num_hidden_layers=1, num_hidden_groups=1)
ZH = dataclasses.replace(CONFIG, layout="albert_zh", num_hidden_groups=1)
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
LAYERS = {
    "linear": lambda: modeling.Linear(CONFIG, "some/dense", 7, 3),
    "norm": lambda: modeling.LayerNorm(CONFIG, "some/LayerNorm", 7),
    "add and norm": lambda: modeling.AddAndNorm(CONFIG, "some/LayerNorm", 7),
    "feed_forward": lambda: modeling.FeedForward(CONFIG, 1),
    "output": lambda: modeling.OutputLayer(CONFIG, "some/", 3, 0.1),
    "embeddings": lambda: modeling.Embeddings(CONFIG),
    "attention": lambda: modeling.SelfAttention(CONFIG),
    "block": lambda: modeling.TransformerBlock(CONFIG, modeling.SelfAttention(CONFIG, 1)),
    "encoder": lambda: modeling.AlbertEncoder(CONFIG, recompute=True),
    "masked_lm": lambda: modeling.MaskedLMHead(CONFIG),
    "span end": lambda: heads.SpanEnd(CONFIG),
    "answerability": lambda: heads.Answerability(CONFIG, 0.2),
    "zh embeddings": lambda: modeling.Embeddings(ZH),
    "zh attention": lambda: modeling.SelfAttention(ZH),
    "zh feed_forward": lambda: modeling.FeedForward(ZH),
    "pre-LN attention": lambda: modeling.SelfAttention(PRE_LN),
    "pre-LN feed_forward": lambda: modeling.FeedForward(PRE_LN),
    "zh masked_lm": lambda: modeling.MaskedLMHead(ZH),
}
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


@pytest.fixture
def no_warnings(monkeypatch):
    """Turns warnings in the log into errors, as Python's warnings are."""

    def fail(message, *arguments, **_):
        raise AssertionError(message % arguments if arguments else message)

    monkeypatch.setattr(logging, "warning", fail)
    monkeypatch.setattr(tf.get_logger(), "warning", fail)


# Layers called directly.


def test_a_block_and_its_attention_can_be_called_directly(tiny_batch):
    x = tf.random.stateless_normal((5, 11, 12), (1, 2))
    mask = tiny_batch["input_mask"]
    for layer in (modeling.TransformerBlock(CONFIG), modeling.SelfAttention(CONFIG)):
        y = layer(x, mask)
        assert y.shape == x.shape
        assert np.abs(y - x).max() > 0.1
        hidden = tf.where(mask[:, :, None] == 1, x, 7.0)  # nobody attends to padding
        is_token = mask == 1
        np.testing.assert_allclose(layer(hidden, mask)[is_token], y[is_token], atol=1e-5)
        assert np.abs(layer(x) - y)[~mask.all(axis=1)].max() > 1e-4
        np.testing.assert_array_equal(layer(x), layer(x, np.ones_like(mask)))


def test_layers_apply_dropout_only_in_training():
    x = tf.random.stateless_normal((5, 11, 12), (1, 2))
    ids = tf.ones((5, 11), tf.int32)
    for layer, argument in (
        (modeling.TransformerBlock(WITH_DROPOUT), x),
        (modeling.SelfAttention(WITH_DROPOUT), x),
        (modeling.Embeddings(WITH_DROPOUT), ids),
    ):
        plain = layer(argument)
        np.testing.assert_array_equal(layer(argument), plain)
        first, second = (layer(argument, training=True) for _ in range(2))
        assert np.any(first != second)
        assert np.any(first != plain)


def test_the_encoder_accepts_ids_tensors_or_a_dict(inputs):
    encoder = modeling.AlbertEncoder(CONFIG)
    expected = encoder(inputs)
    assert set(expected) == {"sequence_output", "pooled_output"}
    assert_same(encoder(*inputs.values()), expected)
    assert_same(
        encoder(inputs["input_ids"], segment_ids=inputs["segment_ids"]),
        encoder({name: inputs[name] for name in ("input_ids", "segment_ids")}),
    )
    ids = inputs["input_ids"]
    full = encoder(ids, np.ones_like(ids), np.zeros_like(ids))
    assert_same(encoder(ids), full)
    assert_same(encoder(ids.astype(np.int64)), full)


def test_inputs_may_have_hugging_faces_names(inputs):
    encoder = modeling.AlbertEncoder(SHALLOW)
    expected = encoder(inputs)
    names = ("input_ids", "attention_mask", "token_type_ids")
    renamed = dict(zip(names, inputs.values(), strict=True))
    assert_same(encoder(renamed), expected)
    model = MODELS["choice"](SHALLOW)
    wide = {name: np.stack([value, value[::-1]], axis=1) for name, value in inputs.items()}
    expected = model(wide)
    assert_same(model(dict(zip(names, wide.values(), strict=True))), expected)
    mask = wide.pop("input_mask")
    assert_same(model(wide, input_mask=mask), expected)


@pytest.mark.parametrize(
    ("renamed", "arguments", "message"),
    [
        ({"attention_mask": "input_mask"}, {}, "two of them are input_mask"),
        ({"token_type_ids": "segment_ids"}, {}, "two of them are segment_ids"),
        ({"input_masks": "input_mask"}, {}, "unknown input 'input_masks': is it input_mask?"),
        ({"token_type_id": "segment_ids"}, {}, "unknown input 'token_type_id': is it token_type_"),
        ({"position_ids": "input_ids"}, {}, "the input 'position_ids' is not supported"),
        ({"inputs_embeds": "input_ids"}, {}, "input_ids and inputs_embeds: expected one of them"),
        ({}, {"input_mask": "input_mask"}, "input_mask is given twice: in the dict of inputs"),
        ({}, {"segment_ids": "segment_ids"}, "segment_ids is given twice: in the dict of inputs"),
    ],
)
def test_inputs_that_would_be_ignored_are_rejected(inputs, renamed, arguments, message):
    encoder = modeling.AlbertEncoder(SHALLOW)
    wrong = inputs | {name: inputs[own] for name, own in renamed.items()}
    with pytest.raises(ValueError, match=message):
        encoder(wrong, **{name: inputs[own] for name, own in arguments.items()})


@pytest.mark.parametrize(
    ("name", "argument"), [("pretraining", "masked_lm_positions"), ("answerable", "p_mask")]
)
def test_other_inputs_are_in_the_dict_or_separate_arguments(tiny_batch, name, argument):
    model, features = MODELS[name](SHALLOW), features_of("classification", tiny_batch)
    value = {
        "masked_lm_positions": tiny_batch["masked_lm_positions"],
        "p_mask": tiny_batch["segment_ids"],
    }[argument]
    expected = model(features | {argument: value})
    assert_same(model(features, **{argument: value}), expected)
    with pytest.raises(ValueError, match=f"{argument} is given twice: in the dict of inputs"):
        model(features | {argument: value}, **{argument: value})


def test_keras_3_models_are_rejected(tiny_batch):
    keras = pytest.importorskip("keras", minversion="3.0")
    encoder = modeling.AlbertEncoder(SHALLOW)

    class Wrapped(keras.Model):
        def __init__(self):
            super().__init__()
            self.encoder, self.dense = encoder, keras.layers.Dense(2)

        def call(self, ids):
            return self.dense(self.encoder(ids)["pooled_output"])

    model, ids = Wrapped(), tiny_batch["input_ids"]
    model.compile("sgd", "mse")
    sentence = r"A Keras 3 model .* would neither train.*TF_USE_LEGACY_KERAS=1"
    with pytest.raises(ValueError, match=sentence):
        model.fit(ids, np.ones((5, 2)), verbose=0)
    with pytest.raises(ValueError, match=sentence):
        encoder(keras.Input((11,), dtype="int32"))
    with pytest.raises(ValueError, match=sentence):
        MODELS["classification"](SHALLOW)({"input_ids": keras.Input((11,), dtype="int32")})
    encoder(ids)  # by itself, it works in the same process


@pytest.mark.ci
@pytest.mark.parametrize("name", MODELS)
def test_models_return_logits_and_optionally_every_layer(name, tiny_batch):
    model, features = MODELS[name](CONFIG), features_of(name, tiny_batch)
    expected = {
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
    }[name]
    outputs = model(features)
    if isinstance(outputs, dict):
        assert {key: tuple(value.shape) for key, value in outputs.items()} == expected
    else:
        assert tuple(outputs.shape) == expected
    assert_same(model(*features.values()), outputs, atol=1e-6)
    again = model(features, output_hidden_states=True)
    states = again.pop("hidden_states")
    assert_same(again if isinstance(outputs, dict) else again["logits"], outputs, atol=1e-6)
    rows = 10 if name == "choice" else 5
    assert [tuple(state.shape[::2]) for state in states] == [(rows, 12)] * 3


@pytest.mark.ci
@pytest.mark.parametrize("name", MODELS)
def test_models_return_the_attentions_of_their_encoder(name, tiny_batch):
    tf_keras.utils.set_random_seed(5)
    model, features = MODELS[name](WITH_DROPOUT), features_of(name, tiny_batch)
    positions = features.get("masked_lm_positions")
    inputs = {key: features[key] for key in INPUTS}
    if name == "choice":
        inputs = {key: tf.reshape(value, (-1, 11)) for key, value in inputs.items()}
    expected = model.encoder(inputs, output_positions=positions, output_attentions=True)[
        "attentions"
    ]
    outputs = model(features, output_attentions=True)
    found = outputs.pop("attentions")
    rows, queries = 10 if name == "choice" else 5, 8 if name == "pretraining" else 11
    assert [tuple(x.shape) for x in found] == [(rows, 4, 11, 11), (rows, 4, queries, 11)]
    for probs, same in zip(found, expected, strict=True):
        np.testing.assert_allclose(probs, same, atol=1e-6)
    answer = model(features)
    assert_same(outputs if isinstance(answer, dict) else outputs["logits"], answer, atol=1e-6)


def test_eager_calls_compute_no_block_twice(tiny_batch, monkeypatch):
    calls, original = [], modeling.TransformerBlock.call

    def count(self, *arguments, **options):
        calls.append(self.name)
        return original(self, *arguments, **options)

    monkeypatch.setattr(modeling.TransformerBlock, "call", count)
    for name, make in MODELS.items():
        make(CONFIG)(features_of(name, tiny_batch))
        assert calls == ["block_0_0_0", "block_1_1_0"]
        calls.clear()


# compile, fit, evaluate, predict.


def dataset(features, labels, *weights):
    return tf.data.Dataset.from_tensor_slices((features, labels, *weights)).batch(5)


@pytest.mark.ci
def test_classification_learns_by_fit(inputs):
    labels = np.array([0, 2, 1, 1, 0])
    model = heads.AlbertForClassification(SHALLOW, 3, name="my_model")
    model.compile(tf_keras.optimizers.Adam(0.03), CROSS_ENTROPY, metrics=["accuracy"])
    data = dataset(inputs, labels)
    losses = model.fit(data, epochs=20, verbose=0).history["loss"]
    after = model.evaluate(data, verbose=0, return_dict=True)
    assert after["loss"] < losses[0] / 2
    assert after["accuracy"] == 1
    predicted = model.predict(data, verbose=0)
    assert isinstance(predicted, np.ndarray)
    assert predicted.shape == (5, 3)
    np.testing.assert_array_equal(predicted.argmax(axis=1), labels)


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


def test_spans_train_with_a_dict_of_positions(inputs):
    model = heads.AlbertForSpans(SHALLOW)
    losses = {"start_logits": CROSS_ENTROPY, "end_logits": CROSS_ENTROPY}
    model.compile("adam", losses, run_eagerly=True)
    labels = {"start_logits": np.array([5, 0, 5, 6, 0]), "end_logits": np.array([7, 0, 5, 7, 0])}
    history = model.fit(inputs, labels, epochs=2, verbose=0).history["loss"]
    assert history[1] < history[0]
    assert model.predict(inputs, verbose=0)["end_logits"].shape == (5, 11)


@pytest.mark.ci
def test_mixed_float16_fits_as_float32_does(inputs):
    labels = np.array([0, 2, 1, 1, 0])

    def fit(policy):
        tf_keras.mixed_precision.set_global_policy(policy)
        try:
            tf_keras.utils.set_random_seed(5)
            model = heads.AlbertForClassification(SHALLOW, 3)
            optimizer = optimization.fine_tuning_optimizer(0.003, 4, warmup_proportion=0.25)
            model.compile(optimizer, CROSS_ENTROPY)
            return model.fit(inputs, labels, epochs=4, verbose=0).history["loss"]
        finally:
            tf_keras.mixed_precision.set_global_policy("float32")

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


@pytest.mark.parametrize("name", LAYERS)
def test_layers_can_be_recreated_from_their_config(name):
    assert_round_trip(LAYERS[name]())


@pytest.mark.ci
@pytest.mark.parametrize("name", MODELS)
def test_models_can_be_recreated_from_their_config(name):
    assert_round_trip(MODELS[name](CONFIG))
    assert_round_trip(MODELS[name](PRE_LN, name="mine", dtype="mixed_bfloat16"))
    assert type(tf_keras.models.clone_model(MODELS[name](CONFIG))) is type(MODELS[name](CONFIG))


def test_models_may_have_any_name_and_sublayers_have_fixed_names():
    encoders = [
        modeling.AlbertEncoder(CONFIG, name="x"),
        modeling.AlbertEncoder(CONFIG),
        modeling.AlbertEncoder(CONFIG),
    ]
    assert encoders[0].name == "x"
    assert len({encoder.name for encoder in encoders}) == 3
    # Gradients are summed in the order of names, so numbered names would change the last bits.
    for models in (encoders, [modeling.AlbertForPretraining(CONFIG) for _ in range(2)]):
        assert len({tuple(layer.name for layer in m._flatten_layers())[1:] for m in models}) == 1
    names = {tuple(map(variable_name, encoder.variables)) for encoder in encoders}
    assert len(names) == 1
    assert "bert/pooler/dense/kernel" in names.pop()


# Functional models.


@pytest.fixture(scope="module")
def functional():
    """A model with two encoders that share no weights."""
    ids = tf_keras.Input((None,), dtype="int32", name="input_ids")
    mask = tf_keras.Input((None,), dtype="int32", name="input_mask")
    first = modeling.AlbertEncoder(CONFIG, name="first")({"input_ids": ids, "input_mask": mask})
    second = modeling.AlbertEncoder(ZH)(ids, mask)
    assert first["sequence_output"].shape.as_list() == [None, None, 12]
    x = tf_keras.layers.concatenate([first["pooled_output"], second["pooled_output"]])
    return randomize(tf_keras.Model([ids, mask], tf_keras.layers.Dense(3)(x)))


def test_a_functional_model_can_have_two_encoders(functional, inputs):
    arguments = inputs["input_ids"], inputs["input_mask"]
    pooled = [
        functional.layers[i](*arguments)["pooled_output"]
        for i, layer in enumerate(functional.layers)
        if isinstance(layer, modeling.AlbertEncoder)
    ]
    assert len(pooled) == 2
    expected = functional.layers[-1](tf.concat(pooled, axis=-1))
    np.testing.assert_allclose(functional(arguments), expected, atol=1e-5)


@pytest.mark.ci
def test_a_functional_model_can_be_cloned_configured_and_saved(functional, inputs, tmp_path):
    arguments = inputs["input_ids"], inputs["input_mask"]
    clone = tf_keras.models.clone_model(functional)
    clone.set_weights(functional.get_weights())
    functional.save(tmp_path / "model.keras")
    loaded = tf_keras.models.load_model(tmp_path / "model.keras")
    expected = functional(arguments)
    for model in (clone, loaded):
        np.testing.assert_allclose(model(arguments), expected, atol=1e-6)
    lines = []
    functional.summary(print_fn=lines.append)
    assert any("first (AlbertEncoder)" in line for line in lines)


def test_summary_counts_the_parameters_of_a_model():
    model, lines = MODELS["classification"](CONFIG), []
    model.summary(print_fn=lines.append)
    assert any(f"Total params: {model.count_params()} " in line for line in lines)


# Files.


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "config"),
    [*((name, CONFIG) for name in MODELS), ("pretraining", PRE_LN), ("answerable", PRE_LN)],
    ids=[*MODELS, "pretraining-albert_zh", "answerable-albert_zh"],
)
def test_models_can_be_saved_and_loaded(name, config, tiny_batch, tmp_path, no_warnings):
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


@pytest.mark.ci
def test_a_saved_model_works_with_and_without_its_classes(inputs, tmp_path, no_warnings):
    model = randomize(MODELS["classification"](SHALLOW))
    expected = model(inputs)
    model.save(tmp_path / "model", save_format="tf")
    as_keras = tf_keras.models.load_model(tmp_path / "model", compile=False)
    assert type(as_keras) is type(model)
    assert_same(as_keras(inputs), expected, atol=1e-6)
    alone = tf.saved_model.load(tmp_path / "model")
    assert_same(
        alone.signatures["serving_default"](
            **{name: tf.constant(value) for name, value in inputs.items()}
        )["output_1"],
        expected,
        atol=1e-6,
    )


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


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.ones((2, 4)), "input_ids have the dtype float32, expected int32 or int64"),
        ({"input_word_ids": np.ones((2, 4), np.int32)}, "input_word_ids: input_ids is missing"),
        ([[2, 5, 3], [2, 3]], "input_ids has rows of 2 to 3 numbers: pad them"),
        ([2, 5, 3], r"the input has the shape \(3,\): expected \[B, S\]"),
        ([[2.0, 5.0, 3.0]], "input_ids have the dtype float32"),
    ],
)
def test_inputs_that_are_not_ids_are_rejected(tiny_config, inputs, message):
    with pytest.raises(ValueError, match=message):
        modeling.AlbertEncoder(tiny_config)(inputs)


def test_inputs_may_be_lists_of_rows(inputs):
    encoder = modeling.AlbertEncoder(SHALLOW)
    lists = {name: value.tolist() for name, value in inputs.items()}
    expected = encoder(inputs)
    assert_same(encoder(lists), expected)
    assert_same(encoder(lists["input_ids"], lists["input_mask"], lists["segment_ids"]), expected)


def run_tflite(model, inputs):
    """Returns the outputs of a TFLite model for inputs given by prefixes of their names."""
    runner = tf.lite.Interpreter(model_content=model)
    for detail in runner.get_input_details():
        (value,) = (value for name, value in inputs.items() if name in detail["name"])
        runner.resize_tensor_input(detail["index"], value.shape)
    runner.allocate_tensors()
    for detail in runner.get_input_details():
        (value,) = (value for name, value in inputs.items() if name in detail["name"])
        runner.set_tensor(detail["index"], value)
    runner.invoke()
    return [runner.get_tensor(detail["index"]) for detail in runner.get_output_details()]


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning")
def test_keras_models_can_be_converted_to_tflite(inputs):
    encoder = modeling.AlbertEncoder(SHALLOW)
    symbolic = {
        name: tf_keras.Input(value.shape[1:], value.shape[0], name, tf.int32)
        for name, value in inputs.items()
    }
    pooled = tf_keras.Model(symbolic, encoder(symbolic)["pooled_output"])
    content = tf.lite.TFLiteConverter.from_keras_model(pooled).convert()
    wanted = encoder(inputs)["pooled_output"]
    np.testing.assert_allclose(run_tflite(content, inputs)[0], wanted, atol=1e-5)

    classifier = heads.AlbertForClassification(SHALLOW, 3)
    ids = inputs["input_ids"]
    wanted = classifier(ids)
    content = tf.lite.TFLiteConverter.from_keras_model(classifier).convert()
    np.testing.assert_allclose(run_tflite(content, {"": ids})[0], wanted, atol=1e-5)
