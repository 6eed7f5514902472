"""Plots are drawn from a run's folder alone; what they show is asked of matplotlib."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from albert_tf.checkpoints import containers, store
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.classification.settings import Settings
from albert_tf.cli import plot_results
from albert_tf.finetuning import sweeps
from albert_tf.finetuning.result import FineTuningResult

PNG = b"\x89PNG"


@pytest.fixture(name="figures", autouse=True)
def keep_figures(monkeypatch):
    """The figures that are saved, to look into."""
    found = []
    save = plot_results._save
    monkeypatch.setattr(plot_results, "_save", lambda f, path: (found.append(f), save(f, path)))
    return found


def data_of(line):
    return [list(values) for values in line.get_data()]


def write_json_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_evaluations(folder, rows, best=0):
    """Rows are (digest of the data, step, metrics), in the order of the measurements.

    The checkpoint that was measured in the row `best` is kept.
    """
    prefix = str(folder / "model.ckpt-best")
    store.save_checkpoint(prefix, {"global_step": np.int64(rows[best][1])})
    names = {best: containers.digest(prefix)}
    write_json_lines(
        folder / "evaluations.jsonl",
        [
            {
                "step": step,
                "metrics": metrics,
                "checkpoint": names.get(number, ""),
                "measured_on": data,
            }
            for number, (data, step, metrics) in enumerate(rows)
        ],
    )


def record_metric(folder, name):
    RunFolder(str(folder)).write_record(RunRecord(task={"selection_metric": name}))


# The training curve


def test_the_training_curve_has_both_losses_the_metric_and_the_best_step(figures, tmp_path):
    write_json_lines(
        tmp_path / "metrics.jsonl", [{"step": step, "loss": 1 / step} for step in (2, 4, 6)]
    )
    write_evaluations(
        tmp_path,
        [
            ("other data", 4, {"mean_reciprocal_rank": 1.0, "eval_loss": 0.25}),
            ("this data", 5, {"mean_reciprocal_rank": 0.75, "f1": 1, "eval_loss": 0.5, "loss": 9}),
            ("this data", 3, {"mean_reciprocal_rank": 0.5, "f1": 1, "eval_loss": 1, "loss": 9}),
        ],
        best=1,
    )
    record_metric(tmp_path, "mean_reciprocal_rank")
    assert plot_results.plot_run(str(tmp_path)) == [str(tmp_path / "training_curve.png")]
    assert (tmp_path / "training_curve.png").read_bytes().startswith(PNG)
    losses, metrics = figures[0].axes
    assert data_of(losses.lines[0]) == [[2, 4, 6], [1 / 2, 1 / 4, 1 / 6]]
    assert data_of(losses.lines[1]) == [[3, 5], [1, 0.5]]  # by step
    assert data_of(metrics.lines[0]) == [[3, 5], [0.5, 0.75]]
    assert metrics.lines[1].get_xdata() == [5, 5]
    assert metrics.get_title() == "mean_reciprocal_rank"


def test_training_without_evaluations_has_a_curve_of_the_loss_alone(figures, tmp_path):
    write_json_lines(tmp_path / "metrics.jsonl", [{"step": 2, "loss": 3.0}])
    plot_results.plot_run(str(tmp_path))
    (losses,) = figures[0].axes
    assert data_of(losses.lines[0]) == [[2], [3.0]]


def test_metrics_of_training_are_drawn_where_there_are_some(figures, tmp_path):
    training = {"step": 2, "loss": 3.0, "masked_lm_accuracy": 0.5}
    write_json_lines(tmp_path / "metrics.jsonl", [training])
    write_evaluations(tmp_path, [("d", 2, {"loss": 4.0, "masked_lm_accuracy": 0.25})])
    record_metric(tmp_path, "masked_lm_accuracy")
    plot_results.plot_run(str(tmp_path))
    losses, accuracy = figures[0].axes
    assert [data_of(line) for line in losses.lines] == [[[2], [3.0]], [[2], [4.0]]]
    assert [data_of(line) for line in accuracy.lines[:2]] == [[[2], [0.5]], [[2], [0.25]]]
    assert accuracy.lines[2].get_xdata() == [2, 2]  # the best checkpoint


def test_pre_training_has_curves_of_both_its_tasks(figures, tmp_path):
    keys = ("loss", "masked_lm_loss", "masked_lm_accuracy", "sentence_order_accuracy")
    write_json_lines(
        tmp_path / "metrics.jsonl",
        [{"step": 2, **dict.fromkeys(keys, 0.5)}, {"step": 2, "eval/loss": 9.0}],
    )
    write_evaluations(tmp_path, [("d", 2, dict.fromkeys(keys, 0.25))])
    plot_results.plot_run(str(tmp_path))
    assert tuple(axes.get_title() for axes in figures[0].axes) == keys
    for axes in figures[0].axes:
        assert [data_of(line) for line in axes.lines[:2]] == [[[2], [0.5]], [[2], [0.25]]]


# The confusion matrix


def write_predictions(folder, labels, pairs):
    """`dev_predictions.tsv`, of (label, prediction)."""
    lines = ["\t".join(("line", "guid", "label", "prediction", *labels))]
    for number, (label, prediction) in enumerate(pairs, 1):
        cells = [number, f"dev-{number}", label, prediction, *[1 / len(labels)] * len(labels)]
        lines.append("\t".join(map(str, cells)))
    (folder / "dev_predictions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_the_confusion_matrix_shows_counts_right_label_down_and_prediction_across(
    figures, tmp_path
):
    names = ["no", "yes", "may$be"]
    counts = np.array([[5, 2, 0], [1, 7, 3], [0, 0, 0]])
    pairs = [(names[r], names[c]) for (r, c), n in np.ndenumerate(counts) for _ in range(n)]
    write_predictions(tmp_path, names, pairs)
    assert plot_results.plot_run(str(tmp_path)) == [str(tmp_path / "confusion_matrix.png")]
    axes = figures[0].axes[0]
    cells = {text.get_position(): text.get_text() for text in axes.texts}
    assert cells[(2, 1)] == "3"  # across 2, down 1
    assert len(cells) == 9
    shares = axes.images[0].get_array()
    np.testing.assert_allclose(shares[0], [5 / 7, 2 / 7, 0])
    np.testing.assert_allclose(shares[2], 0)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["no", "yes", r"may\$be"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted label", "true label")
    assert axes.get_title() == "12 of 18 correct (66.7 %)"


def test_long_labels_are_shortened(figures, tmp_path):
    labels = ["plain", "x" * 60]
    plot_results.draw_confusion_matrix(str(tmp_path / "m.png"), np.eye(2, dtype=int), labels)
    shown = [label.get_text() for label in figures[0].axes[0].get_yticklabels()]
    assert shown == ["plain", "x" * 23 + "…"]


def test_many_labels_leave_names_and_counts_out(figures, tmp_path):
    count = plot_results.MOST_NAMES + 1
    names = [str(i) for i in range(count)]
    plot_results.draw_confusion_matrix(str(tmp_path / "m.png"), np.eye(count, dtype=int), names)
    assert not figures[0].axes[0].texts


def test_a_regression_has_no_confusion_matrix(tmp_path):
    write_predictions(tmp_path, ["score"], [("2.5", "2.25")])
    assert plot_results.plot_run(str(tmp_path)) == []


def test_labels_of_tokens_have_no_confusion_matrix(tmp_path):
    (tmp_path / "dev_predictions.tsv").write_text("The\tO\tO\nriver\tB-LOC\tO\n\nIt\tO\tO\n")
    assert plot_results.plot_run(str(tmp_path)) == []


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("dev_predictions.tsv", "line\tguid\tlabel\tprediction\tno\tyes\n1\tdev", ":2: .* 'dev'"),
        ("dev_predictions.tsv", "line\tguid\tlabel\tprediction\tno\n1\td\tno\tyes\t1\n", ":2: "),
        ("sweep_results.tsv", "", ": "),
        ("sweep_results.tsv", "folder\n\n", ": "),
        ("metrics.jsonl", "[1]\n", ", line 1: "),
        ("evaluations.jsonl", '{"step": 2}\n', ", line 1: "),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content, place):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=name + place):
        plot_results.plot_run(str(tmp_path))


# The sweep


def test_the_runs_of_a_sweep_have_their_plots_also_where_they_were_moved(tmp_path):
    settings = Settings(
        task_name="mrpc", data_dir="glue", output_dir="old", learning_rate=(2e-5, 1.0), do_eval=True
    )
    runs = [sweeps.Result(run, remark="diverged") for run in sweeps.plan_runs(settings)]
    sweeps.write_comparison(RunFolder(str(tmp_path)), runs, "f1")
    folder = tmp_path / os.path.basename(runs[0].settings.output_dir)
    folder.mkdir()
    write_json_lines(folder / "metrics.jsonl", [{"step": 2, "loss": 3.0}])
    assert plot_results.plot_run(str(tmp_path)) == [str(folder / "training_curve.png")]


# Programs, and the command


@pytest.mark.parametrize("content", ['{"step": 2\n', '{"step": 2, "loss": {}}\n'])
def test_a_plot_that_cannot_be_drawn_is_a_warning_of_the_program(content, tmp_path, caplog):
    settings = Settings(task_name="mrpc", data_dir="d", output_dir=str(tmp_path), do_eval=True)
    (tmp_path / "metrics.jsonl").write_text(content)
    done, idle = (FineTuningResult("", 2, {}, "", has_files=has) for has in (True, False))
    plot_results.plot_result(settings, idle)
    assert not caplog.records
    plot_results.plot_result(settings, done)
    assert "Not all plots were drawn: " in caplog.text


def test_the_command_names_what_it_draws_and_what_it_looks_for(tmp_path):
    settings = plot_results.Settings(output_dir=str(tmp_path))
    with pytest.raises(ValueError, match=r"nothing to plot; expected metrics\.jsonl"):
        plot_results.run(settings)
    write_json_lines(tmp_path / "metrics.jsonl", [{"step": 2, "loss": 3.0}])
    assert plot_results.run(settings) == f"{tmp_path}/training_curve.png"
