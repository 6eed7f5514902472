"""Runs a root script inside the test process, with flags of its own, and cuts runs short.

Two scripts define flags of the same name with different defaults, so one process can import only
one of them, unless each finds an empty table of flags.
"""

from __future__ import annotations

import contextlib
import importlib
import sys

import numpy as np
import pytest
from absl import flags, logging

from albert_tf.checkpoints import containers
from albert_tf.training.loop import Trainer

ALWAYS_THERE = ("absl.app", "absl.logging")


def _empty_table():
    """The state of a `FlagValues` that has absl's own flags only."""
    table = flags.FlagValues()
    for module, defined in flags.FLAGS.flags_by_module_dict().items():
        for flag in defined if module in ALWAYS_THERE else ():
            table[flag.name] = flag
    table.mark_as_parsed()
    return table.__dict__


@contextlib.contextmanager
def script(name):
    """Imports the script `name`; gives a function that runs its `main` with arguments."""
    kept = dict(flags.FLAGS.__dict__)
    flags.FLAGS.__dict__.update(_empty_table())
    sys.modules.pop(name, None)
    try:
        module = importlib.import_module(name)
        defaults = {flag: flags.FLAGS[flag].default for flag in flags.FLAGS}

        def run(*arguments):
            for flag, default in defaults.items():
                flags.FLAGS[flag].value, flags.FLAGS[flag].present = default, 0
            flags.FLAGS([name, *map(str, arguments)])
            module.main([])

        yield run
    finally:
        flags.FLAGS.__dict__.clear()
        flags.FLAGS.__dict__.update(kept)
        sys.modules.pop(name, None)


def tensors(prefix):
    """All tensors of a checkpoint, by name."""
    reader = containers.open_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@contextlib.contextmanager
def killed_at(step):
    """A run inside has to come to `step`, and ends when it is about to save it."""
    save = Trainer.save

    def fail(trainer):
        if trainer.step == step:
            raise KeyboardInterrupt
        return save(trainer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "save", fail)
        with pytest.raises(KeyboardInterrupt):
            yield


def start_of(run, monkeypatch, *always):
    """Runs a script up to the training loop.

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
