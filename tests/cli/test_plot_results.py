"""Plots are drawn from a run's folder alone; what they show is asked of matplotlib."""

from __future__ import annotations

import json

import numpy as np
import pytest

from albert_tf.checkpoints import containers, store
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.cli import plot_results
from albert_tf.finetuning.classification import Settings
from albert_tf.finetuning.result import FineTuningResult


@pytest.fixture(autouse=True)
def figures(monkeypatch):
    """The figures that are saved, to look into."""
    found = []
    save = plot_results._save
    monkeypatch.setattr(plot_results, "_save", lambda f, path: (found.append(f), save(f, path)))
    return found


def write_json_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_training_curve_has_losses_metrics_and_the_best_step(figures, tmp_path):
    training = [{"step": step, "loss": 1 / step} for step in (2, 4, 6)]
    write_json_lines(tmp_path / "metrics.jsonl", training)
    prefix = str(tmp_path / "model.ckpt-best")
    store.save_checkpoint(prefix, {"global_step": np.int64(5)})
    RunFolder(str(tmp_path)).write_record(RunRecord(task={"selection_metric": "mrr"}))
    rows = [
        ("other data", 4, "", {"mrr": 1.0, "eval_loss": 0.25}),
        ("this data", 5, containers.digest(prefix), {"mrr": 0.75, "eval_loss": 0.5, "loss": 9}),
        ("this data", 3, "", {"mrr": 0.5, "f1": 1, "eval_loss": 1, "loss": 9}),
    ]
    names = ("measured_on", "step", "checkpoint", "metrics")
    evaluations = [{**dict(zip(names, row, strict=True)), "precision": "float32"} for row in rows]
    write_json_lines(tmp_path / "evaluations.jsonl", evaluations)
    assert plot_results.plot_run(str(tmp_path)) == [str(tmp_path / "training_curve.png")]
    losses, metrics = figures[0].axes
    lines = [[list(values) for values in line.get_data()] for line in losses.lines]
    assert lines == [[[2, 4, 6], [1 / 2, 1 / 4, 1 / 6]], [[3, 5], [1, 0.5]]]  # by step
    assert [list(values) for values in metrics.lines[0].get_data()] == [[3, 5], [0.5, 0.75]]
    assert metrics.lines[1].get_xdata() == [5, 5]
    assert metrics.get_title() == "mrr"


def test_the_confusion_matrix_shows_counts_right_label_down_and_prediction_across(
    figures, tmp_path
):
    names = ["no", "x" * 60, "may$be"]
    counts = np.array([[5, 2, 0], [1, 7, 3], [0, 0, 0]])
    pairs = [(names[r], names[c]) for (r, c), n in np.ndenumerate(counts) for _ in range(n)]
    lines = [["line", "guid", "label", "prediction", *names]]
    lines += [["1", "dev-1", *pair, "0", "0", "1"] for pair in pairs]
    (tmp_path / "dev_predictions.tsv").write_text("\n".join(map("\t".join, lines)) + "\n")
    assert plot_results.plot_run(str(tmp_path)) == [str(tmp_path / "confusion_matrix.png")]
    axes = figures[0].axes[0]
    cells = {text.get_position(): text.get_text() for text in axes.texts}
    assert cells[(2, 1)] == "3"  # across 2, down 1
    assert len(cells) == 9
    shares = axes.images[0].get_array()
    np.testing.assert_allclose(shares, [[5 / 7, 2 / 7, 0], [1 / 11, 7 / 11, 3 / 11], [0, 0, 0]])
    shown = [label.get_text() for label in axes.get_xticklabels()]
    assert shown == ["no", "x" * 23 + "…", r"may\$be"]
    assert axes.get_title() == "12 of 18 correct (66.7 %)"
    beside = {text.get_position(): text.get_text() for text in figures[0].axes[1].texts}
    precision, recall, f1 = ([beside[column, row] for row in range(3)] for column in range(3))
    assert precision == ["0.83", "0.78", "0.00"]  # 5 / 6, 7 / 9, nothing
    assert recall == ["0.71", "0.64", "0.00"]  # 5 / 7, 7 / 11
    assert f1 == ["0.77", "0.70", "0.00"]  # 10 / 13, 14 / 20


def test_a_single_evaluation_has_no_curve(tmp_path):
    entry = {"measured_on": "data", "step": 5, "checkpoint": "", "precision": "float32"}
    entries = [entry | {"metrics": {"eval_loss": 0.5}}]
    write_json_lines(tmp_path / "evaluations.jsonl", entries)
    write_json_lines(tmp_path / "metrics.jsonl", [{"step": 5, "loss": 1.0}])
    assert plot_results.plot_run(str(tmp_path)) == []
    entries.append(entries[0] | {"step": 6})
    write_json_lines(tmp_path / "evaluations.jsonl", entries)
    assert plot_results.plot_run(str(tmp_path)) == [str(tmp_path / "training_curve.png")]


def test_a_damaged_file_is_a_warning_of_the_program(tmp_path, caplog):
    (tmp_path / "metrics.jsonl").write_text("[1]\n")
    settings = Settings(task_name="mrpc", data_dir="d", output_dir=str(tmp_path), do_eval=True)
    plot_results.plot_result(settings, FineTuningResult("", 2, {}, "", has_files=False))
    assert not caplog.records
    plot_results.plot_result(settings, FineTuningResult("", 2, {}, "", has_files=True))
    assert "Not all plots were drawn: " in caplog.text
