"""What an interrupted run leaves, and who may go on with it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from albert_tf.data.work_directory import open_work_directory, remove_work_directory
from tests.conftest import ROOT

RUN = {"max_seq_length": 11, "outputs": ("one", "two")}


def finish(directory, chunk, checksum="c0ffee", instances=7):
    block = f"{directory.chunk_stem(chunk)}-000.spill"
    with open(block, "wb") as stream:
        stream.write(b"records")
    directory.finish_chunk(chunk, checksum, [block], {"instances": instances, "tokens": 97})
    return block


def interrupted(path, chunks=(0, 2)):
    with open_work_directory(path, RUN, resume=False) as directory:
        for chunk in chunks:
            finish(directory, chunk)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "out.work")


def test_finished_chunks_and_outputs_are_found_again(path):
    with open_work_directory(path, RUN, resume=False) as directory:
        blocks = [finish(directory, chunk) for chunk in (2, 0)]
        directory.finish_output(1, "two", 14, 300)
    with open_work_directory(path, RUN, resume=True) as directory:
        assert directory.blocks() == sorted(blocks)
        assert directory.counts() == {"instances": 14, "tokens": 194}
        assert directory.chunk_checksum(2) == "c0ffee"
        assert directory.chunk_checksum(1) == ""
        assert directory.finished_outputs() == {1: {"name": "two", "instances": 14, "bytes": 300}}


def test_chunks_and_outputs_can_be_taken_back(path):
    with open_work_directory(path, RUN, resume=False) as directory:
        for chunk in range(4):
            finish(directory, chunk)
        directory.finish_output(0, "one", 5, 11)
        directory.forget_chunk(1)
        directory.forget_chunk(1)
        directory.keep_chunks(3)
        directory.forget_outputs()
        assert [os.path.basename(block)[:12] for block in directory.blocks()] == [
            "chunk-000000",
            "chunk-000002",
        ]
        assert directory.finished_outputs() == {}


def test_an_interrupted_run_is_not_overwritten(path):
    interrupted(path)
    with (
        pytest.raises(ValueError, match=r"out\.work: an interrupted run .* --resume"),
        open_work_directory(path, RUN, resume=False),
    ):
        pass
    with open_work_directory(path, RUN, resume=True) as directory:
        assert len(directory.blocks()) == 2


def test_other_settings_are_refused_and_named(path):
    interrupted(path)
    with (
        pytest.raises(ValueError, match="max_seq_length 11, now 13"),
        open_work_directory(path, {**RUN, "max_seq_length": 13}, resume=True),
    ):
        pass


def test_resuming_where_nothing_was_begun_starts(path):
    with open_work_directory(path, RUN, resume=True) as directory:
        assert directory.blocks() == []


def fail_after_a_chunk(path):
    with open_work_directory(path, RUN, resume=False) as directory:
        finish(directory, 0)
        raise OSError("disk")


def test_an_error_leaves_what_is_finished_and_says_where(path, caplog):
    with caplog.at_level("WARNING", logger="absl"), pytest.raises(OSError, match="disk"):
        fail_after_a_chunk(path)
    assert f"{path}: finished parts are kept there for --resume" in caplog.text
    with open_work_directory(path, RUN, resume=True) as directory:
        assert len(directory.blocks()) == 1


def test_an_error_before_anything_is_finished_leaves_nothing(path):
    with pytest.raises(ValueError, match="text"), open_work_directory(path, RUN, resume=False):
        raise ValueError("text")
    assert not os.path.exists(path)


def test_half_written_files_of_a_killed_process_are_removed(path):
    interrupted(path)
    left = os.path.join(path, "chunk-000001-000.spill.0a1b2c3d.tmp")
    with open(left, "wb") as stream:
        stream.write(b"half")
    with open_work_directory(path, RUN, resume=True):
        assert not os.path.exists(left)


def test_a_run_killed_before_it_began_is_begun(path):
    os.makedirs(path)
    for name in ("run.json.0a1b2c3d.tmp", "run.lock"):
        with open(os.path.join(path, name), "wb"):
            pass
    with open_work_directory(path, RUN, resume=False):
        assert sorted(os.listdir(path)) == ["run.json", "run.lock"]


def test_what_is_left_of_a_finished_run_is_removed_but_not_of_another(path):
    remove_work_directory(path, RUN)
    interrupted(path)
    remove_work_directory(path, {**RUN, "max_seq_length": 13})
    assert os.path.exists(path)
    remove_work_directory(path, RUN)
    assert not os.path.exists(path)


def test_removing_takes_only_what_the_program_wrote(path):
    interrupted(path)
    with open(os.path.join(path, "notes.txt"), "w", encoding="utf-8") as stream:
        stream.write("mine")
    with open_work_directory(path, RUN, resume=True) as directory:
        directory.remove()
    assert os.listdir(path) == ["notes.txt"]


@pytest.mark.parametrize("name", ["notes.txt", "notes.tmp"])
def test_a_directory_with_other_files_is_refused(path, name):
    os.makedirs(path)
    with open(os.path.join(path, name), "w", encoding="utf-8") as stream:
        stream.write("mine")
    with (
        pytest.raises(ValueError, match="holds other files"),
        open_work_directory(path, RUN, resume=False),
    ):
        pass


def test_two_processes_do_not_share_a_directory(path):
    code = (
        "import sys\n"
        "from albert_tf.data.work_directory import open_work_directory, remove_work_directory\n"
        "with open_work_directory(sys.argv[1], {}, True):\n"
        "    pass\n"
    )
    with open_work_directory(path, RUN, resume=False):
        done = subprocess.run(
            [sys.executable, "-c", code, path],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert "another process is writing" in done.stderr
