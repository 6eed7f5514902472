"""The checkpoints of a training run: what they contain, saved and restored.

Resuming a run is exact: a checkpoint contains weights, optimizer moments and step, and everything
else that a step depends on (its records and dropout masks) is a function of the seed and the step.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import tensorflow as tf

from albert_tf import files
from albert_tf.checkpoints import containers, loading, store
from albert_tf.checkpoints.arrays import as_tensor
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.weight_names import GLOBAL_STEP, by_name
from albert_tf.model import optimization
from albert_tf.model.initialization import set_value
from albert_tf.training.step import TrainStep


class NonFiniteLossError(ArithmeticError):
    """The loss, a gradient or an updated weight is NaN or infinite."""


class Checkpoints:
    """The checkpoints of a training run.

    Args:
        take_step: the training step, with the model, the optimizer and the loss scale.
        folder: the folder of the run.
        keep: number of most recent checkpoints to keep; 0 keeps all.
    """

    def __init__(self, take_step: TrainStep, folder: RunFolder, keep: int) -> None:
        self._model = take_step.model
        self._optimizer = take_step.optimizer
        self._loss_scale = take_step.loss_scale
        self._slots = take_step.optimizer.slot_variables(take_step.variables)
        self._folder = folder
        self._keep = keep

    def state(self, step: int) -> dict[str, tf.Variable | tf.Tensor]:
        """Returns the content of a checkpoint: weights, moments, loss scale and `global_step`."""
        state: dict[str, tf.Variable | tf.Tensor] = by_name(self._model.variables)
        state |= self._slots
        if self._loss_scale is not None:
            state["loss_scale/value"] = self._loss_scale.value
            state["loss_scale/good_steps"] = self._loss_scale.good_steps
        state[GLOBAL_STEP] = tf.constant(step, tf.int64)
        return state

    @property
    def latest(self) -> str:
        """Prefix of the newest checkpoint, for messages."""
        return next(reversed(self._folder.resumable().values()), "(none)")

    def restore_latest(self) -> int | None:
        """Restores the newest checkpoint; returns its step, or None if there is none.

        Raises:
            ValueError: the checkpoint is damaged, belongs to another model or optimizer (the
                message lists the differences), is named after another step, or was put in the place
                of the run's own.
        """
        prefix = store.newest(self._folder)
        if prefix is None:
            return None
        weights = containers.open_weights(prefix)
        variables = self.state(0)
        del variables[GLOBAL_STEP]
        shapes = {name: list(shape) for name, shape in weights.shapes.items()}
        self._check_shapes(prefix, shapes, variables)
        step = loading.read_step(prefix)
        store.check_name(prefix, step)
        store.check_is_ours(self._folder, prefix, step)
        values = {name: weights.read(name) for name in variables}
        for name, variable in variables.items():
            set_value(variable, as_tensor(values.pop(name)))
        self._optimizer.iterations.assign(step)
        return step

    def _check_shapes(
        self, prefix: str, found: dict[str, list[int]], variables: dict[str, tf.Variable]
    ) -> None:
        """Raises ValueError unless a checkpoint has the variables, in their shapes."""
        wrong = [
            f"  {name}: expected {variable.shape.as_list()}, found {found.get(name, 'nothing')}"
            for name, variable in variables.items()
            if found.get(name) != variable.shape.as_list()
        ]
        others = optimization.optimizers_of(found, self._optimizer)
        if wrong and others:
            raise ValueError(
                f"{prefix} has the moments of --optimizer={' or '.join(others)}: pass that to "
                "resume training, or pass another --output_dir and the checkpoint as "
                "--init_checkpoint to start a new run from its weights."
            )
        if wrong or GLOBAL_STEP not in found:
            raise ValueError(
                f"{prefix} is not a checkpoint of this model and optimizer, so training cannot be "
                "resumed:\n" + "\n".join(wrong[:20]) + "\nUse another --output_dir, or pass the "
                "checkpoint as --init_checkpoint to start a new run from its weights."
            )

    def check_finite(self, step: int) -> None:
        """Checks that the last update made no weight or moment NaN or infinite.

        The loss only shows this in the next step, after the weights would have been saved.

        Raises:
            NonFiniteLossError: a weight or moment is not finite.
        """
        state = self.state(step)
        names = [name for name, value in state.items() if value.dtype.is_floating]
        # A single transfer from the device for all variables.
        flags = tf.stack([tf.reduce_all(tf.math.is_finite(state[name])) for name in names])
        bad = [name for name, is_good in zip(names, flags.numpy(), strict=True) if not is_good]
        if bad:
            raise _state_error(bad, step, self.latest)

    def save(self, step: int, only_to_resume: bool = False) -> str:
        """Writes a checkpoint and the list of checkpoints, and removes old ones.

        Args:
            step: number of completed steps.
            only_to_resume: whether the run is stopped between two of its checkpoints. This one is
                called `model.ckpt-interrupted_<step>` instead of `model.ckpt-<step>`, and is
                removed when the next one is written, so that a run which was stopped ends with the
                same checkpoints as one that was not.

        Returns:
            The prefix of the checkpoint.
        """
        kind = "interrupted_" if only_to_resume else ""
        prefix = self._folder.file(f"model.ckpt-{kind}{step}")
        store.save_checkpoint(
            prefix, self.state(step), lambda digest: self._folder.add_checkpoint(step, digest)
        )
        store.remove_old_checkpoints(self._folder, self._keep, prefix)
        names = [os.path.basename(p) for p in self._folder.resumable().values()]
        with files.write_atomically(self._folder.file("checkpoint")) as stream:
            stream.write(f'model_checkpoint_path: "{names[-1]}"\n')
            stream.writelines(f'all_model_checkpoint_paths: "{name}"\n' for name in names)
        return prefix


def _state_error(names: Sequence[str], step: int, last_checkpoint: str) -> NonFiniteLossError:
    """Returns the error of a state that is not saved.

    Args:
        names: names of the weights and moments that are not finite.
        step: number of updates; 0 for the initial weights.
        last_checkpoint: prefix of the newest checkpoint.
    """
    origin = f"update {step}" if step else "initialization"
    advice = (
        "Lower --learning_rate or lengthen the warm-up." if step else "Check --init_checkpoint."
    )
    return NonFiniteLossError(
        f"{len(names)} weights and moments are not finite after {origin}; the first is {names[0]}. "
        f"They are not saved; the last good checkpoint is {last_checkpoint}. {advice}"
    )
