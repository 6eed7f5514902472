"""The steps between two reports: given, or chosen once by the speed of the first steps."""

from __future__ import annotations

import json

import pytest

from albert_tf.training.report_interval import ReportInterval, round_steps


def test_steps_that_are_given_are_taken_and_not_recorded(tmp_path):
    interval = ReportInterval(str(tmp_path), 3)
    assert [step for step in range(1, 8) if interval.is_due(step)] == [3, 6]
    assert not interval.is_time_to_measure(4)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seconds_per_step", [0.0007, 0.004, 0.09, 0.5, 1.1, 6.0])
def test_a_report_comes_every_10_to_30_seconds(tmp_path, seconds_per_step):
    interval, step = ReportInterval(str(tmp_path), 0), 0
    while not interval.steps:
        assert not interval.is_due(step)
        step += 1
        if interval.is_time_to_measure(step):
            interval.choose(step, step * seconds_per_step)
    assert step * seconds_per_step <= max(4, seconds_per_step)  # chosen early
    assert 10 <= interval.steps * seconds_per_step <= 30


def test_a_step_that_takes_long_is_a_report(tmp_path):
    interval = ReportInterval(str(tmp_path), 0)
    interval.choose(1, 45.0)
    assert interval.is_due(3)


def test_what_was_chosen_stays(tmp_path):
    first = ReportInterval(str(tmp_path), 0)
    first.choose(8, 1.9)  # too short to tell
    assert first.steps == 0
    first.choose(16, 3.2)
    assert first.steps == 100
    assert json.loads((tmp_path / "reporting.json").read_text()) == {"log_steps": 100}
    assert ReportInterval(str(tmp_path), 0).steps == 100
    assert ReportInterval(str(tmp_path), 7).steps == 7  # given


@pytest.mark.parametrize("value", ["null", '"10"', "2.5", "true"])
def test_a_damaged_number_of_steps_is_reported(tmp_path, value):
    (tmp_path / "reporting.json").write_text(f'{{"log_steps": {value}, "wandb": "a1"}}')
    with pytest.raises(ValueError, match=r"reporting\.json: not written .*'log_steps' is .* int"):
        ReportInterval(str(tmp_path), 0)
    assert ReportInterval(str(tmp_path), 7).steps == 7


def test_round_numbers_of_steps():
    assert [round_steps(most) for most in (0.3, 1, 4.9, 5, 99, 1234)] == [1, 1, 2, 5, 50, 1000]
