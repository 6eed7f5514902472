"""Settings of the multiple-choice program."""

import pytest

from albert_tf import race


def test_the_settings_are_public_and_train_by_default():
    settings = race.Settings(data_dir="data", output_dir="out")
    assert settings.splits == ["train", "dev"]
    with pytest.raises(ValueError, match="task_name='glue': expected one of 'race', 'choice'"):
        race.Settings(data_dir="data", output_dir="out", task_name="glue")
