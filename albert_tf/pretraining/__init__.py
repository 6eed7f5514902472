"""Pre-training: records in, checkpoints out.

>>> from albert_tf import pretraining
>>> settings = pretraining.Settings(
...     albert_config_file="albert_config.json",
...     input_file="records/train-*",
...     output_dir="model",
...     train_batch_size=32,
...     learning_rate=0.00015,
...     do_eval=True,
... )
>>> pretraining.run(settings).evaluations[-1].metrics["masked_lm_accuracy"]  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from albert_tf.pretraining.settings import Settings

if TYPE_CHECKING:
    from albert_tf.pretraining.program import Result

__all__ = ["Settings", "run"]


def run(settings: Settings) -> Result:
    """Pre-trains ALBERT and evaluates it, as run_pretraining.py does; the same settings resume.

    Args:
        settings: as the flags of that program.

    Returns:
        the evaluations of all checkpoints.

    Raises:
        ValueError, OSError: settings, records and checkpoints do not go together; says which.
        ArithmeticError: the loss became NaN or infinite.
        InterruptedRunError: a signal asked to stop; the same settings resume the run.
    """
    if not settings.has_workers:  # else after joining them: they hear of a failure
        settings.check_paths()
    from albert_tf.pretraining import program  # TensorFlow, which settings do without

    return program.run(settings)
