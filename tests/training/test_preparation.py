"""Before the first step of training: what is refused or warned of, and the lines of the plan."""

from __future__ import annotations

import logging

import pytest

from albert_tf.model.schedules import WarmUpPolynomialDecay
from albert_tf.training.preparation import check_warm_up, log_plan
from tests.training.one_weight import OneWeightTask, make_trainer


@pytest.mark.parametrize(
    ("warm_up", "start", "step", "is_refused"),
    [(5, 3, 3, False), (5, 4, 3, True), (5, 0, 0, False), (5, 1, 0, True), (0, 9, 0, False)],
)
def test_training_cannot_begin_before_its_warm_up(warm_up, start, step, is_refused):
    schedule = WarmUpPolynomialDecay(0.1, 20, warm_up, start)
    if not is_refused:
        check_warm_up(schedule, step)
        return
    said = rf"^--start_warmup_step={start}: .* from step {step}, .* Expected {step} or less$"
    with pytest.raises(ValueError, match=said):
        check_warm_up(schedule, step)


@pytest.mark.parametrize(("warm_up", "start", "end"), [(7, 0, 7), (8, 0, 8), (4, 3, 7), (5, 3, 8)])
def test_a_warm_up_that_training_does_not_reach_causes_a_warning(caplog, warm_up, start, end):
    check_warm_up(WarmUpPolynomialDecay(0.1, 7, warm_up, start), start)
    expected = [
        f"The warm-up ends at step {end}, but training at step 7: the learning rate does not reach "
        "0.1. Check the number of steps and of warm-up steps."
    ]
    assert caplog.messages == (expected if end > 7 else [])


@pytest.mark.parametrize(
    ("step", "init_checkpoint", "settings", "warm_up", "said"),
    [
        (
            *(0, None, {}, 0),
            {
                "model": "1 parameters, random weights",
                "batch": "6 examples",
                "schedule": "7 steps, 2 epochs; adamw, learning rate 0.1, no warm-up",
            },
        ),
        (
            *(0, "there/model", {"gradient_accumulation_steps": 2, "optimizer": "lamb"}, 3),
            {
                "model": "1 parameters, weights of there/model",
                "batch": "6 examples, in 2 parts",
                "schedule": "7 steps, 2 epochs; lamb, learning rate 0.1 after 3 steps of warm-up",
            },
        ),
        (3, "there/model", {}, 0, {"model": "1 parameters, resumed at step 3"}),
    ],
)
def test_the_lines_before_the_first_step(
    tmp_path, caplog, step, init_checkpoint, settings, warm_up, said
):
    trainer = make_trainer(tmp_path, OneWeightTask(7, warm_up), **settings)
    trainer.step = step
    schedule = trainer.take_step.task.learning_rates
    with caplog.at_level(logging.INFO):
        log_plan(trainer, schedule, trainer.settings, 21, init_checkpoint)
    found = dict(line.split(maxsplit=1) for line in caplog.messages)
    assert list(found) == ["model", "data", "batch", "schedule", "output"]
    assert found["data"] == "21 examples, 3.5 steps per epoch"
    assert found["output"] == str(tmp_path)
    assert {name: found[name] for name in said} == said
