"""The optimizers against Google's runs and against their formulas in NumPy."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.loading import load_checkpoint, open_checkpoint, variable_name
from albert_tf.config import AlbertConfig
from albert_tf.modeling import AlbertForPretraining
from albert_tf.optimization import (
    AdamW,
    Lamb,
    WarmUpPolynomialDecay,
    clip_gradients,
    create_optimizer,
    trust_ratio,
)
from albert_tf.pretraining.task import PretrainingTask
from tests.test_modeling import GOLDEN, read_golden

PEAK = {"lamb": 0.01, "adamw": 0.001}
SETTINGS = [(1.0, 0, 0), (1.0, 4, 0), (2.0, 3, 2)]
# Google's graph reads its step counter while it increments it. In these recorded runs the read
# came first at update 2, so that update 2 had the rate of update 1.
READ_FIRST = {("groups", "adamw", (2.0, 3, 2)): [2], ("no_factorization", "lamb", (2.0, 3, 2)): [2]}


class RacedSchedule(WarmUpPolynomialDecay):
    """Google's schedule with the given updates (from 1) at the rate of the one before."""

    late: tuple[int, ...] = ()

    def __call__(self, step):
        is_late = tf.reduce_any(tf.cast(step, tf.int32) + 1 == tf.constant(self.late, tf.int32))
        return super().__call__(step - tf.cast(is_late, step.dtype))


def train_losses(model, optimizer, batch, count):
    batch = {name: tf.constant(value) for name, value in batch.items()}
    task = PretrainingTask(
        model.config, batch["input_ids"].shape[1], batch["masked_lm_ids"].shape[1]
    )
    variables = model.trainable_variables

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss, _ = task.loss(model(batch), batch)
        gradients, _ = clip_gradients(tape.gradient(loss, variables))
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    return [float(step()) for _ in range(count)]


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
        ("lamb", 1.0, 4, 0),
        ("adamw", 2.0, 3, 2),
        pytest.param("lamb", 2.0, 3, 2, marks=pytest.mark.slow),
        pytest.param("lamb", 1.0, 0, 0, marks=pytest.mark.slow),
        pytest.param("adamw", 1.0, 4, 0, marks=pytest.mark.slow),
        pytest.param("adamw", 1.0, 0, 0, marks=pytest.mark.slow),
    ],
)
def test_twelve_steps_have_google_losses(optimizer, power, warmup, start):
    config = AlbertConfig.from_json_file(str(GOLDEN / "encoder_shared.json"))
    model = AlbertForPretraining(config)
    weights = read_golden("variable/")
    for variable in model.variables:
        variable.assign(weights[variable_name(variable)])
    schedule = WarmUpPolynomialDecay(PEAK[optimizer], 10, warmup, start, power)
    losses = train_losses(model, create_optimizer(optimizer, schedule), read_golden("input/"), 12)
    name = f"{optimizer}_power{power:.0f}_warmup{warmup}_start{start}"
    np.testing.assert_allclose(losses, read_golden("train/")[name], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["shared", "groups", "no_factorization"])
@pytest.mark.parametrize("optimizer", ["lamb", "adamw"])
@pytest.mark.parametrize(("power", "warmup", "start"), SETTINGS)
def test_reference_runs_end_with_the_same_weights(shared, folder, optimizer, power, warmup, start):
    path = shared / "golden" / "encoder" / folder
    model = AlbertForPretraining(AlbertConfig.from_json_file(str(path / "albert_config.json")))
    load_checkpoint(model, str(path / "model.ckpt-best"))
    schedule = RacedSchedule(PEAK[optimizer], 10, warmup, start, power)
    schedule.late = READ_FIRST.get((folder, optimizer, (power, warmup, start)), ())
    name = f"train_{optimizer}_power{power:.0f}_warmup{warmup}_start{start}.npz"
    with np.load(path / "inputs.npz") as inputs, np.load(path / name) as expected:
        losses = train_losses(model, create_optimizer(optimizer, schedule), inputs, 12)
        np.testing.assert_allclose(losses, expected["loss"], rtol=1e-4)
        assert_same_weights(model, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lamb", "adamw"])
def test_moments_of_a_google_checkpoint_are_continued(shared, name):
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
    optimizer.iterations.assign(reader.get_tensor("global_step"))
    inputs = np.load(shared / "golden" / "encoder" / "groups" / "inputs.npz")
    with np.load(path / "after_12_steps.npz") as expected:
        np.testing.assert_allclose(
            train_losses(model, optimizer, inputs, 6), expected["loss"][6:], rtol=1e-4
        )
        assert_same_weights(model, expected)


def variables():
    rng = np.random.default_rng(3)
    names = ["bert/x/kernel", "bert/x/bias", "bert/x/LayerNorm/gamma", "cls/layer_norm/w"]
    return [tf.Variable(rng.normal(size=(3, 5)).astype(np.float32), name=name) for name in names]


@pytest.mark.parametrize("kind", [AdamW, Lamb])
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
            if i == 0:  # the kernel alone decays and is scaled
                update += 0.01 * weights[i]
                if kind is Lamb:
                    update *= np.linalg.norm(weights[i]) / np.linalg.norm(update)
            weights[i] -= 0.03 * update
    for variable, expected in zip(ours, weights, strict=True):
        np.testing.assert_allclose(variable, expected, rtol=2e-5, atol=1e-6)


def test_moments_have_google_names():
    ours = variables()
    slots = AdamW(0.1).slot_variables(ours)
    assert set(slots) == {
        f"{variable_name(variable)}/{slot}" for variable in ours for slot in ("adam_m", "adam_v")
    }


def test_the_rates_of_a_schedule():
    schedule = WarmUpPolynomialDecay(1e-3, 100, 5)
    rates = [float(schedule(step)) for step in (0, 1, 3, 4, 49, 99, 150)]
    np.testing.assert_allclose(rates, [2e-4, 4e-4, 8e-4, 9.5e-4, 5e-4, 0, 0], rtol=1e-5)
    late = WarmUpPolynomialDecay(1e-3, 100, 4, start_warmup_step=10, power=2.0)
    rates = [float(late(step)) for step in (1, 9, 12, 13, 49)]
    np.testing.assert_allclose(rates, [-2e-3, 0, 7.5e-4, 0.86**2 * 1e-3, 2.5e-4], rtol=1e-5)


def test_schedule_and_optimizer_can_be_made_again_from_their_configs():
    schedule = WarmUpPolynomialDecay(1e-3, 100, 5, 2, 1.5)
    again = WarmUpPolynomialDecay(**schedule.get_config())
    assert float(again(3)) == float(schedule(3))
    assert "learning_rate" in Lamb(0.1).get_config()


def test_gradients_are_clipped_by_their_global_norm():
    gradients, norm = clip_gradients([tf.constant([3.0, 0.0]), None, tf.constant([[4.0]])])
    assert float(norm) == pytest.approx(5.0)
    assert gradients[1] is None
    np.testing.assert_allclose(gradients[0], [0.6, 0.0], rtol=1e-6)
    small, _ = clip_gradients([tf.constant([0.3])])
    np.testing.assert_allclose(small[0], [0.3])


def test_layer_adaptation_is_one_where_a_norm_is_zero():
    assert float(trust_ratio(tf.constant(0.0), tf.constant(2.0))) == 1.0
    assert float(trust_ratio(tf.constant(2.0), tf.constant(0.0))) == 1.0
    assert float(trust_ratio(tf.constant(3.0), tf.constant(2.0))) == 1.5


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(ValueError, match="'lamp' is none of lamb, adamw"):
        create_optimizer("lamp", WarmUpPolynomialDecay(1.0, 1))


@pytest.mark.parametrize("kind", [AdamW, Lamb])
def test_an_update_compiled_for_large_weights_is_the_same(kind):
    """Those of 2^16 elements and more are updated by XLA inside of graphs."""
    start, gradient = tf.random.normal((2, 2**15, 1)), tf.random.normal((2, 2**15, 1))
    weights = []
    for wrap in (lambda function: function, tf.function):
        weight, optimizer = tf.Variable(start, name="kernel"), kind(0.01)
        optimizer.build([weight])
        step = wrap(lambda w=weight, o=optimizer: o.apply_gradients([(gradient, w)]))
        step()
        step()
        weights.append(weight.numpy())
    np.testing.assert_allclose(weights[1], weights[0], rtol=1e-5, atol=1e-6)
    assert np.abs(weights[1] - start).max() > 1e-3
