"""Settings of the question-answering program."""

from albert_tf import squad


def test_a_single_question_is_a_separate_split():
    settings = squad.Settings(output_dir="out", do_predict=True, question="who?", context="Nobody.")
    assert settings.splits == ["test", "question"]
    assert settings.with_a_phase() is settings


def test_a_question_is_a_phase():
    assert squad.Settings.make(output_dir="out").splits == ["train", "dev"]
    asked = squad.Settings.make(output_dir="out", question="who?", context="Nobody.")
    assert asked.splits == ["question"]
