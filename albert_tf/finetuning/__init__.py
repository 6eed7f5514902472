"""The engine and the tools that all fine-tuning programs share."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from albert_tf.finetuning import registry
from albert_tf.finetuning.inputs import read_inputs
from albert_tf.finetuning.registry import FineTuningResult

if TYPE_CHECKING:
    from albert_tf.training.hooks import Hook


def run_task(
    name: str, settings: Any, hooks: Sequence[Hook] = (), data: Any = None
) -> FineTuningResult:
    """Trains, evaluates, predicts and exports a model for a task.

    Args:
        name: name of the task in `albert_tf.finetuning.registry`.
        settings: of the class in the task's row. If none of `do_train`, `do_eval`, `do_predict` and
            `export_dir` is set, it trains and evaluates. Config and vocabulary can be omitted if
            they are beside `init_checkpoint`.
        hooks: called in training; see `albert_tf.training.hooks`.
        data: the data, if they have been read: what the `reader` of the task's row returns.

    Returns:
        The folder, step and metrics of the best checkpoint on the dev set.

    Raises:
        ValueError, OSError: the task does not exist, or settings, files or data are invalid or
            inconsistent; the message says which.
    """
    spec = registry.get(name)
    if not spec.is_fine_tuned:
        raise ValueError(f"task={name!r}: no model is fine-tuned for it")
    inputs = read_inputs(settings.completed())
    if spec.reader is not None and data is None:
        data = registry.resolve(spec.reader)(inputs.settings, inputs.trained)
    from albert_tf.finetuning.run import fine_tune  # imported late: needs TensorFlow

    make_task = registry.resolve(spec.task).make
    if data is not None:
        make_task = functools.partial(make_task, data=data)
    return fine_tune(inputs, make_task, name, hooks)
