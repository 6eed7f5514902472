"""Multiple choice from Python: errors before training; commands/test_run_race.py trains."""

from __future__ import annotations

import json

import pytest

from albert_tf import race


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
