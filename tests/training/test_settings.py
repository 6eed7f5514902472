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


@pytest.mark.parametrize(
    ("group", "name", "most"),
    [
        (DeviceSettings, "threads", 4096),
        (TrainingSettings, "train_batch_size", 1 << 20),
        (TrainingSettings, "seed", 2**32 - 1),
    ],
)
def test_values_that_end_in_errors_of_libraries_are_rejected(group, name, most):
    assert getattr(group(**{name: most}), name) == most
    with pytest.raises(ValueError, match=f"^{name}={most + 1}: expected {most} or less"):
        group(**{name: most + 1})


def test_defaults_are_allowed_values():
    ModelSettings(output_dir="out")
    DeviceSettings()
    TrainingSettings()
