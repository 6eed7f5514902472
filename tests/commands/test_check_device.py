"""The check of a device: a table with a row for each check, whatever happens to the others."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.commands import check_device
from albert_tf.commands.check_device import Settings
from albert_tf.pretraining.device_checks import Outcome
from tests.conftest import ROOT

SPEED = {"seconds": 2.0, "megabytes": 900, "precision": "float32"}


def rows_of(text):
    """Returns the cells of the rows of a Markdown table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def outcomes(monkeypatch, **found):
    """Makes the checks of other processes return or raise what is given."""

    def check(name, *_):
        if isinstance(found[name], Exception):
            raise found[name]
        return found[name]

    monkeypatch.setattr(check_device, "_in_own_process", check)


def test_a_failed_check_does_not_end_the_others(monkeypatch, capsys):
    outcomes(
        monkeypatch,
        versions=Outcome(True, "a CPU"),
        float32=ChildProcessError("exit status -11: Segmentation | fault"),
        bfloat16=Outcome(False, "outputs 0.3"),
        two_devices=Outcome(None, "needs two GPUs"),
    )
    checks = ("versions", "float32", "bfloat16", "two_devices")
    with pytest.raises(ChildProcessError, match="failed: agreement with the CPU, float32, agreem"):
        check_device.run(Settings(device="cpu", checks=checks))
    assert rows_of(capsys.readouterr().out) == [
        ["device and versions", "passed", "a CPU"],
        ["agreement with the CPU, float32", "**failed**", "exit status -11: Segmentation / fault"],
        ["agreement with the CPU, bfloat16", "**failed**", "outputs 0.3"],
        ["two devices", "skipped", "needs two GPUs"],
    ]


def test_checks_that_are_all_skipped_are_no_success(monkeypatch):
    outcomes(monkeypatch, two_devices=Outcome(None, "needs two GPUs"))
    with pytest.raises(ChildProcessError, match="nothing was checked: --checks=two_devices"):
        check_device.run(Settings(device="cpu", checks=("two_devices",)))


def test_hugging_face_is_compared_where_it_is_installed(monkeypatch):
    ours, settings = Outcome(True, "2 s", SPEED), Settings()
    monkeypatch.setattr(
        check_device, "_measure_hugging_face", lambda *_: {"seconds": 4.0, "megabytes": 1200}
    )
    text = check_device._beside_hugging_face(ours, "8x128", "cpu", settings).text
    assert text == "2 s; Hugging Face 4 s, peak 1200 MB; ratio 0.50, of memory 0.75"

    def is_missing(*_):
        raise ChildProcessError("exit status 1: ModuleNotFoundError: No module named 'torch'")

    monkeypatch.setattr(check_device, "_measure_hugging_face", is_missing)
    found = check_device._beside_hugging_face(ours, "8x128", "cpu", settings)
    assert found.is_passed
    assert found.text.startswith("2 s; Hugging Face skipped: exit status 1: ModuleNotFoundError")


def test_a_process_that_fails_or_hangs_is_a_failed_check():
    code = "import sys; print('first\\nthe last words', file=sys.stderr); sys.exit(3)"
    with pytest.raises(ChildProcessError, match=r"^exit status 3: the last words$"):
        check_device._run_python(["-c", code], "cpu", 60)
    with pytest.raises(ChildProcessError, match=r"^not finished after 0\.2 seconds$"):
        check_device._run_python(["-c", "import time; time.sleep(60)"], "cpu", 0.2)


def test_the_cpu_is_checked_without_gpus():
    assert check_device._environment("cpu")["CUDA_VISIBLE_DEVICES"] == "-1"
    assert check_device._environment("gpu").get("CUDA_VISIBLE_DEVICES") != "-1"


def test_checkpoints_are_compared_tensor_by_tensor(tmp_path):
    first, second, other = (str(tmp_path / f"{name}.ckpt") for name in "abc")
    save_checkpoint(first, {"x": np.array([1.0, 2.0], np.float32), "y": np.array(3)})
    save_checkpoint(second, {"x": np.array([1.0, 2.5], np.float32), "y": np.array(3)})
    save_checkpoint(other, {"x": np.array([1.0, 2.0], np.float32)})
    assert check_device._largest_difference(first, first) == 0.0
    assert check_device._largest_difference(first, second) == 0.5
    with pytest.raises(ValueError, match=r"other tensors: \['y'\]"):
        check_device._largest_difference(first, other)


def test_unknown_checks_and_devices_are_refused():
    with pytest.raises(ValueError, match="checks"):
        Settings(checks=("speed", "weather"))
    with pytest.raises(ValueError, match="device"):
        Settings(device="cuda")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_checks_pass_on_the_cpu():
    checks = ",".join(name for name in check_device.TITLES if name != "speed")
    command = ["bash", "tools/check_device.sh", "--device=cpu", f"--checks={checks}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row[1] for row in rows_of(done.stdout)] == ["passed"] * 6
