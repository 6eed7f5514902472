"""Google's export programs: the files that they read and write."""

from __future__ import annotations

import pytest
from albert import export_checkpoints, export_to_tfhub

from albert_tf.checkpoints.containers import open_checkpoint
from albert_tf.checkpoints.loading import read_weights
from albert_tf.checkpoints.store import save_checkpoint
from tests.checkpoints.checkpoint_samples import SHARED, random_weights

POOLER = "bert/pooler/dense/kernel"


@pytest.fixture(name="model_folder")
def make_model_folder(tmp_path):
    SHARED.to_json_file(str(tmp_path / "albert_config.json"))
    weights = random_weights(SHARED)
    save_checkpoint(str(tmp_path / "model.ckpt-best"), weights | {f"{POOLER}/adam_m": 1.0})
    encoder = {name: value for name, value in weights.items() if name.startswith("bert/")}
    save_checkpoint(str(tmp_path / "fine-tuned"), encoder)
    return tmp_path


def export(folder, *, name="model.ckpt-best"):
    target = str(folder / "new" / "model.ckpt")
    settings = export_checkpoints.ExportSettings(str(folder), target, name)
    return export_checkpoints.run(settings), target


def test_encoder_and_heads_are_written_without_slots_and_with_step_0(model_folder):
    text, target = export(model_folder)
    assert text == f"wrote {len(random_weights(SHARED))} variables to {target}"
    reader = open_checkpoint(target)
    assert set(reader.get_variable_to_shape_map()) == {*random_weights(SHARED), "global_step"}
    assert reader.get_tensor("global_step") == 0
    assert (read_weights(target)[POOLER] == random_weights(SHARED)[POOLER]).all()


def test_heads_that_the_checkpoint_lacks_are_skipped_and_reported(model_folder, caplog):
    _, target = export(model_folder, name="fine-tuned")
    names = open_checkpoint(target).get_variable_to_shape_map()
    assert not [name for name in names if name.startswith("cls/")]
    assert "Not in the checkpoint, so not exported: cls/predictions/output_bias" in caplog.text


def test_an_error_names_the_missing_checkpoint(model_folder):
    with pytest.raises(FileNotFoundError, match="absent"):
        export(model_folder, name="absent")


def test_a_module_is_built_from_the_files_of_googles_program(model_folder, monkeypatch):
    given = []
    monkeypatch.setattr(export_to_tfhub.convert_checkpoint, "run", given.append)
    export_to_tfhub.run(export_to_tfhub.Settings(str(model_folder), "hub"))
    (settings,) = given
    assert (settings.output, settings.output_format) == ("hub", "tf_hub")
    assert settings.input == f"{model_folder}/model.ckpt-best"
    assert settings.albert_config_file == f"{model_folder}/albert_config.json"
    assert settings.spm_model_file == f"{model_folder}/30k-clean.model"
