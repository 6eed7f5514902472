"""Interrupted and repeated runs of the data program, and the files by which they resume."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from albert_tf import data
from albert_tf.data import create, work_directory
from albert_tf.data.settings import MEGABYTE
from tests.conftest import ROOT, TOY_TEXT
from tests.data.conftest import contents, write


class StoppedError(Exception):
    """Simulates an interruption of a run."""


def stop_after(monkeypatch, times, module=work_directory, name="finish_chunk"):
    """Makes a function raise after some calls, of which the chunks are returned."""
    real = getattr(module, name)
    calls = []

    def stopping(*args):
        if len(calls) == times:
            raise StoppedError
        calls.append(args[1])
        return real(*args)

    monkeypatch.setattr(module, name, stopping)
    return calls


def stop(make, monkeypatch, times, **changes):
    """Runs the program until some chunks are finished."""
    with monkeypatch.context() as patch:
        stop_after(patch, times)
        with pytest.raises(StoppedError):
            make(**changes)


def stop_before_writing(make, monkeypatch, **changes):
    """Runs the program until all chunks are finished."""
    with monkeypatch.context() as patch:
        stop_after(patch, 0, create, "_write_outputs")
        with pytest.raises(StoppedError):
            make(**changes)


@pytest.mark.parametrize("times", [1, 4])
def test_resuming_writes_the_same_bytes_and_encodes_no_chunk_again(
    tmp_path, make, monkeypatch, times
):
    with monkeypatch.context() as patch:
        total = stop_after(patch, 99)
        make("expected/train@3")
    stop(make, monkeypatch, times)
    folder = tmp_path / "out"
    assert not (folder / "train.records.json").exists()
    assert (folder / "train.work").is_dir()
    assert not any(path.suffix == ".tmp" for path in folder.iterdir())
    calls = stop_after(monkeypatch, 99)
    make()
    assert contents(folder) == contents(tmp_path / "expected")
    assert len(calls) == len(total) - times > 0


@pytest.mark.parametrize("change", ["none", "text", "size", "removed"])
def test_outputs_that_were_finished_before_a_kill_are_not_written_again(
    tmp_path, make, monkeypatch, change
):
    text = tmp_path / "a.txt"
    text.write_text("\n\n".join([TOY_TEXT] * 20), encoding="utf-8")
    with monkeypatch.context() as patch:
        stop_after(patch, 2, work_directory, "finish_output")
        with pytest.raises(StoppedError):
            make("out/train@4", inputs=[text])
    first = tmp_path / "out" / "train-00000-of-00004"
    if change == "text":
        text.write_text("\n\n".join([TOY_TEXT] * 21), encoding="utf-8")
    elif change == "size":
        first.write_bytes(first.read_bytes() + b"x")
    elif change == "removed":
        first.unlink()
    with monkeypatch.context() as patch:
        finished = stop_after(patch, 99, work_directory, "finish_output")
        make("out/train@4", inputs=[text])
    assert finished == {"none": [2, 3], "text": [0, 1, 2, 3]}.get(change, [0, 2, 3])
    make("expected/train@4", inputs=[text])
    assert contents(tmp_path / "out") == contents(tmp_path / "expected")


def test_an_interrupted_run_is_not_resumed_with_other_settings(make, monkeypatch):
    stop(make, monkeypatch, 1)
    changes = {"chunk_megabytes": 6000 / MEGABYTE, "input_format": "documents"}
    with pytest.raises(ValueError, match="'sentences', now 'documents'; chunk_bytes 3000, now 6"):
        make(**changes)


def test_only_files_of_the_program_are_removed_from_the_work_directory(tmp_path, make, monkeypatch):
    stop_before_writing(make, monkeypatch)
    folder = tmp_path / "out" / "train.work"
    for name in ("notes.txt", "chunk-000001-000.spill.0a1b2c3d.tmp"):
        (folder / name).write_text("mine or half")
    make()
    assert os.listdir(folder) == ["notes.txt"]


def test_blocks_outside_of_the_work_directory_are_refused(tmp_path, make, monkeypatch):
    stop_before_writing(make, monkeypatch)
    folder = tmp_path / "out" / "train.work"
    chunk = sorted(folder.glob("chunk-*.json"))[0]
    found = json.loads(chunk.read_text())
    name = found["blocks"][0]
    (folder / name).rename(tmp_path / name)
    chunk.write_text(json.dumps({**found, "blocks": [f"../../{name}"]}))
    with pytest.raises(
        ValueError, match=rf"{chunk.name} names '\.\./\.\./chunk.*: expected a file i"
    ):
        make()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sentences": None}, r"json: counts: 'sentences' is None, expected int"),
        ({"label_1": [3]}, r"json: counts: 'label_1' is \[3\], expected int"),
        ({"instances": 7}, r"--work_dir=.*train\.work: damaged, \d+ records were written of \d+"),
    ],
)
def test_damaged_counts_of_a_chunk_are_refused(tmp_path, make, monkeypatch, changes, said):
    stop_before_writing(make, monkeypatch)
    chunk = sorted((tmp_path / "out" / "train.work").glob("chunk-*.json"))[0]
    found = json.loads(chunk.read_text())
    chunk.write_text(json.dumps(found | {"counts": found["counts"] | changes}))
    with pytest.raises(ValueError, match=said):
        make()
    assert not (tmp_path / "out" / "train.records.json").exists()


@pytest.mark.parametrize("text", [TOY_TEXT * 19 + "A boat on the sea.\n", ""])
def test_only_changed_text_is_encoded_again_on_resuming(tmp_path, make, monkeypatch, text):
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path in paths:
        path.write_text("\n\n".join([TOY_TEXT] * 20), encoding="utf-8")
    stop_before_writing(make, monkeypatch, inputs=paths)
    paths[1].write_text(text, encoding="utf-8")
    with monkeypatch.context() as patch:
        calls = stop_after(patch, 99)
        make(inputs=paths)
    assert {chunk.position[0] for chunk in calls} == ({1} if text else set())
    make("expected/train@3", inputs=paths)
    assert contents(tmp_path / "out") == contents(tmp_path / "expected")


def test_resuming_a_complete_run_does_nothing_also_with_a_compressed_copy_of_the_text(
    tmp_path, make, monkeypatch, corpus_file
):
    copy = write(tmp_path / "copy.gz", gzip.compress(Path(corpus_file).read_bytes()))
    metadata = make()
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    stop_after(monkeypatch, 0)
    assert make(resume=True) == make(resume=True, inputs=[copy]) == metadata
    assert before == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    with pytest.raises(StoppedError):
        make()


def test_complete_outputs_of_other_settings_are_kept_unless_they_are_to_be_recreated(
    tmp_path, make
):
    make()
    before = contents(tmp_path / "out")
    changes = r"ngram 3, now 2; random_seed 12345, now 7\."
    with pytest.raises(ValueError, match=rf"train\.records\.json: .*: {changes} .*--noresume"):
        make(resume=True, ngram=2, random_seed=7)
    assert contents(tmp_path / "out") == before
    assert make(ngram=2)["settings"]["ngram"] == 2


def test_outputs_of_another_text_are_recreated(tmp_path, make, caplog):
    text = tmp_path / "text.txt"
    text.write_text(TOY_TEXT, encoding="utf-8")
    make(inputs=[text])
    stat = text.stat()
    text.write_text(TOY_TEXT.replace("boat", "ship"), encoding="utf-8")
    os.utime(text, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # of the same size and time
    make(inputs=[text], resume=True)
    assert "--input_file: the text has changed; creating its records again" in caplog.text
    make("expected/train@3", inputs=[text])
    assert contents(tmp_path / "out") == contents(tmp_path / "expected")


def test_an_interruption_says_how_to_resume(make, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(create, "_write_outputs", interrupt)
    with pytest.raises(KeyboardInterrupt, match="run the same command again to resume"):
        make(create=data.run)


def test_a_second_run_with_the_same_work_directory_is_refused(make, monkeypatch):
    finish_chunk = work_directory.finish_chunk

    def begin_another(*args):
        with pytest.raises(ValueError, match=r"--work_dir=.*work: another process is using it"):
            make()
        finish_chunk(*args)

    monkeypatch.setattr(work_directory, "finish_chunk", begin_another)
    assert make()["counts"]["instances"]


def test_file_systems_without_locks_are_not_locked(tmp_path, make, monkeypatch, caplog):
    def fail(*_, **__):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(work_directory.filelock.FileLock, "acquire", fail)
    assert make()["counts"]["instances"]
    assert "cannot lock out other processes (No locks available)" in caplog.text


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_killed_ten_times_loses_and_encodes_nothing_again(
    tmp_path, make, corpus_file, toy_spm_model
):
    texts = [shutil.copy(corpus_file, tmp_path / f"{number}.txt") for number in range(3)]
    make("expected/train@5", inputs=texts, chunk_megabytes=200 / MEGABYTE)
    command = [
        *(sys.executable, str(ROOT / "create_pretraining_data.py")),
        f"--input_file={','.join(map(str, texts))}",
        *(f"--output_file={tmp_path}/out/train@5", f"--spm_model_file={toy_spm_model}"),
        *("--max_seq_length=37", "--dupe_factor=3", "--max_predictions_per_seq=7", "--resume"),
        *(f"--chunk_megabytes={200 / MEGABYTE}", "--num_workers=2", "--num_logged_instances=0"),
    ]
    work = tmp_path / "out" / "train.work"
    rng = random.Random(5)
    progress = [0]
    while len(progress) < 11:
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
        # Wait for new files, so that the kills are spread over a run of any speed.
        enough = progress[-1] + rng.randint(1, 9)
        while process.poll() is None and len(list(work.glob("*.json"))) < enough:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.01))
        process.kill()
        process.wait()
        if (tmp_path / "out" / "train.records.json").exists():  # done, or removing these files
            break
        progress.append(len(list(work.glob("*.json"))))
        # Every file with its final name is complete.
        for path in tmp_path.glob("out/train-?????-of-00005"):
            assert path.read_bytes() == (tmp_path / "expected" / path.name).read_bytes()
    assert len(progress) > 5
    assert progress == sorted(progress), "finished work was done again"
    subprocess.run(command, check=True, capture_output=True)
    assert contents(tmp_path / "out") == contents(tmp_path / "expected")
