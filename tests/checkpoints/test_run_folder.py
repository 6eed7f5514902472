"""The folder of a run: its record, evaluations and metrics, which are only appended, and lock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from albert_tf.checkpoints.evaluations import Evaluation
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.model.config import AlbertConfig
from tests.checkpoints.test_run_record import KNOWN
from tests.conftest import ROOT


@pytest.fixture
def folder(tmp_path):
    return RunFolder(str(tmp_path))


# Record and config


def test_the_record_is_read_once_and_starts_are_appended(folder, tmp_path):
    assert folder.record == RunRecord()
    folder.write_record(KNOWN)
    assert folder.record is KNOWN
    assert RunFolder(folder.path).record == KNOWN
    (tmp_path / "runs.jsonl").write_text('{"cut sh')  # by a kill
    folder.add_start(KNOWN)
    folder.add_start(KNOWN)
    rows = list(map(json.loads, (tmp_path / "runs.jsonl").read_text().splitlines()))
    assert rows == [{**KNOWN.start, "settings": KNOWN.settings}] * 2


def test_a_folder_of_hugging_face_has_the_task_of_its_config(folder, tmp_path):
    path = tmp_path / "config.json"
    config = {"architectures": ["AlbertForSequenceClassification"]}
    path.write_text(json.dumps(config | {"id2label": {"1": "no"}}))
    with pytest.raises(ValueError, match=r"config\.json: id2label="):
        _ = folder.record
    path.write_text(json.dumps(config | {"id2label": {"0": "NO", "1": "YES"}}))
    found = folder.record
    assert (found.task_name, found.labels) == ("classification", ("NO", "YES"))
    # The record of a run comes first.
    vocabulary = {"vocabulary": FileRecord("97 entries")}
    RunFolder(folder.path).write_record(RunRecord(files=vocabulary))
    assert RunFolder(folder.path).record == RunRecord(files=vocabulary, task=found.task)
    RunFolder(folder.path).write_record(RunRecord(task={"name": "token_classification"}))
    assert RunFolder(folder.path).record.task == {"name": "token_classification"}


def test_the_config_is_kept_and_compared(folder, tmp_path):
    config = AlbertConfig(vocab_size=97, hidden_size=12, num_attention_heads=4)
    other = AlbertConfig(vocab_size=97, hidden_size=16, num_attention_heads=4)
    folder.check_config(other, "any.json")
    folder.keep_config(config)
    folder.keep_config(other)
    assert AlbertConfig.from_json_file(str(tmp_path / "albert_config.json")) == config
    folder.check_config(config, "any.json")
    with pytest.raises(ValueError, match=r"another model .*hidden_size is 12 there, but 16 in b"):
        folder.check_config(other, "b.json")


# Evaluations and metrics


def evaluation(step, loss, precision="float32", data="dev"):
    return Evaluation(step, {"loss": loss}, f"digest of {loss}", data, precision)


def test_the_last_line_of_a_step_counts_and_no_line_is_changed(folder, tmp_path):
    folder.add_metrics(3, {"loss": 2.0})
    folder.add_metrics(6, {"loss": 1.0})
    folder.add_evaluation(evaluation(3, 0.5))
    folder.add_evaluation(evaluation(6, 0.25))
    before = {name: (tmp_path / name).read_text() for name in os.listdir(tmp_path)}
    assert before.keys() == {"evaluations.jsonl", "metrics.jsonl"}
    # Resumed at step 3, and measured on other data.
    folder.add_metrics(6, {"loss": 1.25})
    folder.add_evaluation(evaluation(6, 0.375))
    others = [evaluation(6, 0.75, "bfloat16"), evaluation(6, 0.625, data="test")]
    for other in others:
        folder.add_evaluation(other)
    for name, text in before.items():
        assert (tmp_path / name).read_text().startswith(text)
    assert folder.evaluations() == [evaluation(3, 0.5), evaluation(6, 0.375), *others]
    first = evaluation(6, 0.25)  # if that is `model.ckpt-best`
    found = folder.evaluations([first.checkpoint, others[0].checkpoint])
    assert found == [evaluation(3, 0.5), first, evaluation(6, 0.375), *others]
    assert folder.metrics() == [
        {"step": 3, "loss": 2.0},
        {"step": 3, "eval/loss": 0.5},
        {"step": 6, "loss": 1.25},
        {"step": 6, "eval/loss": 0.625},
    ]


@pytest.mark.parametrize(("size", "scheme"), [(1, ""), (25, ""), (26, "file://")])
def test_the_part_of_a_line_that_a_kill_left_is_ignored_and_replaced(tmp_path, size, scheme):
    folder, path = RunFolder(f"{scheme}{tmp_path}"), tmp_path / "metrics.jsonl"
    lines = ['{"step": 2, "loss": 2.5}\n', '{"step": 4, "loss": 1.5}\n']
    path.write_text(lines[0] + lines[1][:size])
    is_whole = size >= len(lines[1])
    assert [row["step"] for row in folder.metrics()] == [2, 4][: 1 + is_whole]
    folder.add_metrics(4, {"loss": 1.5})
    assert path.read_text() == "".join(lines) + (lines[1] if is_whole else "")


# Checkpoints


def test_the_step_and_the_trained_model_follow_from_the_checkpoints(folder, tmp_path):
    for place in (folder, RunFolder(f"{tmp_path}/none")):
        assert (place.has_checkpoint, place.is_trained, place.checkpoint) == (False, False, None)
    for name in ("best", "3", "20", "interrupted_21", "0-0a1b2c3d", "best.damaged"):
        (tmp_path / f"model.ckpt-{name}.index").touch()
        assert folder.checkpoint == folder.file("model.ckpt-best")
    (tmp_path / "model.ckpt-best.index").unlink()
    assert folder.checkpoint == folder.file("model.ckpt-20")
    assert list(folder.checkpoints()) == [3, 20]
    assert list(folder.resumable()) == [3, 20, 21]


@pytest.mark.parametrize(
    ("names", "is_trained"),
    [
        (["0"], False),
        (["1"], True),
        (["best"], True),
        (["best", "0"], False),
        (["best", "interrupted_0"], False),
        (["best", "0", "interrupted_1"], True),
    ],
)
def test_a_model_is_trained_after_step_0(folder, tmp_path, names, is_trained):
    for name in names:
        (tmp_path / f"model.ckpt-{name}.index").touch()
    assert (folder.has_checkpoint, folder.is_trained) == (True, is_trained)


# The lock

HOLD = """
import os, sys, time
from albert_tf.checkpoints.run_folder import RunFolder
with RunFolder(sys.argv[1]).locked():
    if not os.fork():
        print(os.getpid(), flush=True)
    time.sleep(60)
"""


def test_one_process_has_the_lock_until_it_ends_even_if_a_child_lives_on(folder):
    with folder.locked():  # and released
        pass
    command = [sys.executable, "-c", HOLD, folder.path]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        child = int(holder.stdout.readline())
        with pytest.raises(ValueError, match="is in use by another process"), folder.locked():
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with folder.locked():
            pass
        os.kill(child, signal.SIGKILL)


def test_only_partial_files_of_a_killed_process_are_removed(folder, tmp_path):
    data = ".data-00000-of-00001"
    half = [".model.ckpt-20-0a1b2c3d.index", f".model.ckpt-20-0a1b2c3d{data}.tempstate17"]
    half += [f".model.ckpt-best-99999999{data}", "run.json.0a1b2c3d.tmp"]
    others = ["model.ckpt-20.index", ".model.ckpt-20.index", "model.ckpt-20-0a1b2c3d.index"]
    others += [".notes", "notes.tmp", "0a1b2c3d.tmp", ".lock"]
    for name in half + others:
        (tmp_path / name).write_text("x")
    with folder.locked():
        assert {path.name for path in tmp_path.iterdir()} == set(others)
        (tmp_path / half[0]).write_text("being written")
        with folder.locked():
            assert (tmp_path / half[0]).exists()


def test_saving_a_model_is_finished_only_when_the_folder_is_accepted(folder, tmp_path):
    hidden = tmp_path / ".replacing-0a1b2c3d"
    hidden.mkdir()
    for path, text in ((tmp_path, "{}"), (hidden, RunRecord(settings={"seed": 2}).to_json())):
        (path / "run.json").write_text(text)
    (hidden / "complete").write_text("run.json\n")
    with folder.locked():
        assert (tmp_path / "run.json").read_text() == "{}"
        assert folder.current.record.settings == {"seed": 2}
        folder.finish_saving()
        assert folder.current is folder
        assert folder.record.settings == {"seed": 2}
        assert {path.name for path in tmp_path.iterdir()} == {"run.json", ".lock"}


def test_examples_of_the_data_are_said_once(folder, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    rows = [{"text": "The river"}]
    folder.keep_examples([])
    assert folder.examples() == []
    for _ in range(2):
        folder.keep_examples(rows)
    assert folder.examples() == rows
    said = f"{tmp_path}/examples.jsonl has rows of the training data, for albert predict --web"
    assert caplog.messages == [said]


def test_folders_that_do_not_support_locking_are_not_locked(folder, monkeypatch, caplog):
    with RunFolder("gs://bucket/out").locked():
        pass
    with pytest.raises(FileNotFoundError), RunFolder(folder.file("none")).locked():
        pass

    def refuse(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with folder.locked():
        assert "not locked against other processes (No locks available)" in caplog.text
