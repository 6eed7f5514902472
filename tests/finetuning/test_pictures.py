"""Pictures are drawn whatever the data are; what they show is asked of matplotlib."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from albert_tf.finetuning import pictures

PNG = b"\x89PNG"


@pytest.fixture(name="figures")
def keep_figures(monkeypatch):
    """The figures that are saved, to look into."""
    found = []
    save = pictures._save
    monkeypatch.setattr(pictures, "_save", lambda f, path: (found.append(f), save(f, path)))
    return found


def data_of(line):
    return [list(values) for values in line.get_data()]


def test_the_training_curve_has_both_losses_the_metric_and_the_best_step(figures, tmp_path):
    rows = [{"step": step, "loss": 1 / step} for step in (2, 4, 6)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    evaluations = [
        {"step": 5, "eval_loss": 0.5, "f1": 0.75},
        {"step": 3, "eval_loss": 1, "f1": 0.5},
    ]
    path = tmp_path / "curve.png"
    pictures.draw_training_curve(
        str(path), str(tmp_path / "metrics.jsonl"), evaluations, "f1", best_step=5
    )
    assert path.read_bytes().startswith(PNG)
    losses, metrics = figures[0].axes
    assert data_of(losses.lines[0]) == [[2, 4, 6], [1 / 2, 1 / 4, 1 / 6]]
    assert data_of(losses.lines[1]) == [[3, 5], [1, 0.5]]  # by step
    assert data_of(metrics.lines[0]) == [[3, 5], [0.5, 0.75]]
    assert metrics.lines[1].get_xdata() == [5, 5]
    assert metrics.get_title() == "f1"


def test_a_model_that_was_trained_elsewhere_has_a_curve_too(tmp_path):
    path = tmp_path / "curve.png"
    pictures.draw_training_curve(str(path), str(tmp_path / "none"), [], "f1")
    assert path.read_bytes().startswith(PNG)


def test_the_confusion_matrix_shows_counts_right_label_down_and_prediction_across(
    figures, tmp_path
):
    matrix = np.array([[5, 2, 0], [1, 7, 3], [0, 0, 0]])
    pictures.draw_confusion_matrix(str(tmp_path / "m.png"), matrix, ["no", "yes", "may$be"])
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
    pictures.draw_confusion_matrix(str(tmp_path / "m.png"), np.eye(3, dtype=int), labels)
    shown = [label.get_text() for label in figures[0].axes[0].get_yticklabels()]
    assert shown == ["plain", "label 1", "x" * 23 + "…"]


def test_many_labels_leave_names_and_counts_out(figures, tmp_path):
    count = pictures.MOST_NAMES + 1
    names = [str(i) for i in range(count)]
    pictures.draw_confusion_matrix(str(tmp_path / "m.png"), np.eye(count, dtype=int), names)
    assert not figures[0].axes[0].texts


def test_a_matrix_of_other_labels_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"shape \(3, 3\) for 2 labels"):
        pictures.draw_confusion_matrix(str(tmp_path / "m.png"), np.eye(3, dtype=int), ["a", "b"])
    assert not list(tmp_path.iterdir())


def test_a_sweep_has_a_point_a_run_and_medians(figures, tmp_path):
    values = {2e-5: [0.75, 0.5, 0.25], 1e-5: [0.5, 0.25], 1.0: []}
    pictures.draw_sweep(str(tmp_path / "s.png"), values, "f1")
    axes = figures[0].axes[0]
    assert [data_of(line) for line in axes.lines] == [
        [[1e-5] * 2, [0.5, 0.25]],
        [[2e-5] * 3, [0.75, 0.5, 0.25]],
        [[1e-5, 2e-5], [0.375, 0.5]],
    ]
    assert axes.get_xscale() == "log"


def test_a_sweep_without_results_is_an_empty_picture(tmp_path):
    pictures.draw_sweep(str(tmp_path / "s.png"), {1.0: []}, "f1")
    assert (tmp_path / "s.png").read_bytes().startswith(PNG)


def test_without_matplotlib_it_is_said_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"pip install 'albert-tf2\[plot\]'"):
        pictures.draw_sweep(str(tmp_path / "s.png"), {1.0: [1.0]}, "f1")


def test_null_odds_are_drawn_with_the_questions_on_either_side(figures, tmp_path):
    path = tmp_path / "null_odds.png"
    pictures.draw_null_odds(str(path), [-2.0, -1.0, 0.5, 3.0, 1e6], [0.5, 0.75, 4.0], 0.5)
    assert path.read_bytes().startswith(PNG)
    (axes,) = figures[0].axes
    heights = [bar.get_height() for bar in axes.patches]
    assert sum(heights) == 5 + 3  # what lies far away is drawn at the edge
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {
        "with an answer: 3 of 5 answered",
        "without: 2 of 3 not answered",
        "threshold 0.5",
    }
    pictures.draw_null_odds(str(path), [-2.0, 1.0], [3.0], 1e9)
    assert figures[1].axes[0].get_xlim()[1] < 10
    for answerable, unanswerable in (([0.5], []), ([], [1.0, 1.0]), ([7.0], [7.0])):
        pictures.draw_null_odds(str(path), answerable, unanswerable, 7.0)
