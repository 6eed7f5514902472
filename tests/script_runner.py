"""Reads checkpoints of runs, cuts runs short, and catches what training would begin with."""

from __future__ import annotations

import contextlib
import json
import signal

import numpy as np
import pytest
from absl import logging

from albert_tf.checkpoints import containers
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


@contextlib.contextmanager
def killed_at(step):
    """A run inside has to come to `step`, and ends when it is about to save it."""
    save = Trainer.save

    def fail(trainer, **options):
        if trainer.step == step:
            raise KeyboardInterrupt
        return save(trainer, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "save", fail)
        with pytest.raises(KeyboardInterrupt):
            yield


@contextlib.contextmanager
def stopped_at(step):
    """A run inside receives SIGTERM in this step, and has to stop."""
    take_step = Trainer._take_step

    def take(trainer, *arguments):
        result = take_step(trainer, *arguments)
        if trainer.step == step:
            signal.raise_signal(signal.SIGTERM)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_take_step", take)
        with pytest.raises(InterruptedRunError, match=f"stopped at step {step} of"):
            yield


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
