"""The evaluation of the checkpoint that a run ends with."""

from __future__ import annotations

from albert_tf.checkpoints import containers
from albert_tf.checkpoints.evaluations import Evaluation
from albert_tf.checkpoints.run_folder import RunFolder


def evaluation_of_best(folder: RunFolder) -> Evaluation | None:
    """Returns the latest evaluation of `model.ckpt-best` in the folder of a run, or None."""
    if not folder.has_best:
        return None
    name = containers.digest(folder.best)
    matching = [e for e in folder.evaluations([name]) if e.checkpoint == name]
    return matching[-1] if matching else None
