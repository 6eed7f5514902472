"""The training step: splitting the batch does not change the update; bad steps are skipped."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.weight_names import variable_name
from albert_tf.model import tensorflow_internals
from albert_tf.model.optimization import Lamb
from albert_tf.training import replicas
from albert_tf.training.loss_scale import LossScale
from albert_tf.training.step import (
    Gradients,
    StepOptions,
    TrainStep,
    clipping_factor,
    global_norm,
    scale_gradients,
    take_part,
)
from tests.conftest import ROOT
from tests.training import distributed_steps
from tests.training.one_weight import OneWeightTask

SEGMENTS = "bert/embeddings/token_type_embeddings"
CASES = [
    {"optimizer": "lamb"},
    {"optimizer": "adamw", "rate": 0.001},
    {"optimizer": "lamb", "micro_batches": 3},
    {"optimizer": "adamw", "rate": 0.0002, "precision_name": "bfloat16"},
]
COMPILED = {"optimizer": "lamb", "jit_compile": True, "micro_batches": 2}


def whole(case):
    """Runs the case on one device with one batch."""
    return run_whole(tuple(sorted((case | {"micro_batches": 1}).items())))


@functools.cache
def run_whole(options):
    """Returns the results of a case, which runs once for all tests that use it."""
    return distributed_steps.run_case(**dict(options))


def one_device(case):
    """Runs the case on one device; in bfloat16 in two parts, because each matmul rounds."""
    if case.get("precision_name") == "bfloat16":
        return distributed_steps.run_case(**case | {"micro_batches": 2})
    return whole({name: value for name, value in case.items() if name != "jit_compile"})


def assert_same(found, expected, tolerance=1e-5):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        limit = tolerance if not name.startswith("sums/") else 100 * tolerance
        np.testing.assert_allclose(found[name], value, rtol=0, atol=limit, err_msg=name)


@pytest.mark.ci
def test_gradient_accumulation_equals_the_whole_batch():
    case = {"optimizer": "lamb", "micro_batches": 3}
    assert_same(distributed_steps.run_case(**case), whole(case))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(CASES[:1], marks=pytest.mark.ci),
        pytest.param([COMPILED], marks=pytest.mark.slow),
        pytest.param(CASES, marks=pytest.mark.slow),
    ],
    ids=["lamb", "compiled gradients", "every optimizer and precision"],
)
def test_two_devices_equal_one(tmp_path, cases):
    path = tmp_path / "two.npy"
    settings = {"distribution": "mirrored", "num_devices": 2}
    program = [sys.executable, "-m", "tests.training.distributed_steps", str(path)]
    subprocess.run([*program, *map(json.dumps, (settings, *cases))], cwd=ROOT, check=True)
    for found, case in zip(np.load(path, allow_pickle=True), cases, strict=True):
        assert_same(found, one_device(case))


def test_devices_of_the_second_worker_take_the_rows_of_their_process(monkeypatch):
    """With a stand-in for a strategy of two workers with two devices each."""

    class StandIn:
        def experimental_distribute_values_from_function(self, take):
            places = (types.SimpleNamespace(replica_id_in_sync_group=place) for place in (2, 3))
            return [take(place) for place in places]

    monkeypatch.setattr(replicas, "num_local_replicas", lambda strategy: 2)
    monkeypatch.setattr(replicas, "first_local_replica", lambda strategy: 2)
    step = types.SimpleNamespace(strategy=StandIn())
    batch = {"input_ids": tf.reshape(tf.range(8), (4, 2))}
    first, second = TrainStep._split_rows(step, batch)
    np.testing.assert_array_equal(first["input_ids"], [[0, 1], [2, 3]])
    np.testing.assert_array_equal(second["input_ids"], [[4, 5], [6, 7]])


def test_gradients_are_clipped_as_google_clips_them_and_cleared_if_not_finite():
    """`tf.clip_by_global_norm` uses the rows of a word separately, not their sum."""
    rows = tf.IndexedSlices(tf.constant([[3.0, 0.0], [3.0, 4.0]]), tf.constant([1, 1]), (2, 2))
    dense = tf.constant([4.0, 0.0])
    expected, norm = tf.clip_by_global_norm([dense, rows], 1.0)
    gradients = Gradients({0: dense}, {1: tf.convert_to_tensor(rows)})
    found = global_norm(gradients, tf.reduce_sum(tf.square(rows.values)))
    assert float(found) == pytest.approx(float(norm))
    clipped = scale_gradients(gradients, clipping_factor(found))
    np.testing.assert_allclose(clipped.dense[0], expected[0], rtol=1e-6)
    np.testing.assert_allclose(clipped.embedding[1], tf.convert_to_tensor(expected[1]), rtol=1e-6)
    factors = [float(clipping_factor(tf.constant(norm))) for norm in (0.5, 1.0, 2.0)]
    assert factors == [1.0, 1.0, 0.5]
    bad = Gradients({0: tf.constant([np.nan, np.inf])}, {2: tf.constant([[1.0]])})
    cleared = scale_gradients(bad, tf.constant(0.0))
    np.testing.assert_array_equal(cleared.dense[0], [0.0, 0.0])
    np.testing.assert_array_equal(cleared.embedding[2], [[0.0]])


def zh_config(ln_type):
    """A model in albert_zh's layout; its gradients are large enough to be clipped."""
    return dataclasses.replace(
        distributed_steps.CONFIG,
        layout="albert_zh",
        ln_type=ln_type,
        num_hidden_groups=1,
        num_hidden_layers=1,
        initializer_range=0.3,
    )


def clipped_as_albert_zh(model, task, batch):
    """Returns the loss, the norm and name → clipped gradient; rows of a segment are summed."""
    with tf.GradientTape() as tape:
        loss, _ = task.loss(model(batch), batch)
    found = tape.gradient(loss, {variable_name(v): v for v in model.variables})
    found[SEGMENTS] = tf.convert_to_tensor(found[SEGMENTS])
    clipped, norm = tf.clip_by_global_norm(list(found.values()), 1.0)
    return float(loss), float(norm), dict(zip(found, clipped, strict=True))


def lamb_of_albert_zh(weight, moments, gradient, rate, is_decayed):
    """Returns the updated weight and moments: every variable is adapted."""
    m, v = 0.9 * moments[0] + 0.1 * gradient, 0.999 * moments[1] + 0.001 * gradient**2
    update = m / (np.sqrt(v) + 1e-6) + (0.01 * weight if is_decayed else 0)
    norms = np.linalg.norm(weight), np.linalg.norm(update)
    return weight - rate * (norms[0] / norms[1] if min(norms) > 0 else 1) * update, (m, v)


@pytest.mark.parametrize(
    "ln_type",
    [
        pytest.param("postln", marks=pytest.mark.slow),
        pytest.param("preln", marks=pytest.mark.ci),
    ],
)
def test_steps_have_the_losses_of_albert_zhs_trainer(ln_type):
    """Beside its formulas in float64: the norm for clipping, LAMB and the schedule's two parts."""
    task = distributed_steps.pretraining_task(zh_config(ln_type))
    step = distributed_steps.make_step(task, optimizer="lamb_albert_zh", rate=0.03)
    model = step.model
    theirs = step.task.build_model()
    weights = {variable_name(v): v.numpy().astype(np.float64) for v in model.variables}
    moments = {name: (np.zeros_like(w), np.zeros_like(w)) for name, w in weights.items()}
    norms = []
    for number in range(7):
        batch = {n: tf.constant(x) for n, x in distributed_steps.batch_of(number % 3).items()}
        for variable in theirs.variables:
            variable.assign(weights[variable_name(variable)])
        loss, norm, gradients = clipped_as_albert_zh(theirs, step.task, batch)
        found = step(batch)
        norms.append(norm)
        assert float(found.loss[0]) == pytest.approx(loss, rel=2e-5)
        assert float(found.gradient_norm) == pytest.approx(norm, rel=2e-4)
        rate = 0.03 * (number / 4 if number < 4 else 1 - number / (2 * distributed_steps.STEPS))
        for name, gradient in gradients.items():
            gradient = tf.convert_to_tensor(gradient).numpy().astype(np.float64)
            is_decayed = not re.search("LayerNorm|layer_norm|bias", name)
            weights[name], moments[name] = lamb_of_albert_zh(
                weights[name], moments[name], gradient, rate, is_decayed
            )
    assert min(norms) > 1
    for variable in model.variables:
        # The gradient of the key's bias is 0 but for rounding, which the update amplifies.
        np.testing.assert_allclose(variable, weights[variable_name(variable)], rtol=0, atol=3e-5)


def one_weight_step(**options):
    task = OneWeightTask()
    return TrainStep(task.build_model(), task, Lamb(0.1), StepOptions(**options))


def test_dropout_differs_from_part_to_part_from_step_to_step_and_with_the_seed():
    step = one_weight_step(micro_batches=2)
    seeds = [step._dropout_seed(part).numpy().tolist() for part in (0, 1)]
    step.optimizer.iterations.assign(1)
    seeds.append(step._dropout_seed(0).numpy().tolist())
    other = one_weight_step(micro_batches=2, seed=1)
    seeds.append(other._dropout_seed(0).numpy().tolist())
    assert len(set(map(tuple, seeds))) == 4


def test_no_two_parts_of_all_replicas_have_the_same_dropout(monkeypatch):
    step = one_weight_step(micro_batches=3)
    monkeypatch.setattr(step, "_dropout_seed", lambda part: part)
    monkeypatch.setattr(step, "_gradients", lambda rows, weights, part: tf.one_hot(part, 6))
    used = [step._accumulate_gradients({"x": tf.ones(6)}, replica, None) for replica in (0, 1)]
    np.testing.assert_array_equal(used, [[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]])


def test_losses_of_parts_add_up_to_that_of_a_batch_whose_parts_differ_in_masked_words():
    task = distributed_steps.pretraining_task()
    batch = {name: tf.constant(x) for name, x in distributed_steps.batch_of(0).items()}
    rng = np.random.default_rng(5)
    sizes = {"masked_lm_logits": (12, 7, 97), "sentence_order_logits": (12, 2)}
    outputs = {name: rng.normal(size=size).astype(np.float32) for name, size in sizes.items()}
    whole, _ = task.loss(outputs, batch)
    weights = task.loss_weights(batch)
    parts = [
        task.loss(take_part(outputs, part, 2), take_part(batch, part, 2), weights)[0]
        for part in (0, 1)
    ]
    assert float(sum(parts)) == pytest.approx(float(whole), rel=1e-6)
    assert float(parts[0]) != pytest.approx(float(parts[1]), rel=0.1)


def test_gradients_of_a_scaled_loss_are_unscaled_before_they_are_clipped():
    norms, weights = [], []
    for loss_scale in (None, LossScale(initial=1024.0)):
        task = OneWeightTask()
        step = TrainStep(task.build_model(), task, Lamb(0.1), loss_scale=loss_scale)
        norms.append(float(step({"x": tf.ones(6)}).gradient_norm))
        weights.append(float(step.model.weight[0]))
    assert norms == [1.5, 1.5]  # of (weight - 1)² at 0.25
    assert weights[0] == weights[1]


def test_a_step_that_is_not_finite_changes_nothing_but_its_number():
    task = OneWeightTask()
    step = TrainStep(task.build_model(), task, Lamb(0.1))
    step({"x": tf.ones(6)})
    names = {"iteration", "current_learning_rate"}
    variables = [step.model.weight, *step.optimizer.variables]
    kept = [variable for variable in variables if variable.name.split(":")[0] not in names]
    assert len(kept) == 3
    before = [variable.numpy() for variable in kept]
    for batch, allow_update in ((tf.fill((6,), np.nan), True), (tf.ones(6), False)):
        result = step({"x": batch}, allow_update)
        assert (bool(result.is_finite), bool(result.is_applied)) == (not allow_update, False)
        for variable, value in zip(kept, before, strict=True):
            np.testing.assert_array_equal(variable, value)
    assert step({"x": tf.ones(6)}).is_applied
    assert int(step.optimizer.iterations) == 4


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("case", "options"),
    [
        ({"optimizer": "lamb"}, {"jit_compile": True, "micro_batches": 2}),
        ({"optimizer": "adamw", "rate": 0.001}, {"clip_per_replica": True}),
    ],
    ids=str,
)
def test_xla_and_clipping_per_replica_change_nothing_on_one_device(case, options):
    assert_same(distributed_steps.run_case(**case, **options), whole(case))


@pytest.mark.ci
@pytest.mark.skipif(
    not tensorflow_internals.embeds_modules(), reason="this TensorFlow calls no kernels for GPUs"
)
@pytest.mark.parametrize("kernels", [frozenset(), frozenset({"add_and_norm"})], ids=len)
def test_a_compiled_step_has_the_kernels_for_gpus_of_its_options(kernels):
    """Traced only: no GPU is needed."""
    config = dataclasses.replace(distributed_steps.CONFIG, hidden_size=16, num_attention_heads=2)
    task = distributed_steps.pretraining_task(config)
    step = distributed_steps.make_step(
        task, precision_name="bfloat16", jit_compile=True, gpu_kernels=kernels
    )
    batch = {name: tf.constant(value) for name, value in distributed_steps.batch_of(0).items()}
    graph = step.function.get_concrete_function(batch, tf.constant(True), tf.constant(False)).graph
    calls = sum(node.type == "XlaCallModule" for node in graph.get_operations())
    norms = 2 * config.num_hidden_layers  # each with its gradient
    assert calls == 2 * norms * len(kernels)
