"""run_pretraining.py with the flags of Google's and albert_zh's command lines."""

from __future__ import annotations

import dataclasses

import pytest

from albert_tf import pretraining
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.cli import flags

NEEDED = ["--input_file=records", "--output_dir=out"]


def test_albert_zhs_spellings_are_accepted():
    settings = flags.parse(
        pretraining.Settings,
        [
            *NEEDED,
            "--bert_config_file=c.json",
            "--do_train=True",
            "--do_eval=True",
            "--export_dir=x",
            "--master=",
            "--num_tpu_cores=8",
            "--iterations_per_loop=2",
        ],
    )
    assert settings.albert_config_file == "c.json"
    assert settings.do_train
    assert settings.do_eval


def test_a_config_is_required_unless_it_is_beside_the_weights(tmp_path):
    settings = flags.parse(pretraining.Settings, NEEDED)
    with pytest.raises(ValueError, match="--albert_config_file is required"):
        pretraining.run(settings)
    save_checkpoint(f"{tmp_path}/model.ckpt-best", {"x": [0.0]})
    settings = dataclasses.replace(settings, init_checkpoint=str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no config found"):
        pretraining.run(settings)
    (tmp_path / "albert_config.json").write_text("{}")
    (tmp_path / "records").touch()
    settings = dataclasses.replace(settings, input_file=f"{tmp_path}/records")
    assert settings.completed().albert_config_file == f"{tmp_path}/albert_config.json"
