"""The files that an interrupted run leaves, and which runs may resume it."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys

import pytest

from albert_tf.data import work_directory
from albert_tf.data.work_directory import FinishedChunk, lock_outputs, open_work_directory
from tests.conftest import ROOT

RUN = {"max_seq_length": 11, "outputs": ["one", "two"]}
OTHER_RUN = {**RUN, "max_seq_length": 13}


def finish(directory, number=0, checksum="c0ffee"):
    stem = directory.chunk_stem((number, 1_000_000), checksum)
    with open(f"{stem}-000.spill", "wb") as stream:
        stream.write(b"records")
    blocks = [os.path.basename(stem) + "-000.spill"]
    chunk = FinishedChunk((number, 1_000_000), checksum, blocks, {"instances": 7, "tokens": 97})
    directory.finish_chunk(chunk)


def interrupt(path):
    """Leaves two finished chunks and a complete output."""
    with contextlib.suppress(KeyboardInterrupt), open_work_directory(path, RUN) as directory:
        for number in range(2):
            finish(directory, number)
        directory.finish_output(1, "beef", 14)
        raise KeyboardInterrupt


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "out.work")


def test_finished_chunks_and_outputs_are_found_again(path, caplog):
    interrupt(path)
    assert f"{path}: finished work is kept; run the same command again" in caplog.text
    with caplog.at_level("INFO", logger="absl"), open_work_directory(path, RUN) as directory:
        assert f"{path}: resuming an interrupted run" in caplog.text
        blocks = ["chunk-000001-000001000000-c0ffee-000.spill"]
        expected = FinishedChunk((1, 1_000_000), "c0ffee", blocks, {"instances": 7, "tokens": 97})
        assert directory.find_chunk((1, 1_000_000), "c0ffee") == expected
        assert directory.finished_outputs("beef") == {1: 14}


def test_chunks_and_outputs_of_another_text_are_not_found(path):
    interrupt(path)
    with open_work_directory(path, RUN) as directory:
        assert directory.find_chunk((1, 1_000_000), "0ff1ce") is None
        assert directory.find_chunk((2, 1_000_000), "c0ffee") is None
        assert directory.finished_outputs("dead") == {}
        # Afterwards, the output file may be of any text.
        assert directory.finished_outputs("beef") == {}


def test_different_settings_are_rejected_and_named(path):
    interrupt(path)
    with (
        pytest.raises(ValueError, match="max_seq_length 11, now 13"),
        open_work_directory(path, OTHER_RUN),
    ):
        pass


def test_without_a_finished_chunk_different_settings_start_over(path):
    interrupt(path)
    for name in filter(work_directory._CHUNK.fullmatch, os.listdir(path)):
        os.remove(os.path.join(path, name))
    with open_work_directory(path, OTHER_RUN) as directory:
        assert sorted(os.listdir(path)) == ["run.json", "run.lock"]
        assert directory.finished_outputs("beef") == {}


def test_an_error_before_a_chunk_is_finished_leaves_nothing(path):
    with pytest.raises(ValueError, match="text"), open_work_directory(path, RUN):
        raise ValueError("text")
    assert not os.path.exists(path)


@pytest.mark.parametrize("left", [{"run.json.0a1b2c3d.tmp", "run.lock"}, {"output-00001.json"}])
def test_files_of_a_run_killed_at_its_start_or_end_are_not_taken_for_finished_work(path, left):
    os.makedirs(path)
    for name in left:
        with open(os.path.join(path, name), "wb"):
            pass
    with open_work_directory(path, RUN):
        assert sorted(os.listdir(path)) == ["run.json", "run.lock"]


def test_only_files_of_the_program_are_removed(path):
    interrupt(path)
    for name in ("notes.txt", "chunk-000001-000.spill.0a1b2c3d.tmp"):
        with open(os.path.join(path, name), "wb") as stream:
            stream.write(b"mine or half")
    with open_work_directory(path, RUN):
        pass
    assert os.listdir(path) == ["notes.txt"]


def test_a_directory_with_other_files_is_rejected(path):
    os.makedirs(path)
    with open(os.path.join(path, "notes.tmp"), "w", encoding="utf-8") as stream:
        stream.write("mine")
    with (
        pytest.raises(ValueError, match="contains other files"),
        open_work_directory(path, RUN),
    ):
        pass
    assert os.listdir(path) == ["notes.tmp"]


def hold_in_another_process(expression):
    """Enters a context manager of the module in another process, and returns its output."""
    code = f"from albert_tf.data.work_directory import *\nwith {expression}:\n    print('held')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_two_processes_do_not_share_a_directory(path):
    with open_work_directory(path, RUN):
        found = hold_in_another_process(f"open_work_directory({path!r}, {{}})")
    assert f"--work_dir={path}: another process is writing this" in found


def test_two_processes_do_not_write_the_same_outputs(tmp_path):
    one, two, three = (str(tmp_path / name) for name in ("one", "two", "three"))
    with lock_outputs([one, two, two]):
        found = hold_in_another_process(f"lock_outputs([{three!r}, {two!r}])")
        assert f"--output_file={two}: another process is writing this" in found
        assert hold_in_another_process(f"lock_outputs([{three!r}])") == "held\n"
    assert not list(tmp_path.iterdir())


def test_the_lock_of_a_killed_process_is_released(tmp_path):
    (tmp_path / ".one.records.lock").touch()
    with lock_outputs([str(tmp_path / "one")]):
        pass
    assert not list(tmp_path.iterdir())


def test_remote_outputs_and_file_systems_without_locks_are_not_locked(
    tmp_path, monkeypatch, caplog
):
    def fail(*_, **__):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(work_directory.filelock.FileLock, "acquire", fail)
    with lock_outputs(["gs://bucket/one"]):
        assert not caplog.records
    with lock_outputs([str(tmp_path / "one")]):
        assert "cannot lock out other processes (No locks available)" in caplog.text
