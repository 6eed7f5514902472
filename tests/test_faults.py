"""Faults during a run: full disks, damaged checkpoints, kills, signals.

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
import time

import pytest

from albert_tf.checkpoints import loading
from albert_tf.checkpoints.run_folder import DATA_SUFFIX, RunFolder
from albert_tf.checkpoints.store import find_damage
from albert_tf.model.config import AlbertConfig
from albert_tf.training.interruption import EXIT_STATUS
from tests.cli.fine_tuning_programs import write_cola
from tests.conftest import TINY_SHAPE
from tests.pretraining_runs import Pretraining
from tests.script_runner import assert_same_state, finish, kill, start_program, wait_for

KILLS = int(os.environ.get("FAULT_KILLS", "6"))
STEPS = int(os.environ.get("FAULT_STEPS", 100 * (KILLS + 2)))  # steps of the run that is killed
SAVED_EVERY = max(20, STEPS // 80)  # steps, while it is killed


@pytest.fixture(scope="module")
def pretraining(tmp_path_factory):
    """A model with dropout, which is trained for 20 steps unless other flags change that."""
    changes = {"num_hidden_layers": 2, "num_hidden_groups": 1, "hidden_dropout_prob": 0.1}
    return Pretraining(
        tmp_path_factory.mktemp("faults"),
        AlbertConfig(**TINY_SHAPE | changes),
        53,
        *("--train_batch_size=6", "--learning_rate=0.01", "--num_warmup_steps=2"),
        *("--num_train_steps=20", "--save_checkpoints_steps=5", "--keep_checkpoint_max=0"),
    )


def error_of(process):
    """The one-line message of a program that must fail."""
    output = finish(process, 1)
    assert "Traceback" not in output
    (message,) = re.findall("^run_pretraining.py: (.*)$", output, re.MULTILINE)
    return message


def checkpoints(folder):
    """The numbered checkpoints as step → prefix, all of them usable; nothing half-written.

    A process that is running may delete one while it is read.
    """
    found = RunFolder(str(folder)).checkpoints()
    damaged = {prefix for prefix in found.values() if find_damage(prefix)}
    assert not damaged & set(RunFolder(str(folder)).checkpoints().values())
    return found


def leftovers(folder):
    """The temporary files, which only a process that is writing needs."""
    return [*folder.glob(".model.ckpt*"), *folder.glob("*.tmp")]


@pytest.fixture(scope="module")
def through(pretraining, tmp_path_factory):
    """The output folder of a run of 20 steps without faults."""
    folder = tmp_path_factory.mktemp("through")
    pretraining.train(folder)
    return folder


@pytest.fixture
def mount(tmp_path):
    """Mounts a file system with some options on a folder, and returns the folder."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("there is no mount here")
        if done.returncode:
            pytest.skip(f"a file system cannot be mounted: {done.stderr.strip()}")
        return folder

    yield mount
    if os.path.ismount(folder):
        subprocess.run(["umount", str(folder)], check=True)


def pages(folder, pattern):
    """The number of memory pages of 4 kB that files occupy."""
    return sum(-(-path.stat().st_size // 4096) for path in folder.glob(pattern))


@pytest.mark.slow
def test_a_full_disk_keeps_the_checkpoints_and_the_run_goes_on_later(mount, pretraining, through):
    one = pages(through, "model.ckpt-5.*")
    others = pages(through, "*") - pages(through, "model.ckpt-*")
    disk = mount(f"size={4 * (others + 2 * one + one // 2)}k")
    message = error_of(pretraining.start(disk))
    assert re.search(rf"{disk}/model\.ckpt-\d+: .*No space left on device\. Free some", message)
    assert len(checkpoints(disk)) in (1, 2)
    assert not leftovers(disk)
    mount("remount,size=300m")
    pretraining.train(disk)
    assert_same_state(disk, through, 20)


# Numbers of missing pages, which determine the first file that does not fit.
@pytest.mark.slow
@pytest.mark.parametrize("missing", [1, 3, 6, None])
def test_a_disk_without_room_for_the_other_files_is_an_error_too(
    mount, pretraining, through, missing
):
    needed = pages(through, "*") - pages(through, "model.ckpt-*") + pages(through, "model.ckpt-0.*")
    disk = mount(f"size={4 * (2 if missing is None else needed - missing)}k")
    assert "No space left on device" in error_of(pretraining.start(disk))
    checkpoints(disk)
    assert not leftovers(disk)


@pytest.mark.ci
def test_a_damaged_newest_checkpoint_is_named_and_without_it_the_one_before_is_used(
    pretraining, through, tmp_path
):
    out = tmp_path / "out"
    shutil.copytree(through, out)
    path = out / f"model.ckpt-20{DATA_SUFFIX}"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"ckpt-20: .*damaged.* good checkpoint is .*ckpt-15\. "):
        pretraining.train(out)
    for path in out.glob("model.ckpt-20.*"):
        path.unlink()
    pretraining.train(out)
    assert list(checkpoints(out)) == [0, 5, 10, 15, 20]
    assert_same_state(out, through, 20)


# Runs a program, and kills it while the second checkpoint is being written in the background: when
# it begins, when the tensors are written but not verified, between the two files of a checkpoint,
# and before the list of checkpoints.
KILLED_WHILE_WRITING = """
import os, re, runpy, signal, sys, time
from albert_tf import files
from albert_tf.checkpoints import store
from albert_tf.files import writing
owner, name, which, pattern = {
    "begin": (store, "save_checkpoint", 0, "/model.ckpt-10"),
    "verify": (store, "find_damage", 0, "/.model.ckpt-10-[0-9a-f]*"),
    "index": (files, "rename", 1, "/model.ckpt-10.index"),
    "list": (writing, "rename", 1, "/checkpoint"),
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
    "moment",
    [
        pytest.param(name, marks=pytest.mark.ci if name == "index" else pytest.mark.slow)
        for name in ("begin", "verify", "index", "list")
    ],
)
def test_killed_while_a_checkpoint_is_written_it_ends_with_the_same_weights(
    pretraining, through, tmp_path, moment
):
    killed = pretraining.start(tmp_path, code=("-c", KILLED_WHILE_WRITING, moment))
    finish(killed, -signal.SIGKILL)
    assert list(checkpoints(tmp_path)) == ([0, 5, 10] if moment == "list" else [0, 5])
    assert_same_state(tmp_path, through, 5)
    pretraining.train(tmp_path)
    for step in (5, 10, 20):
        assert_same_state(tmp_path, through, step)
    assert not leftovers(tmp_path)


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


@pytest.mark.slow
def test_a_classifier_killed_while_its_best_is_copied_has_it_in_the_end(
    config_file, tmp_path, toy_spm_model
):
    write_cola(tmp_path)
    out = tmp_path / "out [1]"  # not a glob
    command = [
        *("run_classifier.py", "--task_name=cola", f"--data_dir={tmp_path}"),
        *(f"--output_dir={out}", f"--albert_config_file={config_file}"),
        *(f"--spm_model_file={toy_spm_model}", "--max_seq_length=11"),
        *("--do_train", "--do_eval", "--learning_rate=0.001", "--train_batch_size=5"),
        *("--train_step=24", "--save_checkpoints_steps=2", "--keep_checkpoint_max=1"),
        "--precision=float32",
    ]
    finish(start_program(*command, code=("-c", KILLED_AT_A_BETTER_ONE)), -signal.SIGKILL)
    assert not (out / "model.ckpt-best.index").exists()
    finish(start_program(*command))
    last, best, value = (out / "best_trial.txt").read_text().split(":")
    assert (last, loading.read_step(str(out / "model.ckpt-best"))) == ("24", int(best))
    lines = (out / "evaluations.jsonl").read_text().splitlines()
    values = [json.loads(line)["metrics"]["matthew_corr"] for line in lines]
    assert float(value) == pytest.approx(max(values))
    assert not leftovers(out)


def newest(folder):
    return max(checkpoints(folder), default=-1)


@pytest.mark.slow
@pytest.mark.timeout(60 + 120 * KILLS + STEPS // 20)
def test_killed_again_and_again_it_ends_with_the_same_weights(pretraining, tmp_path):
    others = [f"--num_train_steps={STEPS}", f"--save_checkpoints_steps={SAVED_EVERY}"]
    others += ["--keep_checkpoint_max=2", "--log_steps=10"]
    pretraining.train(tmp_path / "through", *others)
    out = tmp_path / "out"
    rng = random.Random(5)
    for killed in range(KILLS):
        process, before = pretraining.start(out, *others), newest(out)
        if killed % 3 == 2:  # at any moment of the start
            time.sleep(rng.uniform(0, 6))
        else:  # at any moment of a step or of writing; every such round gets further
            goal = max(before, 0) + SAVED_EVERY * rng.randint(1, 3)
            wait_for(lambda goal=goal: newest(out) >= goal, process)
            time.sleep(rng.uniform(0, 0.2))
        kill(process)
        assert newest(out) >= before
    (out / f".model.ckpt-{SAVED_EVERY}-0a1b2c3d{DATA_SUFFIX}").write_text("half-written")
    pretraining.train(out, *others)
    assert_same_state(out, tmp_path / "through", STEPS)
    ours, theirs = (RunFolder(str(path)).metrics() for path in (out, tmp_path / "through"))
    for line in ours + theirs:
        for name in ("examples_per_second", "tokens_per_second"):
            line.pop(name, None)
    assert ours == theirs
    assert not leftovers(out)


@pytest.mark.slow
def test_a_signal_saves_and_the_same_command_ends_as_without_it(pretraining, tmp_path):
    others = ("--num_train_steps=400", "--save_checkpoints_steps=1000")
    pretraining.train(tmp_path / "through", *others)
    out = tmp_path / "stopped"
    process = pretraining.start(out, *others)
    wait_for((out / "model.ckpt-0.index").exists, process)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    output = finish(process, EXIT_STATUS)
    assert "SIGTERM: saving after this step" in output
    assert "as requested, and saved it" in output.splitlines()[-1]
    assert (list(checkpoints(out)), len(RunFolder(str(out)).resumable())) == ([0], 2)
    pretraining.train(out, *others)
    assert_same_state(out, tmp_path / "through", 400)
