"""The task in a file of its own: its whole life, from training to the web page."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys

import my_task
import pytest

import albert_tf
from albert_tf import inference, tasks
from albert_tf.cli.flags import parse
from albert_tf.finetuning.program import run_task
from albert_tf.inference.model_folder import ModelFolder
from tests.conftest import ROOT

pytestmark = pytest.mark.ci

FILE = ROOT / "examples" / "my_task.py"
SENTENCES = {"boats": "The boat waits at the landing.", "rain": "The rain falls on the town."}


@pytest.fixture(scope="module", name="data_dir")
def write_topics(tmp_path_factory):
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
def always(data_dir, pretrained_dir):
    return [
        *(f"--data_dir={data_dir}", "--labels=boats,rain", f"--init_checkpoint={pretrained_dir}"),
        *("--max_seq_length=17", "--train_batch_size=5", "--precision=float32", "--noplots"),
        *("--learning_rate=0.01", "--train_step=6", "--save_checkpoints_steps=3"),
    ]


@pytest.fixture(name="run")
def run_with(always):
    return lambda *flags: run_task("multi_label", parse(my_task.Settings, [*always, *flags]))


@pytest.fixture(scope="module")
def trained(tmp_path_factory, always):
    """The folder of a run from the command line, with its export."""
    folder = tmp_path_factory.mktemp("multi_label")
    phases = ["--do_train", "--do_eval", "--do_predict", f"--export_dir={folder / 'export'}"]
    command = [sys.executable, FILE, *always, *phases, f"--output_dir={folder}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("f1 = ")
    return folder


def test_the_example_is_short():
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= 80


def test_a_run_is_not_continued_with_other_labels(run, trained, tmp_path):
    out = shutil.copytree(trained, tmp_path / "out")
    with pytest.raises(ValueError, match="contains a run with other settings"):
        run("--do_train", "--do_eval", f"--output_dir={out}", "--labels=rain,boats")


def test_a_run_is_not_used_with_another_file_of_the_task(always, trained, tmp_path):
    """The threshold of the answers is in it, and so may be the loss."""
    out, file = shutil.copytree(trained, tmp_path / "out"), tmp_path / "my_task.py"
    shutil.rmtree(out / "export")
    text = FILE.read_text(encoding="utf-8")
    assert "> 0.5" in text
    file.write_text(text.replace("0.5", "0.1"), encoding="utf-8")

    def run(*flags):
        command = [sys.executable, file, *always, *flags, f"--output_dir={out}"]
        path = {"PYTHONPATH": str(ROOT)}
        return subprocess.run(command, env=os.environ | path, capture_output=True, text=True)

    refused = run("--do_eval")
    assert refused.returncode == 1
    for named in ("task module", str(file), str(FILE)):
        assert named in refused.stderr
    shutil.copy(FILE, file)  # the same content elsewhere
    assert run("--do_eval").returncode == 0


def read(path):
    return list(map(json.loads, path.read_text().splitlines()))


def test_all_doors_give_the_answers_of_the_program(data_dir, trained, predict):
    texts = [row["text"] for row in read(data_dir / "test.jsonl")]
    expected = read(trained / "test_predictions.jsonl")
    assert set(expected[0]) == {"labels", "probabilities"}
    model, export = f"--model_dir={trained}", f"--model_dir={trained / 'export'}"
    flags = [f"--task_module={FILE}", *(f"--text={text}" for text in texts)]
    for found in (
        predict(model, *flags),
        predict(export, *flags, "--task=multi_label"),
        albert_tf.load_predictor(str(trained))(texts),
    ):
        assert [row["labels"] for row in found] == [row["labels"] for row in expected]
        for row, wanted in zip(found, expected, strict=True):
            assert row["probabilities"] == pytest.approx(wanted["probabilities"], abs=1e-5)


def test_the_web_page_has_the_task(trained):
    web = pytest.importorskip("albert_tf.inference.web", reason="needs the extra web")
    settings = inference.Settings(model_dir=str(trained), web=True)

    async def make():  # in the event loop that Gradio looks for
        return web.make_form(settings, ModelFolder(str(trained)), "multi_label")

    form = asyncio.run(make())
    shown, result = form.fn("It rains.", "")
    assert set(shown) == set(result["probabilities"]) == set(SENTENCES)


def test_a_recorded_task_must_be_registered(trained, predict, monkeypatch):
    monkeypatch.setattr(tasks, "_rows", {spec.name: spec for spec in tasks._BUILT_IN})
    problem = ": task='multi_label': expected one of .*--task_module"
    with pytest.raises(ValueError, match=problem):
        predict(f"--model_dir={trained}", "--text=It rains.")
    (row,) = predict(f"--model_dir={trained}", "--text=It rains.", "--embeddings")
    assert set(row) == {"embedding"}


def test_a_label_that_is_not_listed_is_an_error(run, tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "Snow.", "labels": ["snow"]}\n')
    with pytest.raises(ValueError, match=r"train\.jsonl, line 1: labels \['snow'\]: expected some"):
        run("--do_train", f"--data_dir={tmp_path}", f"--output_dir={tmp_path / 'out'}")
