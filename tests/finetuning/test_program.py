"""Registered tasks from Python: errors before training; the programs' tests train."""

from __future__ import annotations

import json

import pytest

from albert_tf import race
from albert_tf.finetuning.program import run_task
from albert_tf.finetuning.settings import FineTuningSettings


def test_data_errors_are_reported_before_training(tmp_path, config_file, toy_spm_model):
    (tmp_path / "dev.jsonl").write_text(json.dumps({"passage": "p", "question": "q"}) + "\n")
    settings = race.Settings(
        task_name="choice",
        data_dir=str(tmp_path),
        output_dir=str(tmp_path / "out"),
        albert_config_file=str(config_file),
        spm_model_file=toy_spm_model,
        max_seq_length=53,
        do_train=False,
    )
    with pytest.raises(ValueError, match=r"dev\.jsonl, line 1: .*options"):
        race.run(settings)


@pytest.mark.parametrize(
    ("name", "problem"),
    [("poetry", "task='poetry': expected one of"), ("embeddings", "no model is fine-tuned for it")],
)
def test_only_a_registered_task_with_training_is_run(name, problem):
    with pytest.raises(ValueError, match=problem):
        run_task(name, FineTuningSettings(output_dir="out"))
