"""The folder of a run: its record, evaluations and metrics, which are only appended, and lock."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from albert_tf.checkpoints.evaluations import Evaluation
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.config import AlbertConfig
from tests.conftest import ROOT

SCRIPT = """
import os, sys, time
from albert_tf.checkpoints.run_folder import RunFolder
folder = RunFolder(sys.argv[1])
"""
HOLD = f"{SCRIPT}with folder.locked():\n    print('held', flush=True)\n    time.sleep(60)\n"
TRY = f"""{SCRIPT}
try:
    with folder.locked():
        print('free')
except ValueError as error:
    print(error)
"""
FORK = f"""{SCRIPT}
with folder.locked():
    child = os.fork()
    if not child:
        print(os.getpid(), flush=True)
        time.sleep(60)
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def folder(tmp_path):
    return RunFolder(str(tmp_path))


# Record and config


def test_the_record_is_read_once_and_starts_are_appended(folder, tmp_path):
    assert folder.record == RunRecord()
    record = RunRecord(
        start={"command": ["run_pretraining.py"]},
        settings={"rate": 0.5, "rates": [1e-5, 0.5], "plots": True, "data": None},
        config={"vocab_size": 97},
        files={"vocabulary": FileRecord("97 entries, sha256 0a", "/a/b")},
        task={"name": "spans", "labels": ["no", "可"]},
    )
    folder.write_record(record)
    assert folder.record is record
    assert RunFolder(folder.path).record == record
    (tmp_path / "runs.jsonl").write_text('{"cut sh')  # by a kill
    folder.add_start(record)
    folder.add_start(record)
    rows = list(map(json.loads, (tmp_path / "runs.jsonl").read_text().splitlines()))
    assert rows == [{"command": ["run_pretraining.py"], "settings": dict(record.settings)}] * 2
    assert len(list(tmp_path.iterdir())) == 2


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


@pytest.mark.parametrize("size", range(1, 27))
def test_the_part_of_a_line_that_a_kill_left_is_ignored_and_replaced(folder, tmp_path, size):
    lines = ['{"step": 2, "loss": 2.5}\n', '{"step": 4, "loss": 1.5}\n']
    path = tmp_path / "metrics.jsonl"
    path.write_text(lines[0] + lines[1][:size])
    is_whole = size >= len(lines[1])
    assert [row["step"] for row in folder.metrics()] == [2, 4][: 1 + is_whole]
    folder.add_metrics(4, {"loss": 1.5})
    assert path.read_text() == "".join(lines) + (lines[1] if is_whole else "")
    assert folder.metrics() == list(map(json.loads, lines))


def test_a_remote_file_is_appended_to_as_well(tmp_path):
    folder = RunFolder(f"file://{tmp_path}")
    for step in (2, 4):
        folder.add_metrics(step, {"loss": 2.5})
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 2
    assert [row["step"] for row in folder.metrics()] == [2, 4]


FIELDS = '"checkpoint": "", "measured_on": "dev"}\n'


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("metrics", '{"step": 4, "los}\n'),
        ("metrics", '{"loss": 1.5}\n'),
        ("metrics", '{"step": "4"}\n'),
        ("metrics", "5\n"),
        ("evaluations", '{"step": 3}\n'),
        ("evaluations", f'{{"step": 3, "metrics": [], {FIELDS}'),
        ("evaluations", f'{{"step": null, "metrics": {{}}, {FIELDS}'),
    ],
)
def test_the_error_for_a_damaged_file_names_the_line(folder, tmp_path, name, line):
    first = f'{{"step": 2, "metrics": {{"loss": 1}}, {FIELDS}'
    (tmp_path / f"{name}.jsonl").write_text(first + line)
    with pytest.raises(ValueError, match=rf"{name}\.jsonl, line 2: "):
        getattr(folder, name)()


def test_evaluations_without_a_recorded_precision_are_read(folder, tmp_path):
    text = f'{{"step": 2, "metrics": {{"loss": 1}}, {FIELDS}'
    (tmp_path / "evaluations.jsonl").write_text(text)
    assert folder.evaluations() == [Evaluation(2, {"loss": 1}, "", "dev", None)]


# Checkpoints


def test_the_step_and_the_trained_model_follow_from_the_checkpoints(folder, tmp_path):
    assert (folder.step, folder.trained) == (None, None)
    assert (RunFolder(f"{tmp_path}/none").step, folder.checkpoints()) == (None, {})
    found = []
    for name in ("best", "3", "20", "interrupted_21", "0-0a1b2c3d", "best.damaged"):
        (tmp_path / f"model.ckpt-{name}.index").touch()
        found.append((folder.step, os.path.basename(folder.trained)))
    assert (
        found
        == [(1, "model.ckpt-best"), (3, "model.ckpt-best"), (20, "model.ckpt-best")]
        + [(21, "model.ckpt-best")] * 3
    )
    (tmp_path / "model.ckpt-best.index").unlink()
    assert folder.trained == folder.file("model.ckpt-20")
    assert list(folder.checkpoints()) == [3, 20]
    assert list(folder.resumable()) == [3, 20, 21]


# The lock


def attempt(folder):
    """Returns "free" if another process can lock the folder, else its error message."""
    done = subprocess.run(
        [sys.executable, "-c", TRY, folder.path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def start(program, folder):
    return subprocess.Popen(
        [sys.executable, "-c", program, folder.path], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def test_one_process_has_the_lock_until_its_outermost_block_ends(folder, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    with contextlib.suppress(RuntimeError), folder.locked():
        with RunFolder(str(tmp_path / "link")).locked():
            pass
        assert attempt(folder).startswith(f"{tmp_path} is in use by another process. ")
        raise RuntimeError
    assert attempt(folder) == "free"


def test_a_killed_process_releases_the_lock(folder):
    holder = start(HOLD, folder)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(ValueError, match="in use by another process"), folder.locked():
        pass
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with folder.locked():
        pass


def test_a_child_does_not_keep_the_lock_of_its_dead_parent(folder):
    parent = start(FORK, folder)
    child = int(parent.stdout.readline())
    try:
        parent.wait()
        assert attempt(folder) == "free"
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdout.close()


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


def test_folders_that_do_not_support_locking_are_not_locked(folder, monkeypatch, caplog):
    with RunFolder("gs://bucket/out").locked():
        pass
    with pytest.raises(FileNotFoundError), RunFolder(folder.file("none")).locked():
        pass

    def refuse(*_):
        raise OSError(37, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", refuse)
        with folder.locked():
            assert "not locked against other processes (No locks available)" in caplog.text

    def open_read_only(*_):
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_read_only)
        with folder.locked():
            pass
