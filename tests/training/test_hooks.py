"""The metrics log: written at once, without duplicates or lines of discarded steps."""

from __future__ import annotations

import json
import os
import time

import pytest
import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.training.metrics_log import (
    Curves,
    MetricsLog,
    read_means,
)
from albert_tf.training.reporting import Reports


def lines_of(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def summaries_of(path):
    """Returns (tag, step, value) of all TensorBoard summaries in the order of their files."""
    return [
        (value.tag, event.step, round(float(tf.make_ndarray(value.tensor)), 4))
        for file in sorted(path.glob("events.out.tfevents.*"))
        for event in map(tf.compat.v1.Event.FromString, read_records(file))
        for value in event.summary.value
        if not value.tag.startswith("_hparams_/")  # the settings
    ]


def read_records(path):
    return tf.data.TFRecordDataset(str(path)).as_numpy_iterator()


def test_a_line_has_the_metrics_the_rate_and_the_speed(tmp_path):
    log = MetricsLog(str(tmp_path), step=0, last_step=7, batch_size=5)
    log.write(2, {"loss": 1.5}, 0.25, tokens=35)
    log.close()
    (line,) = lines_of(tmp_path)
    assert (line["step"], line["loss"], line["learning_rate"]) == (2, 1.5, 0.25)
    assert line["examples_per_second"] > 0
    assert line["tokens_per_second"] == pytest.approx(7 * line["examples_per_second"])
    written = {(tag, step) for tag, step, _ in summaries_of(tmp_path)}
    assert written == {(f"train/{name}", 2) for name in line.keys() - {"step"}}


def test_the_speed_excludes_the_time_before_the_clock_was_restarted(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    log = MetricsLog(str(tmp_path), step=4, last_step=9, batch_size=6)
    now[0] += 60  # compilation, in the first step
    log.restart_clock(5)
    log.write(5, {"loss": 1.5}, 0.25, tokens=7)
    now[0] += 0.5
    log.write(7, {"loss": 1.5}, 0.25)
    log.close()
    first, second = lines_of(tmp_path)
    assert set(first) == {"step", "loss", "learning_rate"}
    assert second["examples_per_second"] == 2 / 0.5 * 6
    assert "tokens_per_second" not in second


def test_a_report_is_one_line_with_the_main_metrics(tmp_path, monkeypatch):
    now, said = [100.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(logging, "info", lambda text, *args: said.append(text % args))
    log = MetricsLog(str(tmp_path), step=400, last_step=2000, batch_size=246)
    now[0] += 100
    means = {"gradient_norm": 2.0, "loss": 6.274, "masked_lm_accuracy": 0.108, "skipped_steps": 2.0}
    means |= {"masked_lm_loss": 5.6, "sentence_order_accuracy": 0.614, "sentence_order_loss": 0.674}
    log.write(500, means, 0.25, tokens=3500)
    log.write(500, {"loss": 0.0123}, 0.25)  # as after a restart of the clock
    log.close()
    assert said == [
        "step 500/2000  loss 6.27  mlm_acc 0.108  skipped_steps 2.00  sop_acc 0.614  lr 2.5e-01  "
        "gnorm 2  3,500 tok/s  25:00 left",
        "step 500/2000  loss 0.0123  lr 2.5e-01",
    ]


def test_the_speed_excludes_steps_that_are_left_out(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    log = MetricsLog(str(tmp_path), step=4, last_step=9, batch_size=6)
    now[0] += 3.5
    log.leave_out(3.0)  # one of the three steps
    assert log.measure(7) == (2, 0.5)
    log.write(7, {"loss": 1.5}, 0.25)
    log.close()
    (line,) = lines_of(tmp_path)
    assert line["examples_per_second"] == 2 / 0.5 * 6


def test_evaluations_have_separate_lines_and_tags_without_duplicates(tmp_path):
    log = MetricsLog(str(tmp_path), 0, 7, 5)
    log.curves.set_evaluations({0: {"loss": 4.0}})
    log.write(3, {"loss": 2.0}, 0.1)
    log.curves.set_evaluations({0: {"loss": 4.0}, 3: {"loss": 3.0}})
    log.close()
    with_training = lines_of(tmp_path)
    again = Curves(str(tmp_path))
    again.set_evaluations({0: {"loss": 4.0}, 3: {"loss": 3.0}})
    again.close()
    assert lines_of(tmp_path) == with_training
    assert [row for row in with_training if "loss" not in row] == [
        {"step": 0, "eval/loss": 4.0},
        {"step": 3, "eval/loss": 3.0},
    ]
    assert [row["step"] for row in with_training] == [0, 3, 3]
    found = [row for row in summaries_of(tmp_path) if row[0].endswith("/loss")]
    assert found == [("eval/loss", 0, 4.0), ("train/loss", 3, 2.0), ("eval/loss", 3, 3.0)]
    assert read_means(str(tmp_path), 3) == {"loss": 2.0}


def test_evaluations_that_no_longer_count_are_dropped(tmp_path):
    curves = Curves(str(tmp_path))
    curves.set_evaluations({0: {"loss": 4.0}, 3: {"loss": 3.0}, 6: {"loss": 2.0}})
    curves.close()
    resumed = Curves(str(tmp_path), step=3)
    resumed.set_evaluations({0: {"loss": 4.0}, 3: {"loss": 3.5}})
    resumed.close()
    assert lines_of(tmp_path) == [{"step": 0, "eval/loss": 4.0}, {"step": 3, "eval/loss": 3.5}]


def test_a_disk_too_full_for_summaries_is_reported_in_one_line(tmp_path, monkeypatch):
    def fail(output_dir):
        message = (
            f"{output_dir}/events; No space left on device\n\tCould not initialize events writer."
        )
        raise tf.errors.ResourceExhaustedError(None, None, message)

    monkeypatch.setattr(tf.summary, "create_file_writer", fail)
    with pytest.raises(OSError, match=r"the disk is full .*events; No space left") as error:
        Curves(str(tmp_path)).add_training(3, {"loss": 2.0})
    assert "\n" not in str(error.value)


def test_resuming_from_an_earlier_step_drops_later_lines(tmp_path):
    log = MetricsLog(str(tmp_path), 0, 7, 5)
    for step in (2, 4, 6):
        log.write(step, {"loss": float(step)}, 0.1)
    log.close()
    again = MetricsLog(str(tmp_path), 4, 7, 5)
    again.write(6, {"loss": 60.0}, 0.1)
    again.close()
    assert [line["loss"] for line in lines_of(tmp_path)] == [2.0, 4.0, 60.0]


def test_the_means_of_the_last_line_can_be_read(tmp_path):
    assert read_means(str(tmp_path), 2) is None
    log = MetricsLog(str(tmp_path), 0, 7, 5)
    log.write(2, {"accuracy": 0.5, "loss": 1.5}, 0.25)
    log.close()
    assert read_means(str(tmp_path), 2) == {"accuracy": 0.5, "loss": 1.5}
    assert read_means(str(tmp_path), 4) is None


def test_a_report_is_appended_and_costs_the_same_in_a_long_run(tmp_path, monkeypatch):
    done, write, sync = [], files.write_atomically, os.fsync
    monkeypatch.setattr(
        files, "write_atomically", lambda path: (done.append("all"), write(path))[1]
    )
    monkeypatch.setattr(os, "fsync", lambda stream: (done.append("sync"), sync(stream))[1])
    curves = Curves(str(tmp_path), 0, Reports(str(tmp_path)))
    for step in range(1, 9):
        curves.add_training(step, {"loss": 2.0})
        curves.set_evaluations({number: {"loss": 1.5} for number in range(step + 1)})
    # Step 0 is evaluated after step 1 was reported, and belongs before it.
    assert done == ["all", "sync"]
    curves.sync()
    assert done == ["all", "sync", "sync"]
    expected = (tmp_path / "metrics.jsonl").read_text()
    assert [json.loads(text)["step"] for text in expected.splitlines()][:4] == [0, 1, 1, 2]
    again = Curves(str(tmp_path), 8, Reports(str(tmp_path)))
    again.set_evaluations({number: {"loss": 1.5} for number in range(9)})
    again.add_training(9, {"loss": 2.0})
    assert done == ["all", "sync", "sync"]
    assert (tmp_path / "metrics.jsonl").read_text() == expected + '{"step": 9, "loss": 2.0}\n'


@pytest.mark.parametrize("size", range(1, 27))
def test_a_line_that_a_kill_cut_short_is_ignored_and_replaced(tmp_path, size):
    lines = ['{"step": 2, "loss": 2.5}\n', '{"step": 4, "loss": 1.5}\n']
    path = tmp_path / "metrics.jsonl"
    path.write_text(lines[0] + lines[1][:size])
    is_whole = size >= len(lines[1]) - 1
    assert (read_means(str(tmp_path), 4) is not None) == is_whole
    curves = Curves(str(tmp_path), 4, Reports(str(tmp_path)))
    assert len(curves.lines) == 1 + is_whole
    curves.add_training(4, {"loss": 1.5})
    curves.add_training(6, {"loss": 1.25})
    assert path.read_text() == "".join(lines) + '{"step": 6, "loss": 1.25}\n'


def test_in_a_remote_folder_the_lines_are_written_with_checkpoints_and_at_the_end(tmp_path):
    folder = f"file://{tmp_path}"
    log = MetricsLog(folder, 0, 7, 5)
    log.write(2, {"loss": 2.5}, 0.1)
    assert not list(tmp_path.iterdir())
    log.curves.sync()  # a checkpoint of step 2 follows
    log.write(4, {"loss": 1.5}, 0.1)
    assert [line["step"] for line in lines_of(tmp_path)] == [2]
    log.close()
    assert [line["step"] for line in lines_of(tmp_path)] == [2, 4]


@pytest.mark.parametrize("line", ['{"step": 4, "los}', '{"loss": 1.5}', '{"step": "4"}', "5\n"])
def test_the_error_for_a_damaged_log_names_the_line(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 2}}\n{line}')
    message = r"metrics\.jsonl, line 2: "
    with pytest.raises(ValueError, match=message):
        MetricsLog(str(tmp_path), 4, 7, 5)
    with pytest.raises(ValueError, match=message):
        read_means(str(tmp_path), 4)
