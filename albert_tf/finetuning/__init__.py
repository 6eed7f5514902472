"""The tasks that models are fine-tuned for, and the engine that all of them share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from albert_tf.finetuning import registry
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.finetuning.run import run_fine_tuning
from albert_tf.finetuning.settings import FineTuningSettings

if TYPE_CHECKING:  # what needs TensorFlow
    from albert_tf.training.hooks import Hook


def run_task(
    name: str,
    settings: FineTuningSettings,
    hooks: Sequence[Hook] = (),
    rows: Mapping[str, object] | None = None,
) -> FineTuningResult:
    """Trains, evaluates, predicts and exports a model for a task.

    Args:
        name: name of the task in `albert_tf.finetuning.registry`.
        settings: of the `settings_class` of the task. If none of `do_train`, `do_eval`,
            `do_predict` and `export_dir` is set, it trains and evaluates. Config and vocabulary can
            be omitted if they are beside `init_checkpoint`.
        hooks: called in training; see `albert_tf.training.hooks`.
        rows: split → rows to read instead of files: an iterable of dicts, a `datasets.Dataset`, or
            a DataFrame. Tasks that read their data themselves take none.

    Returns:
        The folder, step and metrics of the best checkpoint on the dev set.

    Raises:
        ValueError, OSError: the task does not exist, or settings, files or data are invalid or
            inconsistent; the message says which.
    """
    return run_fine_tuning(name, registry.get(name).fine_tuned, settings, hooks, rows)
