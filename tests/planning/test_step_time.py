"""The fit of the time of a step."""

from __future__ import annotations

import json

import numpy as np
import pytest

from albert_tf.config import AlbertConfig
from albert_tf.planning import model_costs, step_time
from albert_tf.planning.model_costs import StepShape
from albert_tf.planning.step_time import MeasuredStep

SIZES = [(64, 2), (128, 4), (256, 6), (512, 3)]
SHAPES = [(8, 128), (2, 512), (32, 64)]


def make_config(hidden, layers):
    return AlbertConfig(
        vocab_size=1000,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=4 * hidden,
    )


def make_steps(seconds_of):
    """Steps of all sizes and shapes; every fifth is held out."""
    steps = []
    for hidden, layers in SIZES:
        for rows, length in SHAPES:
            config, shape = make_config(hidden, layers), StepShape(rows, length, length // 8)
            name = f"{hidden}x{layers}"
            seconds = seconds_of(config, shape)
            steps.append(MeasuredStep(name, config, shape, seconds, len(steps) % 5 == 4))
    return steps


def true_seconds(config, shape):
    costs = model_costs.step_costs(config, shape)
    matmuls = 2e-12 * costs.dense_flops * (1 + 100 / config.hidden_size)
    return matmuls + 5e-12 * costs.attention_flops + 3e-9 * costs.parameters + 0.001


def test_a_law_of_the_same_form_is_found_exactly():
    model = step_time.fit(make_steps(true_seconds), {"device": "made up"})
    assert model.fit_error < 1e-6
    assert len(model.held_out_errors) == 2
    assert max(map(abs, model.held_out_errors)) < 1e-6
    config, shape = make_config(384, 5), StepShape(7, 200, 30)
    assert model.seconds(config, shape) == pytest.approx(true_seconds(config, shape))
    assert model.conditions == {"device": "made up"}


def test_no_coefficient_is_negative():
    rng = np.random.default_rng(3)
    noisy = make_steps(lambda *step: true_seconds(*step) * rng.uniform(0.6, 1.4))
    model = step_time.fit(noisy, {})
    assert (model.coefficients >= 0).all()
    assert 0.05 < model.fit_error < 0.8


def test_too_few_steps_are_refused():
    with pytest.raises(ValueError, match="expected at least 6 measured steps, got 4"):
        step_time.fit(make_steps(true_seconds)[:4], {})


def test_measured_steps_are_read_as_written(tmp_path):
    path = str(tmp_path / "steps.json")
    steps = make_steps(true_seconds)
    step_time.write_measured(path, steps, {"device": "made up"})
    found, conditions = step_time.read_measured(path)
    assert conditions == {"device": "made up"}
    assert [step.shape for step in found] == [step.shape for step in steps]
    assert [step.config for step in found] == [step.config for step in steps]
    assert [step.is_held_out for step in found] == [step.is_held_out for step in steps]
    assert [step.seconds for step in found] == pytest.approx([s.seconds for s in steps], abs=1e-5)


@pytest.mark.parametrize("content", [{}, {"steps": [{}]}, {"steps": 7, "configs": {}}])
def test_another_file_is_refused_by_name(tmp_path, content):
    path = tmp_path / "steps.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match=r"steps\.json: expected the measured steps that plan_run"):
        step_time.read_measured(str(path))


def test_the_included_measurements_are_predicted():
    model = step_time.fit(*step_time.read_measured())
    assert model.fit_error < 0.25
    assert len(model.held_out_errors) >= 3
    assert max(map(abs, model.held_out_errors)) < 0.25
