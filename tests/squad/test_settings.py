"""Settings of the question answering program."""

import pytest

from albert_tf import squad


def test_a_single_question_is_a_split_of_its_own():
    settings = squad.Settings(output_dir="out", do_predict=True, question="who?", context="Nobody.")
    assert settings.splits == ["test", "question"]
    assert settings.with_a_phase() is settings


def test_a_command_line_that_asks_for_nothing_is_refused():
    settings = squad.Settings(output_dir="out")
    assert settings.with_a_phase().splits == ["train", "dev"]
    with pytest.raises(ValueError, match="--export_dir, or --question and --context"):
        settings.require_a_phase()
