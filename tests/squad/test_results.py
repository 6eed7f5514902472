"""The file of evaluations has the format of Google's SQuAD programs."""

from __future__ import annotations

import dataclasses

from albert_tf.checkpoints.evaluations import Evaluation, heading
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.squad.results import write_squad_results


def test_results_of_squad_have_the_format_of_its_programs(tmp_path):
    evaluations = [
        Evaluation(0, {"f1": 1.0 / 3, "exact_match": 0.0}, "a", "dev"),
        Evaluation(4, {"f1": 0.25, "exact_match": 0.5}, "b", "dev"),
        Evaluation(6, {"f1": 2.0, "exact_match": 1.0}, "c", "dev"),
    ]
    text = write_squad_results(RunFolder(str(tmp_path)), evaluations, "f1")
    assert (tmp_path / "eval_results.txt").read_text() == text
    data, index = ".data-00000-of-00001", ".index"
    saved = "".join(
        f"saved {tmp_path}/model.ckpt-%s{suffix} to {tmp_path}/model.ckpt-best{suffix}\n"
        for suffix in (data, index)
    )
    line = "=" * 50 + "\n"
    third = 1 / 3
    assert text == (
        f"exact_match = 0.0\nf1 = {third}\nglobal_step = 0\n"
        f"{saved % (0, 0)}best f1 = {third}\n{line}"
        f"exact_match = 0.5\nf1 = 0.25\nglobal_step = 4\nbest f1 = {third}\n{line}"
        f"exact_match = 1.0\nf1 = 2.0\nglobal_step = 6\n{saved % (6, 6)}best f1 = 2.0\n{line}"
        "exact_match = 1.0\nf1 = 2.0\nbest perf happened at step: 6"
    )
    in_bfloat16 = [dataclasses.replace(found, precision="bfloat16") for found in evaluations]
    write_squad_results(RunFolder(str(tmp_path)), in_bfloat16, "f1")
    assert (tmp_path / "eval_results.txt").read_text() == heading(in_bfloat16) + text
