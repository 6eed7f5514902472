"""The files that an interrupted run leaves, and which runs may resume it."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import subprocess
import sys

import pytest

from albert_tf.data import corpus, work_directory
from albert_tf.data.work_directory import (
    lock_outputs,
    open_work_directory,
    remove_work_directory,
)
from tests.conftest import ROOT

CHUNK_2 = "chunk-000001-000000000000.json"
RUN = {"max_seq_length": 11, "outputs": ("one", "two")}


def at(chunk):
    """Returns the position of a chunk; chunks differ in file or offset."""
    return chunk // 2, chunk % 2 * 1_000_000


def finish(directory, chunk, checksum="c0ffee", instances=7):
    chunk = at(chunk)
    block = f"{directory.chunk_stem(chunk)}-000.spill"
    with open(block, "wb") as stream:
        stream.write(b"records")
    directory.finish_chunk(chunk, checksum, [block], {"instances": instances, "tokens": 97})
    return block


def interrupted(path, chunks=(0, 2)):
    with open_work_directory(path, RUN) as directory:
        for chunk in chunks:
            finish(directory, chunk)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "out.work")


def test_finished_chunks_and_outputs_are_found_again(path):
    with open_work_directory(path, RUN) as directory:
        blocks = [finish(directory, chunk) for chunk in (2, 0)]
        directory.finish_output(1, "two", 14, 300)
    with open_work_directory(path, RUN) as directory:
        assert directory.blocks() == sorted(blocks)
        assert directory.counts() == {"instances": 14, "tokens": 194}
        assert directory.chunk_checksum(at(2)) == "c0ffee"
        assert directory.chunk_checksum(at(1)) == ""
        assert directory.finished_outputs() == {1: {"name": "two", "instances": 14, "bytes": 300}}


def test_the_checksum_of_the_text_is_that_of_its_chunks_in_order(path):
    with open_work_directory(path, RUN) as directory:
        for chunk in (1_000_000, 999_999, 0):
            finish(directory, chunk, checksum=f"{chunk:06x}")
        expected = ["000000", "0f423f", "0f4240"]
        assert directory.text_checksum() == corpus.text_checksum(expected)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (CHUNK_2, {"checksum": "c0ffee", "blocks": [5], "counts": {}}),
        (CHUNK_2, {"checksum": "c0ffee", "blocks": [], "counts": {"instances": "7"}}),
        (CHUNK_2, {"checksum": "c0ffee"}),
        ("output-00001.json", {"name": "two", "instances": 14.5, "bytes": 300}),
    ],
)
def test_an_error_names_the_damaged_entry(path, name, content):
    interrupted(path)
    (pathlib.Path(path) / name).write_text(json.dumps(content))
    with (
        pytest.raises(ValueError, match=rf"{name}: damaged\. Remove the directory .*out\.work"),
        open_work_directory(path, RUN) as directory,
    ):
        directory.finished_outputs()


def test_chunks_and_outputs_can_be_marked_unfinished(path):
    with open_work_directory(path, RUN) as directory:
        for chunk in range(4):
            finish(directory, chunk)
        directory.finish_output(0, "one", 5, 11)
        directory.keep_chunks([at(chunk) for chunk in range(4)])
        assert directory.finished_outputs()
        directory.forget_chunk(at(1))
        directory.forget_chunk(at(1))
        directory.keep_chunks([at(0), at(2), at(5)])
        assert [os.path.basename(block) for block in directory.blocks()] == [
            "chunk-000000-000000000000-000.spill",
            "chunk-000001-000000000000-000.spill",
        ]
        assert directory.finished_outputs() == {}


def test_an_interrupted_run_is_resumed(path, caplog):
    interrupted(path)
    with caplog.at_level("INFO", logger="absl"), open_work_directory(path, RUN) as directory:
        assert len(directory.blocks()) == 2
    assert f"{path}: resuming an interrupted run" in caplog.text


def test_different_settings_are_rejected_and_named(path):
    interrupted(path)
    with (
        pytest.raises(ValueError, match="max_seq_length 11, now 13"),
        open_work_directory(path, {**RUN, "max_seq_length": 13}),
    ):
        pass


def test_without_instances_different_settings_start_over(path):
    with open_work_directory(path, RUN) as directory:
        finish(directory, 0, instances=0)
    other = {**RUN, "max_seq_length": 13}
    with open_work_directory(path, other) as directory:
        assert directory.chunk_checksum(at(0)) == ""
        finish(directory, 0)
    with open_work_directory(path, other) as directory:
        assert len(directory.blocks()) == 1


def fail_after_a_chunk(path):
    with open_work_directory(path, RUN) as directory:
        finish(directory, 0)
        raise OSError("disk")


def test_after_an_error_finished_work_is_kept_and_reported(path, caplog):
    with caplog.at_level("WARNING", logger="absl"), pytest.raises(OSError, match="disk"):
        fail_after_a_chunk(path)
    assert f"{path}: finished work is kept; run the same command again" in caplog.text
    with open_work_directory(path, RUN) as directory:
        assert len(directory.blocks()) == 1


def test_an_error_before_anything_is_finished_leaves_nothing(path):
    with pytest.raises(ValueError, match="text"), open_work_directory(path, RUN):
        raise ValueError("text")
    assert not os.path.exists(path)


def fail_after_blank_text(path):
    with open_work_directory(path, RUN) as directory:
        finish(directory, 0, instances=0)
        raise ValueError("text")


def test_an_error_after_blank_text_leaves_nothing(path):
    with pytest.raises(ValueError, match="text"):
        fail_after_blank_text(path)
    assert not os.path.exists(path)


def test_half_written_files_of_a_killed_process_are_removed(path):
    interrupted(path)
    left = os.path.join(path, "chunk-000001-000.spill.0a1b2c3d.tmp")
    with open(left, "wb") as stream:
        stream.write(b"half")
    with open_work_directory(path, RUN):
        assert not os.path.exists(left)


def test_a_run_killed_before_it_started_is_started(path):
    os.makedirs(path)
    for name in ("run.json.0a1b2c3d.tmp", "run.lock"):
        with open(os.path.join(path, name), "wb"):
            pass
    with open_work_directory(path, RUN):
        assert sorted(os.listdir(path)) == ["run.json", "run.lock"]


def test_remains_of_this_run_are_removed_but_not_of_another(path):
    remove_work_directory(path, RUN)
    interrupted(path)
    remove_work_directory(path, {**RUN, "max_seq_length": 13})
    assert os.path.exists(path)
    remove_work_directory(path, RUN)
    assert not os.path.exists(path)


def test_only_files_of_the_program_are_removed(path):
    interrupted(path)
    with open(os.path.join(path, "notes.txt"), "w", encoding="utf-8") as stream:
        stream.write("mine")
    with open_work_directory(path, RUN) as directory:
        directory.remove()
    assert os.listdir(path) == ["notes.txt"]


@pytest.mark.parametrize("name", ["notes.txt", "notes.tmp"])
def test_a_directory_with_other_files_is_rejected(path, name):
    os.makedirs(path)
    with open(os.path.join(path, name), "w", encoding="utf-8") as stream:
        stream.write("mine")
    with (
        pytest.raises(ValueError, match="contains other files"),
        open_work_directory(path, RUN),
    ):
        pass
    assert os.listdir(path) == [name]


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
