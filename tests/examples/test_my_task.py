"""A task in a file of the user: its whole life, from training to predictions."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
import sys

import my_task
import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints import tasks
from albert_tf.cli.flags import parse
from albert_tf.finetuning import registry, run_task
from tests.conftest import ROOT

pytestmark = pytest.mark.ci

FILE = ROOT / "examples" / "my_task.py"
SENTENCES = {"boats": "The boat waits at the landing.", "rain": "The rain falls on the town."}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    data, rng = tmp_path_factory.mktemp("topics"), random.Random(5)
    for split, size in (("train", 23), ("dev", 11), ("test", 7)):
        rows = []
        for _ in range(size):
            labels = [label for label in SENTENCES if rng.random() < 0.5]
            text = " ".join(SENTENCES[label] for label in labels) or "They measured it once."
            rows.append({"text": text} | ({} if split == "test" else {"labels": labels}))
        (data / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return data


@pytest.fixture(scope="module")
def run(data_dir, pretrained_dir):
    """Runs the task with flags, which override others."""

    def run(*flags, module=my_task):
        always = [
            *(f"--data_dir={data_dir}", "--labels=boats,rain", "--max_seq_length=17"),
            *(f"--init_checkpoint={pretrained_dir}", "--train_batch_size=5", "--noplots"),
            *("--precision=float32", "--learning_rate=0.01", "--train_step=6"),
            *("--save_checkpoints_steps=3", *flags),
        ]
        return run_task("multi_label", parse(module.Settings, always))

    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory, run):
    """The folder of a run with its export."""
    folder = tmp_path_factory.mktemp("multi_label")
    phases = ("--do_train", "--do_eval", "--do_predict", f"--export_dir={folder / 'export'}")
    run(*phases, f"--output_dir={folder}")
    return folder


def test_a_run_is_not_continued_with_other_labels(run, trained, tmp_path):
    out = shutil.copytree(trained, tmp_path / "out")
    with pytest.raises(ValueError, match="contains a run with other settings"):
        run("--do_train", "--do_eval", f"--output_dir={out}", "--labels=rain,boats")


@pytest.mark.parametrize("threshold", ["0.5", "0.1"])
def test_a_model_is_evaluated_by_the_file_that_trained_it_alone(
    run, trained, tmp_path, threshold, monkeypatch
):
    """The threshold of the answers is in the file, and so may be the loss."""
    monkeypatch.setattr(registry, "_users", dict(registry._users))
    monkeypatch.setattr(tasks, "_head_settings", dict(tasks._head_settings))
    out, file = shutil.copytree(trained, tmp_path / "out"), tmp_path / "copied_task.py"
    shutil.rmtree(out / "export")
    text = FILE.read_text(encoding="utf-8")
    file.write_text(text.replace("> 0.5", f"> {threshold}"), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("copied_task", file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "copied_task", module)
    spec.loader.exec_module(module)
    if threshold == "0.5":  # the same content elsewhere
        assert "f1" in run("--do_eval", f"--output_dir={out}", module=module).metrics
    else:
        with pytest.raises(ValueError, match=rf"(?s)task module.*{FILE}.*{file}|{file}.*{FILE}"):
            run("--do_eval", f"--output_dir={out}", module=module)


def read(path):
    return list(map(json.loads, path.read_text().splitlines()))


def test_all_doors_give_the_answers_of_the_program(data_dir, trained, predict):
    texts = [row["text"] for row in read(data_dir / "test.jsonl")]
    expected = read(trained / "test_predictions.jsonl")
    assert set(expected[0]) == {"labels", "probabilities"}
    numbers = [number for row in expected for number in row["probabilities"].values()]
    assert list(map(str, numbers)) == [str(np.float32(number)) for number in numbers]
    flags = [f"--task_module={FILE}", *(f"--text={text}" for text in texts)]
    for found in (
        predict(f"--model_dir={trained}", *flags),
        predict(f"--model_dir={trained / 'export'}", *flags, "--task=multi_label"),
        albert_tf.load_predictor(str(trained))(texts),
    ):
        assert [row["labels"] for row in found] == [row["labels"] for row in expected]
        for row, wanted in zip(found, expected, strict=True):
            assert row["probabilities"] == pytest.approx(wanted["probabilities"], abs=1e-5)


def test_a_recorded_task_must_be_registered(trained, predict, monkeypatch):
    monkeypatch.setattr(registry, "_users", {})
    monkeypatch.setattr(tasks, "_head_settings", dict.fromkeys(tasks.NAMES, ()))
    problem = ": task='multi_label': expected one of .*--task_module"
    with pytest.raises(ValueError, match=problem):
        predict(f"--model_dir={trained}", "--text=It rains.")
    (row,) = predict(f"--model_dir={trained}", "--text=It rains.", "--task=embeddings")
    assert set(row) == {"embedding"}


def test_a_row_that_the_task_refuses_is_named_by_file_and_line(run, tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "Snow.", "labels": ["snow"]}\n')
    with pytest.raises(ValueError, match=r"train\.jsonl, line 1: labels \['snow'\]: expected some"):
        run("--do_train", f"--data_dir={tmp_path}", f"--output_dir={tmp_path / 'out'}")
