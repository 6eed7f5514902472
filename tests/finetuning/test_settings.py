"""Settings of fine-tuning programs, and how they are completed."""

from __future__ import annotations

import dataclasses
import json

import pytest

from albert_tf import classification, race, squad, token_classification
from albert_tf.checkpoints import finding, run_record
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.finetuning.settings import FineTuningSettings

DATA = {"data_dir": "data", "output_dir": "out"}
MRPC = {"task_name": "mrpc"}


@pytest.mark.parametrize(
    ("make", "values", "problem"),
    [
        (FineTuningSettings, {"learning_rate": (1e-5, -2e-5)}, "learning_rate"),
        (race.Settings, {"task_name": "glue"}, "task_name='glue': expected one of 'race', 'choi"),
        (
            token_classification.Settings,
            {"tag_scheme": "bio"},
            "tag_scheme='bio': expected one of 'auto', 'iob1'",
        ),
    ],
)
def test_values_are_checked_when_settings_are_made(make, values, problem):
    data = DATA if make is not FineTuningSettings else {"output_dir": "out"}
    with pytest.raises(ValueError, match=problem):
        make(**data, **values)


@pytest.mark.parametrize(
    ("program", "given", "splits"),
    [
        (classification, MRPC, ["train", "dev"]),
        (classification, MRPC | {"export_dir": "x"}, []),
        (classification, MRPC | {"do_train": True, "do_predict": True}, ["train", "test"]),
        (race, {}, ["train", "dev"]),
        (squad, {}, ["train", "dev"]),
        (squad, {"question": "who?", "context": "Nobody."}, ["question"]),
        (
            squad,
            {"question": "who?", "context": "Nobody.", "do_predict": True},
            ["test", "question"],
        ),
    ],
)
def test_phases_decide_which_splits_are_used(program, given, splits):
    """Without a phase, a run trains and evaluates."""
    data = DATA if program is not squad else {"output_dir": "out"}
    made = program.Settings.make(**data, **given)
    assert made.splits == splits
    made.require_a_phase()


def test_all_phases_may_be_disabled_but_not_on_a_command_line():
    settings = FineTuningSettings.make(output_dir="out", do_train=False)
    assert settings.splits == []
    with pytest.raises(ValueError, match="nothing to do: set one of --do_train, --do_eval,"):
        settings.require_a_phase()


# Settings of a trained run


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
    settings = json.loads(run_record.to_json(run.to_dict()))
    record = RunRecord(start={"directory": "/work"}, settings=settings)
    RunFolder(str(tmp_path)).write_record(record)
    return values


def test_settings_default_to_those_of_the_trained_model(tmp_path, trained):
    made = classification.Settings.make(output_dir=str(tmp_path), do_predict=True)
    found = dataclasses.asdict(made)
    assert {name: found[name] for name in trained} == trained
    assert (made.data_dir, made.text_b_column) == ("/work/data", None)
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
    settings = {"label_column": -2, "token_column": 1, "tag_scheme": "bioes"}
    RunFolder(str(tmp_path)).write_record(RunRecord(settings=settings))
    flags = {"output_dir": str(tmp_path), "data_dir": "data", "do_eval": True}
    made = token_classification.Settings.make(**flags)
    assert (made.label_column, made.token_column, made.tag_scheme) == (-2, 1, "bioes")


# The model's files


def make_settings(folder, **values):
    always = {"output_dir": f"{folder}/out", "albert_config_file": "albert_base"}
    return FineTuningSettings(**always | {"do_train": True} | values)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"init_checkpoint": "a", "albert_hub_module_handle": "b"}, "are mutually exclusive"),
        (
            {"albert_hub_module_handle": "https://x/1"},
            "modules are not downloaded. Unpack the module",
        ),
        ({"albert_config_file": None}, "--albert_config_file is required"),
    ],
)
def test_missing_or_ambiguous_weights_are_rejected(tmp_path, values, problem):
    with pytest.raises(ValueError, match=problem):
        make_settings(tmp_path, **values).completed()


@pytest.mark.parametrize("setting", ["init_checkpoint", "albert_hub_module_handle"])
def test_config_and_vocabulary_are_found_beside_the_weights(tmp_path, monkeypatch, setting):
    for name in ("albert_config.json", "30k-clean.model", "model.ckpt-best.index", "other.txt"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "model.ckpt-best.data-00000-of-00001").touch()
    weights = {setting: str(tmp_path), "spm_model_file": "from_tf_hub"}
    found = make_settings(tmp_path, albert_config_file=None, **weights).completed()
    assert (found.init_checkpoint, found.albert_hub_module_handle) == (str(tmp_path), None)
    assert found.albert_config_file == f"{tmp_path}/albert_config.json"
    assert found.spm_model_file == f"{tmp_path}/30k-clean.model"
    named = make_settings(tmp_path, **weights | {"spm_model_file": f"{tmp_path}/other.txt"})
    found = named.completed()
    assert (found.albert_config_file, found.spm_model_file) == (
        "albert_base",
        f"{tmp_path}/other.txt",
    )
    monkeypatch.chdir(tmp_path)
    here = {"init_checkpoint": "model.ckpt-best", "vocab_file": "other.txt"}
    found = make_settings(tmp_path, albert_config_file=None, **here).completed()
    assert found.albert_config_file == "./albert_config.json"


@pytest.mark.parametrize(
    ("setting", "name"), [("spm_model_file", "spiece.model"), ("vocab_file", "vocab.txt")]
)
def test_a_trained_run_has_config_and_vocabulary(tmp_path, setting, name):
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "words").write_text("[PAD]\n")
    finding.keep_vocabulary(str(tmp_path / "words"), setting == "spm_model_file", str(out))
    (out / "albert_config.json").write_text("{}")
    using = make_settings(tmp_path, albert_config_file=None)
    with pytest.raises(ValueError, match="--albert_config_file is required"):
        using.completed()
    (out / "model.ckpt-best.index").touch()
    found = using.completed()
    assert found.albert_config_file == f"{out}/albert_config.json"
    assert getattr(found, setting) == f"{out}/{name}"
    assert (out / name).read_text() == "[PAD]\n"
    finding.keep_vocabulary("gone", setting == "spm_model_file", str(out))  # one is there
