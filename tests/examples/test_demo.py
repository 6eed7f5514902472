"""The demo's bookkeeping and its report: steps that are done, chance, results and plots."""

from __future__ import annotations

import json

import demo
import demo_report
import numpy as np
import pretraining_report
import pytest

from albert_tf.data.tf_example import encode_examples
from albert_tf.record_frames import frame_records

RESULTS = """# Computed in bfloat16
global_step = 20
loss = 4.5
masked_lm_accuracy = 0.625
sentence_order_accuracy = 0.125
global_step = 10
loss = 3.25
masked_lm_accuracy = 0.75
sentence_order_accuracy = 0.875
"""


@pytest.fixture
def steps(tmp_path):
    """Three steps, all of them done."""
    found = [demo.Step(name, "x.py", {"n": 1}, str(tmp_path / name)) for name in ("a", "b", "c")]
    progress = demo.Progress(str(tmp_path), "fingerprint")
    for step in found:
        (tmp_path / step.name).touch()
        progress.add(step)
    return found


@pytest.mark.parametrize(("lost", "done"), [("", [True, True, True]), ("b", [True, False, False])])
def test_a_step_is_repeated_with_all_that_depend_on_it_if_its_output_is_gone(
    steps, tmp_path, lost, done
):
    if lost:
        (tmp_path / lost).unlink()
    again = demo.Progress(str(tmp_path), "fingerprint")
    assert [again.covers(step) for step in steps] == done


def test_other_settings_start_anew_and_delete_nothing(steps, tmp_path):
    again = demo.Progress(str(tmp_path), "another")
    assert not any(again.covers(step) for step in steps)
    (aside,) = tmp_path.glob("earlier-*")
    assert {path.name for path in aside.iterdir()} == {"a", "b", "c", "progress.json"}


def test_a_failing_step_stops_the_demo_and_is_not_done(tmp_path, capfd):
    step = demo.Step("fail", "examples/no_such_program.py", {}, str(tmp_path / "out"))
    progress = demo.Progress(str(tmp_path), "a")
    with pytest.raises(SystemExit, match="exit code 2"):
        demo.run_steps([step], progress)
    assert not progress.done
    assert "no_such_program" in capfd.readouterr().err


@pytest.fixture
def records(tmp_path):
    """Records of three instances, two of which have the label 1, and three masked words are 7."""
    batch = {
        "masked_lm_ids": np.array([[7, 7, 5], [7, 6, 0], [5, 0, 0]]),
        "masked_lm_weights": np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
        "next_sentence_labels": np.array([[1], [0], [1]]),
    }
    path = tmp_path / "held_out.tfrecord"
    path.write_bytes(b"".join(frame_records(encode_examples(batch))))
    return str(path)


def test_the_best_and_the_last_checkpoint_stand_beside_constant_answers(
    tmp_path, toy_spm_model, records
):
    (tmp_path / "eval_results.txt").write_text(RESULTS)
    (tmp_path / "spiece.model").symlink_to(toy_spm_model)
    keys = ("loss", "masked_lm_accuracy", "sentence_order_accuracy")
    rows = [{"step": step, **dict.fromkeys(keys, 0.5)} for step in (10, 20)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    plot_file = tmp_path / "curves.png"
    text = pretraining_report.report(str(tmp_path), records, str(plot_file))
    assert demo_report.count_chance(records) == demo_report.Chance(7, 3 / 6, 2 / 3)
    best, last = text.split("Held-out text")[1:]
    assert "after 10 steps" in best
    assert "0.875   0.667 (always the same order)" in best
    assert "0.750   0.500 (always" in best
    assert "after 20 steps" in last
    assert plot_file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("lacking", ["", "words", "packages"])
def test_the_demo_demands_that_everything_is_learned(lacking):
    learned = {"words": 0.13, "packages": 0.68}
    learned |= {lacking: learned[lacking] - 0.02} if lacking else {}
    results = {"masked_lm_accuracy": learned["words"]}
    chance = demo_report.Chance(7, 0.1, 0.595)
    task = demo_report.TaskResult(learned["packages"], "email", 1 / 3, 3)
    assert demo_report.has_learned(results, chance, task) == (not lacking)
