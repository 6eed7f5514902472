"""Settings of fine-tuning programs."""

from __future__ import annotations

import pytest

from albert_tf.finetuning.settings import FineTuningSettings


def test_several_learning_rates_are_checked_one_by_one():
    assert FineTuningSettings(output_dir="out", learning_rate=(1e-5, 2e-5)).learning_rate[1] == 2e-5
    with pytest.raises(ValueError, match="learning_rate"):
        FineTuningSettings(output_dir="out", learning_rate=(1e-5, -2e-5))


def test_phases_decide_which_splits_are_used():
    settings = FineTuningSettings(output_dir="out", do_train=True, do_predict=True)
    assert settings.splits == ["train", "test"]
    settings.require_a_phase()
    FineTuningSettings(output_dir="out", export_dir="export").require_a_phase()


def test_a_command_line_that_asks_for_nothing_is_refused():
    settings = FineTuningSettings(output_dir="out")
    assert settings.splits == []
    with pytest.raises(ValueError, match="nothing to do: give --do_train, --do_eval or"):
        settings.require_a_phase()
