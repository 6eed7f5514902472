"""The optimizers compared with Google's runs, and with their formulas in NumPy."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.checkpoints.containers import open_checkpoint
from albert_tf.checkpoints.loading import load_checkpoint
from albert_tf.checkpoints.weight_names import is_bookkeeping, variable_name
from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertForPretraining
from albert_tf.model.optimization import (
    AdamW,
    Lamb,
    LambAlbertZh,
    create_optimizer,
    fine_tuning_optimizer,
    trust_ratio,
)
from albert_tf.model.optimizer_names import OPTIMIZERS
from albert_tf.model.schedules import WarmUpPolynomialDecay
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.tensorflow_releases import set_random_seed
from tests.model.test_modeling import GOLDEN, read_golden

PEAK = {"lamb": 0.01, "adamw": 0.001}
SETTINGS = [(1.0, 0, 0), (1.0, 4, 0), (2.0, 3, 2)]
# These runs were recorded in a plain session, which incremented the step counter before computing
# the learning rate: the first update had the rate of step 1. Google's trainer computes it first.
RECORDED_STEPS = range(1, 13)
# In two of the runs, the session once computed the rate first: update 2 had the rate of update 1.
READ_FIRST = {("groups", "adamw", (2.0, 3, 2)), ("no_factorization", "lamb", (2.0, 3, 2))}


def train_losses(model, optimizer, batch, steps):
    """Returns the loss of an update for each of `steps`, with the learning rate of that step."""
    batch = {name: tf.constant(value) for name, value in batch.items()}
    task = PretrainingTask(
        model.config, batch["input_ids"].shape[1], batch["masked_lm_ids"].shape[1]
    )
    variables = model.trainable_variables

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss, _ = task.loss(model(batch), batch)
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), 1.0)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    losses = []
    for number in steps:
        optimizer.iterations.assign(number)
        losses.append(float(step()))
    return losses


def assert_same_weights(model, expected):
    for variable in model.variables:
        name = variable_name(variable)
        theirs = expected[f"variable/{name}"]
        np.testing.assert_allclose(
            variable, theirs, rtol=0, atol=1e-4 * np.abs(theirs).max(), err_msg=name
        )


@pytest.mark.parametrize(
    ("optimizer", "power", "warmup", "start"),
    [
        pytest.param("lamb", 1.0, 4, 0, marks=pytest.mark.ci),
        pytest.param("adamw", 2.0, 3, 2, marks=pytest.mark.slow),
        pytest.param("lamb", 2.0, 3, 2, marks=pytest.mark.slow),
        pytest.param("lamb", 1.0, 0, 0, marks=pytest.mark.slow),
        pytest.param("adamw", 1.0, 4, 0, marks=pytest.mark.slow),
        pytest.param("adamw", 1.0, 0, 0, marks=pytest.mark.slow),
    ],
)
def test_twelve_steps_have_googles_losses(optimizer, power, warmup, start):
    config = AlbertConfig.from_json_file(str(GOLDEN / "encoder_shared.json"))
    model = AlbertForPretraining(config)
    weights = read_golden("variable/")
    for variable in model.variables:
        variable.assign(weights[variable_name(variable)])
    schedule = WarmUpPolynomialDecay(PEAK[optimizer], 10, warmup, start, power)
    made = create_optimizer(optimizer, schedule)
    losses = train_losses(model, made, read_golden("input/"), RECORDED_STEPS)
    name = f"{optimizer}_power{power:.0f}_warmup{warmup}_start{start}"
    np.testing.assert_allclose(losses, read_golden("train/")[name], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "optimizer", "power", "warmup", "start"),
    [
        (folder, optimizer, *schedule)
        for folder in ("shared", "groups", "no_factorization")
        for optimizer in ("lamb", "adamw")
        for schedule in SETTINGS
    ],
)
def test_reference_runs_end_with_the_same_weights(shared, folder, optimizer, power, warmup, start):
    path = shared / "golden" / "encoder" / folder
    model = AlbertForPretraining(AlbertConfig.from_json_file(str(path / "albert_config.json")))
    load_checkpoint(model, str(path / "model.ckpt-best"))
    made = create_optimizer(
        optimizer, WarmUpPolynomialDecay(PEAK[optimizer], 10, warmup, start, power)
    )
    steps = list(RECORDED_STEPS)
    if (folder, optimizer, (power, warmup, start)) in READ_FIRST:
        steps[1] = steps[0]
    name = f"train_{optimizer}_power{power:.0f}_warmup{warmup}_start{start}.npz"
    with np.load(path / "inputs.npz") as inputs, np.load(path / name) as expected:
        losses = train_losses(model, made, inputs, steps)
        np.testing.assert_allclose(losses, expected["loss"], rtol=1e-4)
        assert_same_weights(model, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lamb", "adamw"])
def test_training_continues_with_the_moments_of_a_google_checkpoint(shared, name):
    path = shared / "golden" / "resume" / name
    settings = json.loads((path / "settings.json").read_text())
    config_file = shared / "golden" / "encoder" / "groups" / "albert_config.json"
    model = AlbertForPretraining(AlbertConfig.from_json_file(str(config_file)))
    load_checkpoint(model, str(path / "model.ckpt-6"))
    schedule = WarmUpPolynomialDecay(
        settings["learning_rate"],
        settings["num_train_steps"],
        settings["num_warmup_steps"],
        power=settings["poly_power"],
    )
    optimizer = create_optimizer(name, schedule)
    reader = open_checkpoint(str(path / "model.ckpt-6"))
    for slot, variable in optimizer.slot_variables(model.trainable_variables).items():
        variable.assign(reader.get_tensor(slot))
    assert reader.get_tensor("global_step") == 6
    inputs = np.load(shared / "golden" / "encoder" / "groups" / "inputs.npz")
    with np.load(path / "after_12_steps.npz") as expected:
        np.testing.assert_allclose(
            train_losses(model, optimizer, inputs, RECORDED_STEPS[6:]),
            expected["loss"][6:],
            rtol=1e-4,
        )
        assert_same_weights(model, expected)


def variables():
    rng = np.random.default_rng(3)
    names = ["bert/x/kernel", "bert/x/bias", "bert/x/LayerNorm/gamma", "cls/layer_norm/w"]
    return [tf.Variable(rng.normal(size=(3, 5)).astype(np.float32), name=name) for name in names]


@pytest.mark.parametrize("kind", [AdamW, Lamb, LambAlbertZh])
def test_steps_follow_the_formula(kind):
    ours, rng = variables(), np.random.default_rng(4)
    optimizer = kind(0.03)
    weights = [variable.numpy().astype(np.float64) for variable in ours]
    moments = [(np.zeros((3, 5)), np.zeros((3, 5))) for _ in ours]
    for _ in range(7):
        gradients = rng.normal(size=(4, 3, 5))
        optimizer.apply_gradients(
            [(tf.constant(g, tf.float32), v) for g, v in zip(gradients, ours, strict=True)]
        )
        for i, g in enumerate(gradients):
            m, v = moments[i] = 0.9 * moments[i][0] + 0.1 * g, 0.999 * moments[i][1] + 1e-3 * g * g
            update = m / (np.sqrt(v) + 1e-6)
            if i == 0:  # only the kernel gets weight decay
                update += 0.01 * weights[i]
            if kind is LambAlbertZh or (kind is Lamb and i == 0):
                update *= np.linalg.norm(weights[i]) / np.linalg.norm(update)
            weights[i] -= 0.03 * update
    for variable, expected in zip(ours, weights, strict=True):
        np.testing.assert_allclose(variable, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_keeps_what_its_row_says_and_skips_steps(name):
    sizes = {"bert/x/kernel": (320, 480), "bert/x/bias": (480,)}
    weights = [tf.Variable(tf.ones(shape), name=name) for name, shape in sizes.items()]
    optimizer = create_optimizer(name, WarmUpPolynomialDecay(0.1, 10))
    slots = optimizer.slot_variables(weights)
    assert {slot.rpartition("/")[2] for slot in slots} == set(OPTIMIZERS[name].slots)
    assert all(map(is_bookkeeping, slots))
    pairs = [(tf.random.normal(weight.shape), weight) for weight in weights]
    optimizer.apply_gradients_if(tf.constant(True), pairs)
    before = [x.numpy() for x in (*weights, *slots.values())]
    assert all(np.ptp(value) > 0 for value in before)
    optimizer.apply_gradients_if(tf.constant(False), pairs)
    assert int(optimizer.iterations) == 2
    for value, variable in zip(before, (*weights, *slots.values()), strict=True):
        np.testing.assert_array_equal(value, variable)


def test_learning_rates_of_the_schedule():
    """The first update has step 0, as in Google's trainer."""
    schedule = WarmUpPolynomialDecay(1e-3, 100, 5)
    rates = [float(schedule(step)) for step in (0, 1, 4, 5, 50, 99, 100, 150)]
    np.testing.assert_allclose(rates, [0, 2e-4, 8e-4, 9.5e-4, 5e-4, 1e-5, 0, 0], rtol=1e-5)
    late = WarmUpPolynomialDecay(1e-3, 100, 4, start_warmup_step=10, power=2.0)
    rates = [float(late(step)) for step in (2, 10, 13, 14, 50)]
    np.testing.assert_allclose(rates, [-2e-3, 0, 7.5e-4, 0.86**2 * 1e-3, 2.5e-4], rtol=1e-5)
    assert float(WarmUpPolynomialDecay(1e-3, 100)(0)) == np.float32(1e-3)


def test_the_fine_tuning_optimizer_warms_up_decays_and_clips():
    weight = tf.Variable([[2.0, -1.0]], name="kernel")
    optimizer = fine_tuning_optimizer(0.5, 20, weight_decay=0.0)
    rates = []
    for _ in range(20):
        optimizer.apply_gradients([(tf.constant([[30.0, 40.0]]), weight)])
        rates.append(float(optimizer.learning_rate))
    np.testing.assert_allclose([*rates[:3], rates[-1]], [0, 0.25, 0.45, 0.025], rtol=1e-5)
    moment = optimizer.slot_variables([weight])["kernel/adam_m"]  # of the clipped gradient
    np.testing.assert_allclose(moment, (1 - 0.9**20) * np.array([[0.6, 0.8]]), rtol=1e-5)
    for proportion, second in ((0, 0.5 * 19 / 20), (1, 0.5 / 20)):  # decays at once, warms up only
        optimizer = fine_tuning_optimizer(0.5, 20, warmup_proportion=proportion)
        for _ in range(2):
            optimizer.apply_gradients([(tf.constant([[30.0, 40.0]]), weight)])
        assert float(optimizer.learning_rate) == pytest.approx(second)
    for proportion in (10, 1.001, -0.001):
        with pytest.raises(ValueError, match=f"warmup_proportion={proportion}: expected"):
            fine_tuning_optimizer(0.5, 20, warmup_proportion=proportion)


def test_a_schedule_has_one_step_or_more():
    assert float(WarmUpPolynomialDecay(0.5, 1)(0)) == 0.5
    with pytest.raises(ValueError, match="num_train_steps=0: expected 1 or more"):
        WarmUpPolynomialDecay(0.5, 0)


def test_layer_adaptation_is_one_where_a_norm_is_zero():
    norms = (0.0, 2.0), (2.0, 0.0), (3.0, 2.0)
    assert [float(trust_ratio(*map(tf.constant, pair))) for pair in norms] == [1.0, 1.0, 1.5]


@pytest.mark.parametrize("kind", [AdamW, Lamb])
def test_eager_and_graph_steps_mix_in_any_order(kind):
    """The optimizer keeps no tensor from a trace, whether the step was applied or skipped."""
    gradients = np.random.default_rng(4).normal(size=(4, 3, 5)).astype(np.float32)
    ours, expected = variables(), variables()
    mixed, eager = kind(0.03), kind(0.03)
    mixed.build(ours)
    pairs = list(zip(map(tf.constant, gradients), ours, strict=True))

    @tf.function
    def step_if(is_applied):
        mixed.apply_gradients_if(is_applied, pairs)

    @tf.function
    def step():
        mixed.apply_gradients(pairs)

    step_if(tf.constant(True))
    mixed.apply_gradients(pairs)
    step_if(tf.constant(False))
    step()
    mixed.apply_gradients_if(tf.constant(False), pairs)
    mixed.apply_gradients(pairs)
    assert int(mixed.iterations) == 6
    for _ in range(4):
        eager.apply_gradients(zip(map(tf.constant, gradients), expected, strict=True))
    assert_same_values(ours, expected)


def test_arguments_override_googles_defaults():
    weight = tf.Variable([[2.0, -1.0]], name="x/kernel")
    excluded = tf.Variable([[2.0, -1.0]], name="x/other")
    optimizer = AdamW(0.5, weight_decay=0.2, beta_1=0.5, beta_2=0.75, epsilon=0.1, exclude="other")
    gradient = tf.constant([[0.4, 0.8]])
    optimizer.apply_gradients([(gradient, weight), (gradient, excluded)])
    m, v = 0.5 * gradient.numpy(), 0.25 * gradient.numpy() ** 2
    update = m / (np.sqrt(v) + 0.1)
    start = np.array([[2.0, -1.0]])
    np.testing.assert_allclose(weight, start - 0.5 * (update + 0.2 * start), rtol=1e-6)
    np.testing.assert_allclose(excluded, start - 0.5 * update, rtol=1e-6)


def assert_same_values(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def dense_model(optimizer):
    set_random_seed(3)
    model = tf_keras.Sequential(
        [tf_keras.layers.Dense(5, activation="tanh", input_shape=(3,)), tf_keras.layers.Dense(1)]
    )
    model.compile(optimizer, "mse")
    return model


def line(count=24):
    x = np.random.default_rng(5).normal(size=(count, 3)).astype(np.float32)
    return x, x @ np.float32([[1.0], [-2.0], [0.5]])


@pytest.mark.ci
def test_keras_compiles_fits_saves_and_resumes_with_it(tmp_path):
    """A `.keras` file has moments, step and schedule: resuming equals uninterrupted training."""
    schedule = WarmUpPolynomialDecay(0.05, 40, 4)
    x, y = line()

    def fit(model, epochs):
        return model.fit(x, y, batch_size=6, epochs=epochs, shuffle=False, verbose=0)

    through = dense_model(Lamb(schedule, global_clipnorm=1.0))
    losses = fit(through, 6).history["loss"]
    assert losses[-1] < 0.75 * losses[0]
    stopped = dense_model(Lamb(schedule, global_clipnorm=1.0))
    fit(stopped, 3)
    stopped.save(tmp_path / "model.keras")
    again = tf_keras.models.load_model(tmp_path / "model.keras")
    assert type(again.optimizer) is Lamb
    assert type(again.optimizer._learning_rate) is WarmUpPolynomialDecay
    assert int(again.optimizer.iterations) == 12
    fit(again, 3)
    assert_same_values(again.get_weights(), through.get_weights())
    assert_same_values(again.optimizer.variables, through.optimizer.variables)


@pytest.mark.parametrize("kind", [AdamW, Lamb, LambAlbertZh])
def test_optimizers_and_schedules_can_be_recreated_from_their_configs(kind):
    optimizer = kind(
        WarmUpPolynomialDecay(1e-3, 100, 5, 2, 1.5),
        weight_decay=0.02,
        beta_1=0.8,
        beta_2=0.99,
        epsilon=1e-5,
        exclude="bias",
        name="mine",
        global_clipnorm=2.0,
    )
    for again in (
        kind.from_config(optimizer.get_config()),
        tf_keras.optimizers.deserialize(
            json.loads(json.dumps(tf_keras.optimizers.serialize(optimizer)))
        ),
    ):
        assert type(again) is kind
        assert again.get_config() == optimizer.get_config()
    number = kind.from_config(kind(0.25).get_config())
    assert float(number.learning_rate) == 0.25
    number.learning_rate = 0.125  # as a callback does
    assert float(number.learning_rate) == 0.125


def test_fit_decays_kernels_once_and_excluded_variables_never():
    """Keras' own decay would shrink all of them, kernels for a second time."""
    model = tf_keras.Sequential(
        [tf_keras.layers.Dense(5, input_shape=(3,)), tf_keras.layers.LayerNormalization()]
    )
    for variable in model.trainable_variables:
        variable.assign(np.arange(1.0, 1.0 + np.size(variable)).reshape(variable.shape))
    before = {variable.name: variable.numpy() for variable in model.trainable_variables}
    # All gradients are 0, so that nothing but the decay changes the weights.
    model.compile(AdamW(0.5, weight_decay=0.1), lambda _, outputs: 0.0 * outputs)
    x, y = line(18)
    model.fit(x, y, batch_size=6, verbose=0)
    for variable in model.trainable_variables:
        shrunk = (1 - 0.5 * 0.1) ** 3 if variable.name.endswith("kernel:0") else 1.0
        np.testing.assert_allclose(variable, shrunk * before[variable.name], rtol=1e-6)


def test_variables_can_be_excluded_by_keras_method():
    optimizer = AdamW(0.5, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["kernel"])
    kernel = tf.Variable([[2.0, -1.0]], name="x/kernel")
    optimizer.apply_gradients([(tf.zeros((1, 2)), kernel)])
    np.testing.assert_array_equal(kernel, [[2.0, -1.0]])


@pytest.mark.parametrize("wrap", [lambda step: step, tf.function], ids=["eager", "graph"])
def test_a_schedule_that_ends_says_so_once(capfd, wrap):
    weight = tf.Variable([1.0])
    optimizer = fine_tuning_optimizer(0.5, num_train_steps=2, warmup_proportion=0.0)
    optimizer.build([weight])

    @wrap
    def step():
        optimizer.apply_gradients([(tf.ones(1), weight)])

    said, values = [], []
    for _ in range(4):
        step()
        said.append("the learning rate schedule of 2 steps has ended" in capfd.readouterr().err)
        values.append(float(weight[0]))
    assert said == [False, False, True, False]
    assert values[0] > values[1] == values[2] == values[3]
