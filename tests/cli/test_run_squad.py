"""What run_squad.py alone does; `test_programs.py` has what all programs do."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from albert_tf.checkpoints.store import save_checkpoint
from tests.script_runner import tensors

pytestmark = pytest.mark.ci


def read_json(path):
    return json.loads(path.read_text())


def test_questions_above_the_threshold_of_the_evaluation_have_no_answer(finished):
    folder = finished("squad_2").out
    predictions = read_json(folder / "predictions.json")
    odds = read_json(folder / "null_odds.json")
    metrics = (folder / "eval_results.txt").read_text().split("=" * 50 + "\n")[-1]
    threshold = float(re.search(r"null_score_diff_threshold = (\S+)", metrics)[1])
    unanswered = {qas_id for qas_id, text in predictions.items() if not text}
    assert unanswered == {qas_id for qas_id, odd in odds.items() if odd > threshold}


def test_an_official_run_is_continued(finished, tmp_path):
    """Google's optimizer skips the pooler, which has no gradient, and gives it no moments."""
    program = finished("squad_1")
    first, *_, last = program.row.steps[1:]
    state = tensors(program.out / f"model.ckpt-{first}")
    pooler = {f"bert/pooler/dense/{kind}" for kind in ("kernel", "bias")}
    weights = {n for n in state if n != "global_step" and not n.endswith(("/adam_m", "/adam_v"))}
    moments = {f"{name}/{slot}" for name in weights - pooler for slot in ("adam_m", "adam_v")}
    assert pooler <= weights
    assert state.keys() == {*weights, *moments, "global_step"}
    save_checkpoint(str(tmp_path / f"model.ckpt-{first}"), state)
    program.run(f"--output_dir={tmp_path}", "--do_train")
    expected = tensors(program.out / f"model.ckpt-{last}")
    found = tensors(tmp_path / f"model.ckpt-{last}")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
