"""Settings of training programs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from albert_tf.training.settings import DeviceSettings, ModelSettings, TrainingSettings
from tests.conftest import ROOT


def test_settings_need_no_tensorflow():
    code = (
        "import sys, albert_tf.training.settings, albert_tf.finetuning.settings\n"
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_init_checkpoint_is_only_needed_by_a_new_run(tmp_path):
    settings = ModelSettings(output_dir=str(tmp_path), init_checkpoint=f"{tmp_path}/none")
    with pytest.raises(FileNotFoundError, match=r"^--init_checkpoint: .*none: no such checkpoint"):
        settings.check_paths()
    (tmp_path / "model.ckpt-5.index").touch()
    settings.check_paths()


def test_more_threads_than_any_machine_runs_are_rejected():
    DeviceSettings(threads=4096)
    with pytest.raises(ValueError, match="threads=1000000: expected 4096 or less"):
        DeviceSettings(threads=1_000_000)


def test_defaults_are_allowed_values():
    ModelSettings(output_dir="out")
    DeviceSettings()
    TrainingSettings()
