"""Faults during a run: full disks, damaged records and checkpoints, kills; tested as processes.

`FAULT_KILLS=25 FAULT_STEPS=20000 pytest -m slow tests/test_faults.py -k killed` kills a run of two
minutes 25 times; by default it is a shorter one, fewer times.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from albert_tf.checkpoints import loading
from albert_tf.checkpoints.names import DATA_SUFFIX
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.store import find_damage
from tests.cli.test_run_classifier import write_sts
from tests.conftest import MAX_PREDICTIONS, ROOT, SEQ_LENGTH, TINY_SHAPE
from tests.script_runner import tensors
from tests.training.test_loop import write_records

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("FAULT_KILLS", "6"))
STEPS = int(os.environ.get("FAULT_STEPS", 100 * (KILLS + 2)))  # steps of the run that is killed
TIMEOUT = 240 + STEPS // 20  # seconds, of one process
BATCH = 6
RECORDS = 53
SAVED_EVERY = max(20, STEPS // 80)  # steps, while it is killed


@pytest.fixture(scope="module", name="folder")
def make_folder(tmp_path_factory):
    """Writes a config with dropout, and records."""
    folder = tmp_path_factory.mktemp("faults")
    changes = {"num_hidden_layers": 2, "num_hidden_groups": 1, "hidden_dropout_prob": 0.1}
    (folder / "config.json").write_text(json.dumps(TINY_SHAPE | changes))
    write_records(folder / "train.tfrecord", RECORDS)
    return folder


@pytest.fixture(scope="module", name="command")
def make_command(folder):
    """Returns the command that trains in a folder, for 20 steps unless flags change that."""

    def command(output_dir, *flags):
        return [
            *(sys.executable, str(ROOT / "run_pretraining.py"), f"--output_dir={output_dir}"),
            *(f"--albert_config_file={folder}/config.json", f"--input_file={folder}/*.tfrecord"),
            *(f"--max_seq_length={SEQ_LENGTH}", f"--max_predictions_per_seq={MAX_PREDICTIONS}"),
            *(f"--train_batch_size={BATCH}", "--learning_rate=0.01", "--num_warmup_steps=2"),
            *("--num_train_steps=20", "--save_checkpoints_steps=5", "--keep_checkpoint_max=0"),
            "--noplots",
            *flags,
        ]

    return command


def run(command):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)


def finish(command):
    """Runs a command that must succeed, and returns its log."""
    done = run(command)
    assert done.returncode == 0, done.stderr
    return done.stderr


def fail(command):
    """Runs a command that must fail, and returns its one-line message."""
    done = run(command)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    (message,) = re.findall("^run_pretraining.py: (.*)$", done.stderr, re.MULTILINE)
    return message


def assert_same_state(ours, theirs, step):
    found, expected = (tensors(folder / f"model.ckpt-{step}") for folder in (ours, theirs))
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def checkpoints(folder):
    """Returns the numbered checkpoints as step → prefix."""
    return RunFolder(str(folder)).checkpoints()


def assert_all_usable(folder):
    for prefix in checkpoints(folder).values():
        assert find_damage(prefix) == "", prefix


def leftovers(folder):
    """Returns the temporary files, which only a process that is writing needs."""
    return [
        path.name
        for path in folder.iterdir()
        if path.name.startswith(".model.ckpt") or path.name.endswith(".tmp")
    ]


@pytest.fixture(scope="module", name="through")
def run_through(command, folder):
    """Returns the output folder of a run of 20 steps without faults."""
    finish(command(folder / "through"))
    return folder / "through"


@pytest.fixture(name="mount")
def make_mount(tmp_path):
    """Mounts a file system with some options on a folder, and yields the folder."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options):
        try:
            done = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
                capture_output=True,
                check=False,
            )
        except FileNotFoundError:
            pytest.skip("there is no mount here")
        if done.returncode:
            pytest.skip(f"a file system cannot be mounted: {done.stderr.decode().strip()}")
        return folder

    yield mount
    if os.path.ismount(folder):
        subprocess.run(["umount", str(folder)], check=True)


def pages(folder, pattern):
    """Returns the number of memory pages of 4 kB that files occupy."""
    return sum(-(-path.stat().st_size // 4096) for path in folder.glob(pattern))


@pytest.mark.ci
def test_a_full_disk_keeps_the_checkpoints_and_the_run_goes_on_later(mount, command, through):
    one = pages(through, "model.ckpt-5.*")
    others = pages(through, "*") - pages(through, "model.ckpt-*")
    disk = mount(f"size={4 * (others + 2 * one + one // 2)}k")
    message = fail(command(disk))
    assert re.search(rf"{disk}/model\.ckpt-\d+: .*No space left on device\. Free some", message)
    assert len(checkpoints(disk)) in (1, 2)
    assert_all_usable(disk)
    assert not leftovers(disk)
    mount("remount,size=300m")
    finish(command(disk))
    assert_same_state(disk, through, 20)


# Numbers of missing pages, which determine the first file that does not fit.
@pytest.mark.parametrize("missing", [1, pytest.param(2, marks=pytest.mark.ci), 3, 4, 6, None])
def test_a_disk_without_room_for_the_other_files_is_an_error_too(mount, command, through, missing):
    needed = pages(through, "*") - pages(through, "model.ckpt-*") + pages(through, "model.ckpt-0.*")
    disk = mount(f"size={4 * (2 if missing is None else needed - missing)}k")
    assert "No space left on device" in fail(command(disk))
    assert_all_usable(disk)
    assert not leftovers(disk)


@pytest.mark.ci
@pytest.mark.parametrize(("suffix", "is_cut"), [(DATA_SUFFIX, False), (".index", True)])
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(
    command, through, tmp_path, suffix, is_cut
):
    out = tmp_path / "out"
    shutil.copytree(through, out)
    path = out / f"model.ckpt-20{suffix}"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content[: len(content) // 2] if is_cut else content)
    log = finish(command(out))
    assert re.search(r"model\.ckpt-20 is damaged .*; falling back to .*/model\.ckpt-15", log)
    assert list(checkpoints(out)) == [0, 5, 10, 15, 20]
    assert (out / f"model.ckpt-20.damaged{suffix}").exists()
    assert_same_state(out, through, 20)


def wait_for(condition, process):
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert process.poll() is None, "it ended too early"
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


def start(command):
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


# Runs a program, and kills it before the index of the second best checkpoint is put in place.
KILLED_AT_A_BETTER_ONE = """
import os, runpy, signal, sys
from albert_tf import files
rename, seen = files.rename, []
def rename_or_die(source, target):
    if target.endswith("model.ckpt-best.index"):
        seen.append(target)
        if len(seen) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)
files.rename = rename_or_die
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_classifier_killed_while_its_best_is_copied_has_it_in_the_end(
    folder, tmp_path, toy_spm_model
):
    write_sts(tmp_path / "glue" / "STS-B")
    out = tmp_path / "out [1]"  # not a glob
    command = [
        *(str(ROOT / "run_classifier.py"), "--task_name=sts-b", f"--data_dir={tmp_path}/glue"),
        *(f"--output_dir={out}", f"--albert_config_file={folder}/config.json"),
        *(f"--spm_model_file={toy_spm_model}", f"--max_seq_length={SEQ_LENGTH}"),
        *(
            "--do_train",
            "--do_eval",
            "--learning_rate=0.001",
            "--train_batch_size=5",
            "--train_step=24",
        ),
        *("--save_checkpoints_steps=2", "--keep_checkpoint_max=1", "--precision=float32"),
    ]
    killed = run([sys.executable, "-c", KILLED_AT_A_BETTER_ONE, *command])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (out / "model.ckpt-best.index").exists()
    finish([sys.executable, *command])
    last, best, value = (out / "best_trial.txt").read_text().split(":")
    assert (last, loading.read_step(str(out / "model.ckpt-best"))) == ("24", int(best))
    lines = (out / "evaluations.jsonl").read_text().splitlines()
    values = [json.loads(line)["metrics"]["pearson"] for line in lines]
    assert float(value) == pytest.approx(max(values))
    assert not leftovers(out)


# Runs a program, and kills it while the second checkpoint is being written in the background: when
# it begins, when the tensors are written but not verified, between the two files of a checkpoint,
# and before the list of checkpoints.
KILLED_WHILE_WRITING = """
import os, re, runpy, signal, sys, time
from albert_tf import files
from albert_tf.checkpoints import store
owner, name, which, pattern = {
    "begin": (store, "save_checkpoint", 0, "/model.ckpt-10"),
    "verify": (store, "find_damage", 0, "/.model.ckpt-10-[0-9a-f]*"),
    "index": (files, "rename", 1, "/model.ckpt-10.index"),
    "list": (files, "rename", 1, "/checkpoint"),
}[sys.argv[1]]
function, is_list = getattr(owner, name), sys.argv[1] == "list"
def die(*arguments):
    path = arguments[which]
    index = os.path.join(os.path.dirname(path), "model.ckpt-10.index")
    if re.search(pattern + "$", path) and os.path.exists(index) == is_list:
        time.sleep(1)  # meanwhile, training continues
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*arguments)
setattr(owner, name, die)
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    "moment", ["begin", "verify", pytest.param("index", marks=pytest.mark.ci), "list"]
)
def test_killed_while_a_checkpoint_is_written_it_ends_with_the_same_weights(
    command, through, tmp_path, moment
):
    program, *flags = command(tmp_path)
    killed = run([program, "-c", KILLED_WHILE_WRITING, moment, *flags])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert_all_usable(tmp_path)
    expected = [0, 5, 10] if moment == "list" else [0, 5]
    assert list(checkpoints(tmp_path)) == expected
    assert_same_state(tmp_path, through, 5)
    finish([program, *flags])
    for step in (5, 10, 20):
        assert_same_state(tmp_path, through, step)
    assert not leftovers(tmp_path)


def newest(folder):
    return max(checkpoints(folder), default=-1)


@pytest.mark.ci
@pytest.mark.timeout(60 + 30 * KILLS + STEPS // 20)
def test_killed_again_and_again_it_ends_with_the_same_weights(command, tmp_path):
    flags = [f"--num_train_steps={STEPS}", f"--save_checkpoints_steps={SAVED_EVERY}"]
    flags += ["--keep_checkpoint_max=2", "--log_steps=10"]
    finish(command(tmp_path / "through", *flags))
    out = tmp_path / "out"
    rng = random.Random(5)
    killed = 0
    while killed < KILLS:
        process, before = start(command(out, *flags)), newest(out)
        if killed % 3 == 2:  # at any moment of the start
            time.sleep(rng.uniform(0, 6))
        else:  # at any moment of a step or of writing; every such round gets further
            goal = max(before, 0) + SAVED_EVERY * rng.randint(1, 3)
            wait_for(lambda goal=goal: newest(out) >= goal, process)
            time.sleep(rng.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.wait()
        killed += 1
        assert_all_usable(out)
        assert newest(out) >= before
    (out / f".model.ckpt-{SAVED_EVERY}-0a1b2c3d{DATA_SUFFIX}").write_text("half-written")
    finish(command(out, *flags))
    assert_same_state(out, tmp_path / "through", STEPS)
    ours, theirs = (RunFolder(str(path)).metrics() for path in (out, tmp_path / "through"))
    for line in ours + theirs:
        for name in ("examples_per_second", "tokens_per_second"):
            line.pop(name, None)
    assert ours == theirs
    assert not leftovers(out)
