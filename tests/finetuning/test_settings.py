"""Settings of fine-tuning programs."""

from __future__ import annotations

import dataclasses

import pytest

from albert_tf import classification, race, token_classification
from albert_tf.checkpoints import run_record
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.settings import NOTHING, describe, to_text


def test_several_learning_rates_are_checked_one_by_one():
    assert FineTuningSettings(output_dir="out", learning_rate=(1e-5, 2e-5)).learning_rate[1] == 2e-5
    with pytest.raises(ValueError, match="learning_rate"):
        FineTuningSettings(output_dir="out", learning_rate=(1e-5, -2e-5))


def test_phases_decide_which_splits_are_used():
    settings = FineTuningSettings(output_dir="out", do_train=True, do_predict=True)
    assert settings.splits == ["train", "test"]
    settings.require_a_phase()
    FineTuningSettings(output_dir="out", export_dir="export").require_a_phase()


def test_without_a_phase_a_run_trains_and_evaluates_unless_all_are_disabled():
    assert FineTuningSettings.make(output_dir="out").splits == ["train", "dev"]
    assert FineTuningSettings.make(output_dir="out", export_dir="x").splits == []
    settings = FineTuningSettings.make(output_dir="out", do_train=False)
    assert settings.splits == []
    with pytest.raises(ValueError, match="nothing to do: set one of --do_train, --do_eval,"):
        settings.require_a_phase()


@pytest.fixture(name="trained")
def make_trained(tmp_path):
    """Settings of a trained run in `tmp_path`, all different from the defaults."""
    values = {
        "task_name": "tsv",
        "text_a_column": "body",
        "has_header": True,
        "max_seq_length": 17,
        "do_lower_case": False,
        "use_pooled_output": False,
        "learning_rate": 2e-3,
    }
    run = classification.Settings(output_dir=str(tmp_path), data_dir="data", **values)
    texts = {
        field.name: to_text(getattr(run, field.name), field)
        for field in describe(classification.Settings)
        if field.decides != NOTHING
    }
    described = {"flags": {"data_dir": "data", "seed": 9}, "directory": "/work"}
    run_record.write_content(str(tmp_path), described | {"identity": texts})
    return values


def test_settings_default_to_those_of_the_trained_model(tmp_path, trained):
    made = classification.Settings.make(output_dir=str(tmp_path), do_predict=True)
    found = dataclasses.asdict(made)
    assert {name: found[name] for name in trained} == trained
    assert made.data_dir == "/work/data"
    assert made.text_b_column is None
    given = {"max_seq_length": 19, "data_dir": "other", "do_lower_case": True}
    made = classification.Settings.make(output_dir=str(tmp_path), do_eval=True, **given)
    assert {name: getattr(made, name) for name in given} == given


@pytest.mark.parametrize(
    ("program", "given"),
    [
        (classification, {"do_train": True, "task_name": "cola", "data_dir": "glue"}),
        (race, {"data_dir": "race"}),  # which trains by default
    ],
)
def test_training_ignores_settings_of_an_earlier_run(tmp_path, trained, program, given):
    given["output_dir"] = str(tmp_path)
    assert program.Settings.make(**given) == program.Settings(**given)


def test_settings_of_columns_are_numbers_in_token_classification(tmp_path):
    flags = {"label_column": -2, "token_column": 1, "tag_scheme": "bioes"}
    run_record.write_content(str(tmp_path), {"identity": {}, "flags": flags})
    flags = {"output_dir": str(tmp_path), "data_dir": "data", "do_eval": True}
    made = token_classification.Settings.make(**flags)
    assert (made.label_column, made.token_column, made.tag_scheme) == (-2, 1, "bioes")
