"""The `README.md` of a model that is converted to Hugging Face."""

from __future__ import annotations

import json

import pytest

from albert_tf.checkpoints import containers
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.export.convert import Settings, run
from albert_tf.model.config import AlbertConfig
from tests.checkpoints.checkpoint_samples import SHARED, random_arrays, random_weights
from tests.checkpoints.test_convert import make_input

pytest.importorskip("tokenizers", reason="needs the extra hf")
COMMAND = ["run_classifier.py", "--task_name=tsv", "--data_dir=my reviews"]
START = {"command": COMMAND, "versions": {"albert_tf": "0.1.0", "numpy": "2.0"}}


def convert(source, tmp_path):
    list(run(Settings(str(source), str(tmp_path / "hf"), "huggingface")))
    card = tmp_path / "hf" / "README.md"
    return card.read_text(encoding="utf-8") if card.exists() else None


def write_run(folder, labels, **record):
    head = random_arrays({"output_weights": (len(labels), 12), "output_bias": (len(labels),)})
    weights = {n: x for n, x in random_weights(SHARED).items() if n.startswith("bert/")} | head
    make_input(folder, weights, SHARED)
    task = {"name": "classification", "labels": labels, "selection_metric": "eval_accuracy"}
    RunFolder(str(folder)).write_record(RunRecord(task=task, **record))


def test_the_card_has_what_the_run_recorded(tmp_path):
    labels = ["good", "a|b", "two\nlines"]
    settings = {"task_name": "tsv", "data_dir": "my reviews", "learning_rate": 2e-5}
    write_run(tmp_path / "run", labels, start=START, settings=settings)
    digest = containers.digest(str(tmp_path / "run" / "model.ckpt-best"))
    entry = {"step": 30, "checkpoint": digest, "measured_on": "dev", "precision": "float32"}
    metrics = {"eval_accuracy": 0.875, "eval_loss": 0.25}
    line = json.dumps(entry | {"metrics": metrics}) + "\n"
    (tmp_path / "run" / "evaluations.jsonl").write_text(line)
    card = convert(tmp_path / "run", tmp_path)
    lines = card.splitlines()
    front, text = card.split("---\n")[1:]
    assert "pipeline_tag: text-classification" in front.splitlines()
    assert lines.count("# ALBERT for classification") == 1
    assert "Trained with albert-tf2 0.1.0." in text
    assert [line for line in lines if line[:2] in ("0.", "1.", "2.")] == [
        "0. `good`",
        "1. `a\\|b`",
        '2. `"two\\nlines"`',
    ]
    assert "| eval_accuracy | 0.8750 |" in lines
    assert "checkpoint at step 30" in text
    assert "| data_dir | `my reviews` |" in lines
    assert "run_classifier.py --task_name=tsv '--data_dir=my reviews'" in lines


def test_a_model_of_keras_has_the_task_and_the_labels_alone(tmp_path):
    write_run(tmp_path / "saved", ["no", "yes"])
    card = convert(tmp_path / "saved", tmp_path)
    assert "1. `yes`" in card
    assert "Saved with albert-tf2." in card
    assert not any(title in card for title in ("## Scores", "## Data", "## Command"))


def test_a_released_model_has_no_card(tmp_path):
    config = AlbertConfig.from_dict(SHARED.to_dict())
    make_input(tmp_path / "release", random_weights(config), config)
    assert convert(tmp_path / "release", tmp_path) is None
