"""The model's files are found beside its weights; paths are checked without TensorFlow."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest

from albert_tf.checkpoints import finding
from albert_tf.finetuning import model_files
from albert_tf.finetuning.settings import FineTuningSettings
from tests.conftest import ROOT


def make_settings(**values):
    return FineTuningSettings(**{"output_dir": "out", "albert_config_file": "config.json"} | values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"init_checkpoint": "a", "albert_hub_module_handle": "b"}, "are mutually exclusive"),
        (
            {"albert_hub_module_handle": "https://x/1"},
            "modules are not downloaded. Unpack the module",
        ),
        ({"albert_config_file": None}, "--albert_config_file is required"),
    ],
)
def test_missing_or_ambiguous_weights_are_rejected(values, message):
    with pytest.raises(ValueError, match=message):
        model_files.find_model_files(make_settings(**values))


@pytest.mark.parametrize("setting", ["init_checkpoint", "albert_hub_module_handle"])
def test_config_and_vocabulary_are_found_beside_the_weights(tmp_path, setting):
    for name in ("albert_config.json", "30k-clean.model"):
        (tmp_path / name).write_text("{}")
    settings = make_settings(
        albert_config_file=None, spm_model_file="from_tf_hub", **{setting: str(tmp_path)}
    )
    found = model_files.find_model_files(settings)
    assert found.init_checkpoint == str(tmp_path)
    assert found.albert_config_file == f"{tmp_path}/albert_config.json"
    assert found.spm_model_file == f"{tmp_path}/30k-clean.model"
    named = dataclasses.replace(settings, albert_config_file="c", spm_model_file="s")
    found = model_files.find_model_files(named)
    assert (found.albert_config_file, found.spm_model_file) == ("c", "s")


def test_a_checkpoint_in_the_working_directory_has_its_config_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "albert_config.json").write_text("{}")
    settings = make_settings(
        albert_config_file=None, init_checkpoint="model.ckpt-best", vocab_file="vocab.txt"
    )
    assert model_files.find_model_files(settings).albert_config_file == "./albert_config.json"


@pytest.mark.parametrize(
    ("setting", "name"), [("spm_model_file", "spiece.model"), ("vocab_file", "vocab.txt")]
)
def test_a_trained_run_has_config_and_vocabulary(tmp_path, setting, name):
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "words").write_text("[PAD]\n")
    finding.keep_vocabulary(str(tmp_path / "words"), setting == "spm_model_file", str(out))
    (out / "albert_config.json").write_text("{}")
    using = make_settings(output_dir=str(out), albert_config_file=None)
    with pytest.raises(ValueError, match="--albert_config_file is required"):
        model_files.find_model_files(using)
    (out / "model.ckpt-best.index").touch()
    found = model_files.find_model_files(using)
    assert found.albert_config_file == f"{out}/albert_config.json"
    assert getattr(found, setting) == f"{out}/{name}"
    assert (out / name).read_text() == "[PAD]\n"
    finding.keep_vocabulary("gone", setting == "spm_model_file", str(out))  # one is there


WRONG_PATHS = """
import json, sys
from albert_tf import classification, pretraining, race, squad, token_classification

folder = sys.argv[1]
(config, file), messages = (f"{folder}/{name}" for name in ("config.json", "file")), []
model = {"albert_config_file": config, "vocab_file": config, "output_dir": f"{folder}/out"}
records = {"input_file": file, "albert_config_file": config, "output_dir": f"{folder}/out"}
data = model | {"data_dir": folder, "do_train": True}
for program, values in [
    (pretraining, records | {"input_file": f"{folder}/none*"}),
    (pretraining, records | {"init_checkpoint": f"{folder}/none"}),
    (pretraining, records | {"eval_input_file": "http://host/none", "do_eval": True}),
    (pretraining, records | {"output_dir": f"{file}/out"}),
    (classification, data | {"task_name": "mrpc", "init_checkpoint": f"{folder}/none/model.ckpt"}),
    (classification, data | {"task_name": "mrpc", "data_dir": f"{folder}/none"}),
    (race, data | {"data_dir": file}),
    (squad, model | {"train_file": f"{folder}/none.json"}),
    (squad, model | {"train_file": file, "predict_file": f"{folder}/none.json"}),
    (token_classification, data | {"vocab_file": f"{folder}/none.txt"}),
    (token_classification, data | {"data_dir": f"{folder}/none"}),
    (token_classification, data | {"export_dir": f"{file}/export"}),
    (token_classification, data | {"albert_config_file": f"{folder}/none.json"}),
]:
    try:
        program.run(program.Settings(**values))
    except (ValueError, OSError) as error:
        messages.append(str(error))
print(json.dumps({"messages": messages, "tensorflow": "tensorflow" in sys.modules}))
"""


def test_wrong_paths_are_reported_before_tensorflow_is_imported(tmp_path):
    for name in ("config.json", "file"):
        (tmp_path / name).touch()
    done = subprocess.run(
        [sys.executable, "-c", WRONG_PATHS, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert not found["tensorflow"]
    names = ["input_file", "init_checkpoint", "eval_input_file", "output_dir", "init_checkpoint"]
    names += ["data_dir", "data_dir", "train_file", "predict_file"]
    names += ["vocab_file", "data_dir", "export_dir", "albert_config_file"]
    assert [message.split(":")[0] for message in found["messages"]] == [f"--{n}" for n in names]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "file"]
