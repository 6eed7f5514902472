"""Runs programs as processes, cuts runs short, and reads their checkpoints and logs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest

from albert_tf.checkpoints import containers
from albert_tf.training.hooks import Hook
from albert_tf.training.interruption import InterruptedRunError
from tests.conftest import ROOT

TIMEOUT = 600  # seconds, of one process


def start_program(script, *flags, code=(), **environment):
    """Starts a script of the root folder; `code` are arguments of Python before it."""
    log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process
    process = subprocess.Popen(
        [sys.executable, *code, str(ROOT / script), *flags],
        env=os.environ | environment,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    process.log = log
    return process


def output_of(process):
    """What a program has printed."""
    process.log.seek(0)
    return process.log.read()


def finish(process, status=0):
    """Waits for a program, which must end with a status; returns what it has printed."""
    process.wait(TIMEOUT)
    output = output_of(process)
    process.log.close()
    assert process.returncode == status, output
    return output


def kill(process):
    """Kills a program as the system does when memory runs out."""
    process.kill()
    return finish(process, -signal.SIGKILL)


def wait_for(condition, process):
    """Waits until a condition holds, while a program runs."""
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert process.poll() is None, output_of(process)
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


def tensors(prefix):
    """All tensors of a checkpoint, by name."""
    reader = containers.open_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_same_state(ours, theirs, step, atol=0):
    """Compares the checkpoints of two runs at a step."""
    found, expected = (tensors(folder / f"model.ckpt-{step}") for folder in (ours, theirs))
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=atol, err_msg=name)


def logged_rates(folder):
    """Step → the learning rate that a run has logged for it."""
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return {row["step"]: row["learning_rate"] for row in rows if "learning_rate" in row}


class _KillAt(Hook):
    def __init__(self, step):
        self._step = step

    def on_step(self, trainer, result):
        if trainer.step == self._step:
            raise KeyboardInterrupt


class _StopAt(Hook):
    def __init__(self, step):
        self._step = step

    def on_start(self, trainer):
        self.on_step(trainer, None)

    def on_step(self, trainer, result):
        if trainer.step == self._step - 1:
            signal.raise_signal(signal.SIGTERM)


def killed_at(step):
    """A hook that ends a run by KeyboardInterrupt at `step`, before it is logged and saved."""
    return _KillAt(step)


def stopped_at(step):
    """A hook that sends SIGTERM to a run in `step`: it ends by InterruptedRunError after it."""
    return _StopAt(step)


def interrupted():
    """Context manager in which a run has to be cut short by `killed_at` or `stopped_at`."""
    return pytest.raises((KeyboardInterrupt, InterruptedRunError))
