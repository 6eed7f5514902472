"""Lines of progress: written at once, none twice, none of a lost future."""

from __future__ import annotations

import json

import pytest

from albert_tf.training.metrics_log import MetricsLog, read_means


def lines_of(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_a_line_has_the_metrics_the_rate_and_the_speed(tmp_path):
    log = MetricsLog(str(tmp_path), step=0, last_step=7, batch_size=5)
    log.write(2, {"loss": 1.5}, 0.25)
    log.close()
    (line,) = lines_of(tmp_path)
    assert (line["step"], line["loss"], line["learning_rate"]) == (2, 1.5, 0.25)
    assert line["examples_per_second"] > 0
    assert list(tmp_path.glob("events.out.tfevents.*"))


def test_going_on_from_an_earlier_step_drops_the_lines_behind_it(tmp_path):
    log = MetricsLog(str(tmp_path), 0, 7, 5)
    for step in (2, 4, 6):
        log.write(step, {"loss": float(step)}, 0.1)
    log.close()
    again = MetricsLog(str(tmp_path), 4, 7, 5)
    again.write(6, {"loss": 60.0}, 0.1)
    again.close()
    assert [line["loss"] for line in lines_of(tmp_path)] == [2.0, 4.0, 60.0]


def test_the_means_of_the_last_line_are_read_again(tmp_path):
    assert read_means(str(tmp_path), 2) is None
    log = MetricsLog(str(tmp_path), 0, 7, 5)
    log.write(2, {"accuracy": 0.5, "loss": 1.5}, 0.25)
    log.close()
    assert read_means(str(tmp_path), 2) == {"accuracy": 0.5, "loss": 1.5}
    assert read_means(str(tmp_path), 4) is None


@pytest.mark.parametrize("line", ['{"step": 4, "los', '{"loss": 1.5}', '{"step": "4"}', "5"])
def test_a_damaged_log_is_named_with_the_line(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 2}}\n{line}')
    message = r"metrics\.jsonl, line 2: not written by this program, or damaged since"
    with pytest.raises(ValueError, match=message):
        MetricsLog(str(tmp_path), 4, 7, 5)
    with pytest.raises(ValueError, match=message):
        read_means(str(tmp_path), 4)
