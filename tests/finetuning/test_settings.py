"""Settings of fine-tuning programs, and how they are completed."""

import dataclasses
import json

import pytest

from albert_tf import classification, pretraining, race, squad, token_classification
from albert_tf.checkpoints import model_folder, run_record
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.finetuning.settings import FineTuningSettings

MRPC = {"task_name": "mrpc"}


@pytest.mark.parametrize(
    ("program", "given", "splits"),
    [
        (classification, MRPC, ["train", "dev"]),
        (classification, MRPC | {"export_dir": "x"}, []),
        (classification, MRPC | {"do_train": True, "do_predict": True}, ["train", "test"]),
        (race, {}, ["train", "dev"]),
        (squad, {}, ["train", "dev"]),
    ],
)
def test_phases_decide_which_splits_are_used(program, given, splits):
    """Without a phase, a run trains and evaluates."""
    data = {"data_dir": "data"} if program is not squad else {}
    made = program.Settings.make(output_dir="out", **data, **given)
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


@pytest.mark.usefixtures("trained")
def test_training_ignores_settings_of_an_earlier_run(tmp_path):
    given = {"output_dir": str(tmp_path), "data_dir": "race"}
    assert race.Settings.make(**given) == race.Settings(**given)  # which trains by default


# The model's files


def make_settings(folder, **values):
    always = {"output_dir": f"{folder}/out", "albert_config_file": "albert_base"}
    return FineTuningSettings(**always | {"do_train": True} | values)


@pytest.mark.parametrize("setting", ["init_checkpoint", "albert_hub_module_handle"])
def test_config_and_vocabulary_are_found_beside_the_weights(tmp_path, setting):
    for name in ("albert_config.json", "30k-clean.model", "model.ckpt-best.index", "other.txt"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "model.ckpt-best.data-00000-of-00001").touch()
    weights = {setting: str(tmp_path), "spm_model_file": "from_tf_hub"}
    found = make_settings(tmp_path, albert_config_file=None, **weights).completed()
    assert (found.init_checkpoint, found.albert_hub_module_handle) == (str(tmp_path), None)
    assert found.albert_config_file == f"{tmp_path}/albert_config.json"
    assert found.spm_model_file == f"{tmp_path}/30k-clean.model"
    given = {"spm_model_file": f"{tmp_path}/other.txt", "albert_config_file": "albert_base"}
    found = make_settings(tmp_path, **weights | given).completed()
    assert {name: getattr(found, name) for name in given} == given


def test_a_trained_run_has_config_and_vocabulary(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "words").write_text("[PAD]\n")
    model_folder.keep_vocabulary(str(tmp_path / "words"), False, str(out))
    (out / "albert_config.json").write_text("{}")
    using = make_settings(tmp_path, albert_config_file=None)
    with pytest.raises(ValueError, match="--albert_config_file is required"):
        using.completed()
    (out / "model.ckpt-best.index").touch()
    found = using.completed()
    assert found.albert_config_file == f"{out}/albert_config.json"
    assert found.vocab_file == f"{out}/vocab.txt"
    assert (out / "vocab.txt").read_text() == "[PAD]\n"


# What is refused before anything is written


CLASSIFIER = {"task_name": "mrpc", "data_dir": "."}
TAGGER = {"data_dir": ".", "do_train": True}


@pytest.mark.parametrize(
    ("flag", "program", "values"),
    [
        ("input_file", pretraining, {"input_file": "none*"}),
        ("init_checkpoint", pretraining, {"input_file": "file", "init_checkpoint": "none"}),
        ("output_dir", pretraining, {"input_file": "file", "output_dir": "file/out"}),
        ("data_dir", classification, CLASSIFIER | {"data_dir": "none"}),
        ("data_dir", race, {"data_dir": "file"}),
        ("train_file", squad, {"train_file": "none"}),
        ("predict_file", squad, {"train_file": "file", "predict_file": "none"}),
        ("vocab_file", token_classification, TAGGER | {"vocab_file": "none"}),
        ("export_dir", token_classification, TAGGER | {"export_dir": "file/export"}),
        ("albert_config_file", token_classification, TAGGER | {"albert_config_file": "./none"}),
    ],
)
def test_wrong_paths_are_named(tmp_path, monkeypatch, flag, program, values):
    monkeypatch.chdir(tmp_path)
    for name in ("config.json", "file"):
        (tmp_path / name).touch()
    always = {"albert_config_file": "config.json", "output_dir": "out"}
    always |= {} if program is pretraining else {"vocab_file": "config.json"}
    with pytest.raises((ValueError, OSError), match=f"^--{flag}"):
        program.run(program.Settings(**always | values))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "file"]
