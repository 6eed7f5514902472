"""The report of a pre-training run, from the files of the run."""

from __future__ import annotations

import json
import shutil

import pretraining_report
import pytest

RESULTS = """# Computed in bfloat16
global_step = 10
loss = 3.25
masked_lm_accuracy = 0.75
sentence_order_accuracy = 0.875
global_step = 20
loss = 4.5
masked_lm_accuracy = 0.625
sentence_order_accuracy = 0.125
"""


@pytest.fixture
def run_folder(tmp_path, toy_spm_model):
    (tmp_path / "eval_results.txt").write_text(RESULTS)
    shutil.copy(toy_spm_model, tmp_path / "spiece.model")
    keys = ("loss", "masked_lm_accuracy", "sentence_order_accuracy")
    rows = [{"step": step, **dict.fromkeys(keys, 0.5)} for step in (10, 20)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return tmp_path


def test_the_best_and_the_last_checkpoint_stand_beside_constant_answers(run_folder, records):
    plot_file = run_folder / "curves.png"
    text = pretraining_report.report(str(run_folder), records, str(plot_file))
    best, last = text.split("Held-out text")[1:]
    assert "after 10 steps" in best
    assert "0.875   0.667 (always the same order)" in best
    assert "0.750   0.500 (always" in best
    assert "after 20 steps" in last
    assert plot_file.read_bytes().startswith(b"\x89PNG")


def test_a_run_without_evaluation_is_refused_with_the_way_out(run_folder, tmp_path, records):
    (run_folder / "eval_results.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"eval_results\.txt: no such file.*--do_eval"):
        pretraining_report.report(str(run_folder), records, None)
