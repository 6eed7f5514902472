"""The check of a device: what its processes find, and the table of their outcomes."""

from __future__ import annotations

from unittest import mock

import check_device
import numpy as np
import pytest
from check_device import FAILED, PASSED, SKIPPED


@pytest.mark.ci
def test_outcomes_of_the_processes_are_rows_and_a_failed_one_does_not_end_the_others(
    monkeypatch, capsys
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    code = {
        "versions": (
            "import json, os; print('note')\n"
            "print(json.dumps(['passed', os.environ['CUDA_VISIBLE_DEVICES'] + ' | CPU']))"
        ),
        "float32": "import sys; print('first\\nlast words', file=sys.stderr); sys.exit(3)",
        "bfloat16": "import time; time.sleep(60)",
        "two_devices": 'print(\'["skipped", "needs two GPUs"]\')',
    }
    monkeypatch.setattr(check_device, "MEASURE", f"import sys; exec({code!r}[sys.argv[1]])")
    monkeypatch.setattr(check_device, "SECONDS", 2)
    with pytest.raises(SystemExit, match=r"^failed: step in float32, step in bfloat16; "):
        check_device.run("cpu", "", list(code))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]] == [
        ["device and versions", PASSED, "-1 / CPU"],  # without GPUs
        ["step in float32", FAILED, "exit status 3: last words"],
        ["step in bfloat16", FAILED, "not finished after 2 seconds"],
        ["two devices", SKIPPED, "needs two GPUs"],
    ]


@pytest.mark.ci
def test_a_device_that_computes_something_else_fails(monkeypatch):
    gradients = iter([1.0, 1.01] * 2)  # of the CPU and the device, without and with dropout

    def train(*arguments):
        training = mock.Mock(**{"step.return_value": 3.0})
        training.gradient.return_value = [np.full(5, next(gradients))]
        return training

    monkeypatch.setattr(check_device, "Training", train)
    outcome, text = check_device.check_agreement("float32", "cpu", "")
    assert outcome == FAILED
    assert text.count("loss 0.0e+00, gradient 1.0e-02") == 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_checks_but_that_of_the_speed_pass_on_the_cpu():
    check_device.run("cpu", "", list(check_device.CHECKS)[:-2])
