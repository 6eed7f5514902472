"""Programs under other projects' names run the corresponding programs of this repository."""

from __future__ import annotations

import runpy
import sys

import pytest
from albert import export_checkpoints, export_to_tfhub

from albert_tf.checkpoints.containers import open_checkpoint
from albert_tf.checkpoints.loading import read_weights
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.cli import programs
from tests.checkpoints.checkpoint_samples import SHARED, random_weights
from tests.conftest import ROOT

POOLER = "bert/pooler/dense/kernel"


@pytest.mark.parametrize(
    ("stub", "name", "flags"),
    [
        ("google/albert/run_squad_v1.py", "run-squad", ["--noversion_2_with_negative"]),
        ("google/albert/run_squad_v2.py", "run-squad", ["--version_2_with_negative"]),
        ("albert_zh/create_pretraining_data.py", "create-pretraining-data", []),
        ("albert_zh/run_pretraining.py", "run-pretraining", []),
        ("albert_zh/run_pretraining_google.py", "run-pretraining", ["--one_hot_segments"]),
        ("albert_zh/run_classifier.py", "run-classifier", []),
        ("albert_zh/run_classifier_clue.py", "run-classifier", []),
        (
            "albert_zh/run_classifier_sp_google.py",
            "run-classifier",
            ["--max_seq_length=512", "--num_train_epochs=3"],
        ),
    ],
)
def test_a_stub_inserts_its_flags_before_those_of_the_command_line(monkeypatch, stub, name, flags):
    started = []
    monkeypatch.setattr(programs, "start", lambda settings, *_: started.append(settings))
    monkeypatch.setattr(sys, "argv", [stub, "--seed=7"])
    runpy.run_path(str(ROOT / "compat" / stub), run_name="__main__")
    assert started == [programs.PROGRAMS[name].load().Settings]
    assert sys.argv[1:] == [*flags, "--seed=7"]


@pytest.fixture
def model_folder(tmp_path):
    SHARED.to_json_file(str(tmp_path / "albert_config.json"))
    weights = random_weights(SHARED)
    save_checkpoint(str(tmp_path / "model.ckpt-best"), weights | {f"{POOLER}/adam_m": 1.0})
    return tmp_path


def test_encoder_and_heads_are_exported_without_slots_and_with_step_0(model_folder):
    target = str(model_folder / "new" / "model.ckpt")
    settings = export_checkpoints.ExportSettings(str(model_folder), target, "model.ckpt-best")
    text = export_checkpoints.run(settings)
    assert text == f"wrote {len(random_weights(SHARED))} variables to {target}"
    reader = open_checkpoint(target)
    assert set(reader.get_variable_to_shape_map()) == {*random_weights(SHARED), "global_step"}
    assert reader.get_tensor("global_step") == 0
    assert (read_weights(target)[POOLER] == random_weights(SHARED)[POOLER]).all()


def test_a_module_is_built_from_the_files_of_googles_program(model_folder, monkeypatch):
    given = []
    monkeypatch.setattr(export_to_tfhub.convert, "run", given.append)
    export_to_tfhub.run(export_to_tfhub.Settings(str(model_folder), "hub"))
    (settings,) = given
    assert (settings.output, settings.output_format) == ("hub", "tf_hub")
    assert settings.input == f"{model_folder}/model.ckpt-best"
    assert settings.albert_config_file == f"{model_folder}/albert_config.json"
    assert settings.spm_model_file == f"{model_folder}/30k-clean.model"
