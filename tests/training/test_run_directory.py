"""The output directory: created, locked, and removed if unused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from albert_tf.training import run_directory
from tests.conftest import ROOT

HOLD = (
    "import sys, time\n"
    "from albert_tf.training import run_directory\n"
    "with run_directory.lock(sys.argv[1]):\n"
    "    print('held', flush=True)\n"
    "    time.sleep(60)\n"
)
TRY = (
    "import sys\n"
    "from albert_tf.training import run_directory\n"
    "try:\n"
    "    with run_directory.lock(sys.argv[1]):\n"
    "        print('free')\n"
    "except ValueError as error:\n"
    "    print(error)\n"
)


def attempt(path):
    """Returns "free" if another process can lock the directory, else its error message."""
    done = subprocess.run(
        [sys.executable, "-c", TRY, str(path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_second_process_is_refused(tmp_path):
    with run_directory.lock(str(tmp_path)):
        assert attempt(tmp_path).startswith(f"{tmp_path} is in use by another process. ")
    assert attempt(tmp_path) == "free"


def test_a_killed_process_releases_the_lock(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    with (
        pytest.raises(ValueError, match="in use by another process"),
        run_directory.lock(str(tmp_path)),
    ):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with run_directory.lock(str(tmp_path)):
        pass


def test_the_same_process_may_lock_it_again(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    with run_directory.lock(str(tmp_path)):
        with run_directory.lock(str(tmp_path / "link")):
            assert "in use" in attempt(tmp_path)
        assert "in use" in attempt(tmp_path)
    assert attempt(tmp_path) == "free"


def test_an_error_releases_the_lock(tmp_path):
    with pytest.raises(RuntimeError, match="x"), run_directory.lock(str(tmp_path)):
        raise RuntimeError("x")
    assert attempt(tmp_path) == "free"


def test_a_child_does_not_keep_the_lock_of_its_dead_parent(tmp_path):
    code = (
        "import os, sys, time\n"
        "from albert_tf.training import run_directory\n"
        "with run_directory.lock(sys.argv[1]):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        print(os.getpid(), flush=True)\n"
        "        time.sleep(60)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    child = int(parent.stdout.readline())
    try:
        parent.wait()
        assert attempt(tmp_path) == "free"
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdout.close()


def test_only_partial_files_of_a_killed_process_are_removed(tmp_path):
    data = ".data-00000-of-00001"
    half = [".model.ckpt-20-0a1b2c3d.index", f".model.ckpt-20-0a1b2c3d{data}.tempstate17"]
    half += [f".model.ckpt-best-99999999{data}", "metrics.jsonl.0a1b2c3d.tmp"]
    others = ["model.ckpt-20.index", ".model.ckpt-20.index", "model.ckpt-20-0a1b2c3d.index"]
    others += [".notes", "notes.tmp", "0a1b2c3d.tmp", ".lock"]
    for name in half + others:
        (tmp_path / name).write_text("x")
    with run_directory.lock(str(tmp_path)):
        assert {path.name for path in tmp_path.iterdir()} == set(others)
        (tmp_path / half[0]).write_text("being written")
        with run_directory.lock(str(tmp_path)):
            assert (tmp_path / half[0]).exists()


def test_directories_that_do_not_support_locking_are_not_locked(tmp_path, monkeypatch, caplog):
    with run_directory.lock("gs://bucket/out"):
        pass
    with pytest.raises(FileNotFoundError), run_directory.lock(str(tmp_path / "none")):
        pass

    def refuse(*_):
        raise OSError(37, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", refuse)
        with run_directory.lock(str(tmp_path)):
            assert "not locked against other processes (No locks available)" in caplog.text

    def open_read_only(*_):
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_read_only)
        with run_directory.lock(str(tmp_path)):
            pass
