"""Settings of the question-answering program."""

import pytest

from albert_tf import squad


def test_a_single_question_is_a_separate_split():
    settings = squad.Settings(output_dir="out", do_predict=True, question="who?", context="Nobody.")
    assert settings.splits == ["test", "question"]
    assert settings.with_a_phase() is settings


def test_a_command_line_without_a_phase_is_rejected():
    settings = squad.Settings(output_dir="out")
    assert settings.with_a_phase().splits == ["train", "dev"]
    with pytest.raises(ValueError, match="--export_dir, or --question and --context"):
        settings.require_a_phase()
