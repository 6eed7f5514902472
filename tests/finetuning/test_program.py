"""What is refused before TensorFlow is imported, and tasks without training."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from albert_tf.finetuning.program import run_task
from albert_tf.finetuning.settings import FineTuningSettings
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("name", "problem"),
    [("poetry", "task='poetry': expected one of"), ("embeddings", "no model is fine-tuned for it")],
)
def test_only_a_registered_task_with_training_is_run(name, problem):
    with pytest.raises(ValueError, match=problem):
        run_task(name, FineTuningSettings(output_dir="out"))


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
    (pretraining, records | {"eval_input_file": f"{folder}/none", "do_eval": True}),
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
