"""Plots are drawn from a run's folder alone; what they show is asked of matplotlib."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from albert_tf.classification.settings import Settings
from albert_tf.classification.tasks import TASKS
from albert_tf.commands import plot_results
from albert_tf.finetuning import sweeps
from albert_tf.finetuning.result import FineTuningResult
from tests.conftest import ROOT

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


def write_evaluations(folder, rows):
    """Rows are (digest of the data, step, metrics), in the order of the measurements."""
    write_json_lines(
        folder / "evaluations.jsonl",
        [
            {"step": step, "metrics": metrics, "checkpoint": "c", "measured_on": data}
            for data, step, metrics in rows
        ],
    )


# The training curve


def test_the_training_curve_has_both_losses_the_metric_and_the_best_step(figures, tmp_path):
    write_json_lines(
        tmp_path / "metrics.jsonl", [{"step": step, "loss": 1 / step} for step in (2, 4, 6)]
    )
    write_evaluations(
        tmp_path,
        [
            ("other data", 4, {"f1": 1.0, "eval_loss": 0.25}),
            ("this data", 5, {"f1": 0.75, "exact_match": 0.25, "eval_loss": 0.5, "loss": 9}),
            ("this data", 3, {"f1": 0.5, "exact_match": 0.5, "eval_loss": 1, "loss": 9}),
        ],
    )
    assert plot_results.plot_run(str(tmp_path)) == [str(tmp_path / "training_curve.png")]
    assert (tmp_path / "training_curve.png").read_bytes().startswith(PNG)
    losses, metrics = figures[0].axes
    assert data_of(losses.lines[0]) == [[2, 4, 6], [1 / 2, 1 / 4, 1 / 6]]
    assert data_of(losses.lines[1]) == [[3, 5], [1, 0.5]]  # by step
    assert data_of(metrics.lines[0]) == [[3, 5], [0.5, 0.75]]
    assert metrics.lines[1].get_xdata() == [5, 5]
    assert metrics.get_title() == "f1"


@pytest.mark.parametrize(
    ("task", "best"), [('{"labels": ["a"]}', 1), ('{"token_labels": ["O"]}', 2), (None, 1)]
)
def test_of_equal_checkpoints_the_one_that_the_program_keeps_is_marked(
    figures, tmp_path, task, best
):
    if task:
        (tmp_path / "task.json").write_text(task)
    values = [0.5, 0.75, 0.75, 0.25]
    write_evaluations(tmp_path, [("d", step, {"f1": v}) for step, v in enumerate(values)])
    plot_results.plot_run(str(tmp_path))
    assert figures[0].axes[1].lines[-1].get_xdata() == [best, best]


def test_training_without_evaluations_has_a_curve_of_the_loss_alone(figures, tmp_path):
    write_json_lines(tmp_path / "metrics.jsonl", [{"step": 2, "loss": 3.0}])
    plot_results.plot_run(str(tmp_path))
    (losses,) = figures[0].axes
    assert data_of(losses.lines[0]) == [[2], [3.0]]


def test_metrics_of_training_are_drawn_where_there_are_some(figures, tmp_path):
    training = {"step": 2, "loss": 3.0, "masked_lm_accuracy": 0.5}
    write_json_lines(tmp_path / "metrics.jsonl", [training])
    write_evaluations(tmp_path, [("d", 2, {"loss": 4.0, "masked_lm_accuracy": 0.25})])
    plot_results.plot_run(str(tmp_path))
    losses, accuracy = figures[0].axes
    assert [data_of(line) for line in losses.lines] == [[[2], [3.0]], [[2], [4.0]]]
    assert [data_of(line) for line in accuracy.lines[:2]] == [[[2], [0.5]], [[2], [0.25]]]


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


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_the_metric_of_the_curve_is_the_one_that_picks_the_best_checkpoint(task):
    row = dict.fromkeys([*task.metrics, "eval_loss", "loss"], 0.0)
    assert plot_results.selection_metric([row]) == task.selection_metric


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
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted", "right")
    assert axes.get_title() == "12 of 18 right (66.7 %)"


def test_labels_that_no_font_has_are_numbered(figures, tmp_path):
    labels = ["plain", "\U000e0041\U000e0042", "x" * 60]
    plot_results.draw_confusion_matrix(str(tmp_path / "m.png"), np.eye(3, dtype=int), labels)
    shown = [label.get_text() for label in figures[0].axes[0].get_yticklabels()]
    assert shown == ["plain", "label 1", "x" * 23 + "…"]


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


def test_a_table_that_was_cut_short_is_an_error(tmp_path):
    (tmp_path / "dev_predictions.tsv").write_text("line\tguid\tlabel\tprediction\tno\tyes\n1\tdev")
    with pytest.raises(ValueError, match=r"dev_predictions.tsv:2: expected 6 cells, .* got 2"):
        plot_results.plot_run(str(tmp_path))


# The null odds


@pytest.fixture(name="answered")
def write_answered(tmp_path):
    """The folder of a SQuAD 2.0 run: q1 and q2 have an answer, q3 has none."""
    questions = [
        {"id": name, "question": "Where?", "answers": found, "is_impossible": not found}
        for name, found in (
            ("q1", [{"text": "here", "answer_start": 0}]),
            ("q2", [{"text": "there", "answer_start": 9}]),
            ("q3", []),
        )
    ]
    article = {"paragraphs": [{"context": "here and there", "qas": questions}]}
    (tmp_path / "dev.json").write_text(json.dumps({"version": "v2.0", "data": [article]}))
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "null_odds.json").write_text(json.dumps({"q1": -2.0, "q2": 3.0, "q3": 1.0}))
    # A block for each checkpoint, and then the best one's.
    (folder / "eval_results.txt").write_text(
        "f1 = 50.0\nnull_score_diff_threshold = 7.0\nf1 = 75.0\nnull_score_diff_threshold = 0.5\n"
    )
    flags = {"do_predict": True, "predict_file": "dev.json"}
    runs = [flags | {"predict_file": "earlier.json"}, flags, {"do_predict": False}]
    write_json_lines(
        folder / "runs.jsonl", [{"directory": str(tmp_path), "flags": run} for run in runs]
    )
    return folder


def test_null_odds_are_drawn_with_the_questions_of_the_run(figures, answered):
    assert plot_results.plot_run(str(answered)) == [str(answered / "null_odds.png")]
    (axes,) = figures[0].axes
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {
        "with an answer: 1 of 2 answered",
        "without: 1 of 1 not answered",
        "threshold 0.5",
    }


def test_null_odds_of_a_sweep_are_drawn_with_the_questions_of_its_folder(answered, tmp_path):
    (answered / "runs.jsonl").rename(tmp_path / "runs.jsonl")
    assert plot_results.plot_run(str(answered)) == [str(answered / "null_odds.png")]


def test_null_odds_are_not_drawn_with_the_threshold_of_other_questions(answered):
    flags = {"do_eval": True, "predict_file": "other.json"}
    with open(answered / "runs.jsonl", "a") as stream:
        stream.write(json.dumps({"directory": "/", "flags": flags}) + "\n")
    assert plot_results.plot_run(str(answered)) == []


def test_questions_that_were_moved_are_asked_for(answered, tmp_path):
    moved = (tmp_path / "dev.json").rename(tmp_path / "moved.json")
    with pytest.raises(FileNotFoundError, match=r"dev.json, which does not exist: set --predict_"):
        plot_results.plot_run(str(answered))
    assert plot_results.plot_run(str(answered), str(moved))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("null_odds.json", '{"q1": 0.5}', r" has no entry for question q2 of .*dev.json"),
        ("null_odds.json", '{"q1": 0.5', ": not written by this program, or damaged since"),
        ("eval_results.txt", "f1 = 75.0\n", " has no line 'null_score_diff_threshold = …'"),
    ],
)
def test_null_odds_of_other_questions_or_damaged_are_an_error(answered, name, content, message):
    (answered / name).write_text(content)
    with pytest.raises(ValueError, match=name + message):
        plot_results.plot_run(str(answered))


def test_far_null_odds_and_thresholds_are_drawn_at_the_edge(figures, tmp_path):
    path = str(tmp_path / "null_odds.png")
    plot_results.draw_null_odds(path, [-2.0, -1.0, 0.5, 3.0, 1e6], [0.5, 0.75, 4.0], 0.5)
    heights = [bar.get_height() for bar in figures[0].axes[0].patches]
    assert sum(heights) == 5 + 3
    plot_results.draw_null_odds(path, [-2.0, 1.0], [3.0], 1e9)
    assert figures[1].axes[0].get_xlim()[1] < 10


@pytest.mark.parametrize(
    ("answerable", "unanswerable"), [([0.5], []), ([], [1.0, 1.0]), ([7.0], [7.0])]
)
def test_null_odds_without_a_range_are_drawn(answerable, unanswerable, figures, tmp_path):
    plot_results.draw_null_odds(str(tmp_path / "odds.png"), answerable, unanswerable, 7.0)
    heights = [bar.get_height() for bar in figures[0].axes[0].patches]
    assert sum(heights) == len(answerable) + len(unanswerable)


# The sweep


def plan_runs(folder, learning_rates, num_runs):
    settings = Settings(
        task_name="mrpc",
        data_dir="glue",
        output_dir=str(folder),
        do_eval=True,
        learning_rate=learning_rates,
        num_runs=num_runs,
        seed=7,
    )
    return sweeps.plan_runs(settings)


def test_a_sweep_has_a_point_a_run_and_medians_and_its_runs_have_their_plots(figures, tmp_path):
    runs = plan_runs(tmp_path, (2e-5, 1e-5, 1.0), 2)
    scores = [0.75, 0.25, 0.5, 0.125, None, None]
    sweeps.write_comparison(
        str(tmp_path),
        [
            sweeps.Result(run, 5, {"f1": score, "loss": 9.0} if score else {}, "diverged")
            for run, score in zip(runs, scores, strict=True)
        ],
        "f1",
    )
    (tmp_path / "lr2e-05_seed7").mkdir()
    write_json_lines(tmp_path / "lr2e-05_seed7" / "metrics.jsonl", [{"step": 2, "loss": 3.0}])
    assert plot_results.plot_run(str(tmp_path)) == [
        str(tmp_path / "sweep.png"),
        str(tmp_path / "lr2e-05_seed7" / "training_curve.png"),
    ]
    axes = figures[0].axes[0]
    assert [data_of(line) for line in axes.lines] == [
        [[1e-5] * 2, [0.5, 0.125]],
        [[2e-5] * 2, [0.75, 0.25]],
        [[1e-5, 2e-5], [0.3125, 0.5]],
    ]
    assert axes.get_xscale() == "log"
    assert axes.get_ylabel() == "f1"


def test_a_sweep_whose_runs_all_diverged_has_nothing_to_compare(tmp_path):
    runs = plan_runs(tmp_path, (2e-5, 1e-5), 1)
    results = [sweeps.Result(run, remark="diverged") for run in runs]
    sweeps.write_comparison(str(tmp_path), results, "f1")
    assert plot_results.plot_run(str(tmp_path)) == []


# Programs, and the command


@pytest.mark.parametrize(
    "content", ['{"step": 2\n', '{"step": 2, "loss": "x"}\n{"step": 2, "loss": 1}']
)
def test_a_plot_that_cannot_be_drawn_is_a_warning_of_the_program(content, tmp_path, caplog):
    settings = Settings(task_name="mrpc", data_dir="d", output_dir=str(tmp_path), do_eval=True)
    (tmp_path / "metrics.jsonl").write_text(content)
    done, idle = (FineTuningResult("", 2, {}, "", has_files=has) for has in (True, False))
    assert plot_results.run_and_plot(lambda settings: idle, settings) is idle
    assert not caplog.records
    assert plot_results.run_and_plot(lambda settings: done, settings) is done
    assert "Not all plots were drawn: " in caplog.text


def test_the_command_names_what_it_draws_and_what_it_looks_for(tmp_path):
    command = [sys.executable, str(ROOT / "tools" / "plot_results.py"), f"--output_dir={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "nothing to plot; expected metrics.jsonl" in done.stderr
    write_json_lines(tmp_path / "metrics.jsonl", [{"step": 2, "loss": 3.0}])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == f"{tmp_path}/training_curve.png\n"
