"""Settings of fine-tuning programs."""

from __future__ import annotations

import pytest

from albert_tf.finetuning.settings import FineTuningSettings


def test_several_learning_rates_are_checked_one_by_one():
    assert FineTuningSettings(output_dir="out", learning_rate=(1e-5, 2e-5)).learning_rate[1] == 2e-5
    with pytest.raises(ValueError, match="learning_rate"):
        FineTuningSettings(output_dir="out", learning_rate=(1e-5, -2e-5))
