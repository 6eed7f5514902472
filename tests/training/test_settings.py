"""Settings of training programs."""

from __future__ import annotations

import subprocess
import sys

from albert_tf.training.settings import DeviceSettings, ModelSettings, TrainingSettings
from tests.conftest import ROOT


def test_settings_need_no_tensorflow():
    code = (
        "import sys, albert_tf.training.settings, albert_tf.finetuning.settings\n"
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_defaults_are_allowed_values():
    ModelSettings(output_dir="out")
    DeviceSettings()
    TrainingSettings()
