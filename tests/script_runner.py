"""Reads checkpoints of runs, cuts runs short, and catches what training would begin with."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest
from absl import logging

from albert_tf.checkpoints import containers
from albert_tf.training.hooks import Hook
from albert_tf.training.interruption import InterruptedRunError
from albert_tf.training.loop import Trainer


def tensors(prefix):
    """All tensors of a checkpoint, by name."""
    reader = containers.open_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


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


def start_of(run, monkeypatch, *always):
    """Runs a program up to the training loop.

    Returns:
        a function of further arguments: what training would begin with, and the warnings.
    """
    trainers, logged = [], []
    monkeypatch.setattr(Trainer, "train", lambda trainer, *_, **__: trainers.append(trainer))
    monkeypatch.setattr(logging, "warning", lambda text, *args: logged.append(text % args))

    def start(*arguments):
        logged.clear()
        run(*always, *arguments)
        state = {name: np.asarray(value) for name, value in trainers.pop().state().items()}
        return state, "\n".join(logged)

    return start
