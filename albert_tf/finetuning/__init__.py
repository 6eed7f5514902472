"""The engine and the tools that all fine-tuning programs share.

What a run needs is read here, before TensorFlow is imported, so that mistakes are reported early:
config, vocabulary, the record of the model that the run starts with, and the data.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning import registry
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.tables.python_rows import tables_of

if TYPE_CHECKING:
    from albert_tf.training.hooks import Hook


def run_task(
    name: str,
    settings: FineTuningSettings,
    hooks: Sequence[Hook] = (),
    data: object = None,
    rows: Mapping[str, object] | None = None,
) -> FineTuningResult:
    """Trains, evaluates, predicts and exports a model for a task.

    Args:
        name: name of the task in `albert_tf.finetuning.registry`.
        settings: of the class in the task's row. If none of `do_train`, `do_eval`, `do_predict` and
            `export_dir` is set, it trains and evaluates. Config and vocabulary can be omitted if
            they are beside `init_checkpoint`.
        hooks: called in training; see `albert_tf.training.hooks`.
        data: the data, if they have been read: what the `reader` of the task's row returns.
        rows: split → rows to read instead of files: an iterable of dicts, a `datasets.Dataset`, or
            a DataFrame. Only tasks with a `reader` take them.

    Returns:
        The folder, step and metrics of the best checkpoint on the dev set.

    Raises:
        ValueError, OSError: the task does not exist, or settings, files or data are invalid or
            inconsistent; the message says which.
    """
    spec = registry.get(name)
    if not spec.is_fine_tuned:
        raise ValueError(f"task={name!r}: no model is fine-tuned for it")
    settings = settings.completed()
    source = open_source(settings)
    if rows is not None and spec.reader is None:
        raise ValueError(f"task={name!r} reads its data itself: it takes no rows of Python")
    if spec.reader is not None and data is None:
        given = [] if rows is None else [tables_of(rows)]
        data = spec.reader(settings, source.trained, *given)
    from albert_tf.finetuning.run import fine_tune  # imported late: needs TensorFlow

    make_task = spec.task_class.make
    if data is not None:
        make_task = functools.partial(make_task, data=data)
    return fine_tune(settings, source, make_task, name, hooks)


def open_source(settings: FineTuningSettings) -> ModelSource:
    """Returns the model that a run, or each run of a sweep, starts with.

    Args:
        settings: the completed settings.

    Raises:
        ValueError, OSError: a file is damaged, config, vocabulary and `max_seq_length` do not
            match, or the folder of a run contains another model; the message says which.
    """
    runs = settings.runs()
    source = runs[0].source
    config_file = settings.albert_config_file or ""
    for run in runs:
        RunFolder(run.output_dir).check_config(source.config, config_file)
    entries, vocab_size = source.unchecked_tokenizer.vocab_size, source.config.vocab_size
    if entries > vocab_size:  # token ids would be out of range
        raise ValueError(
            f"{settings.vocabulary_file} has {entries} entries, but {config_file} has "
            f"vocab_size={vocab_size}: the vocabulary does not belong to this model"
        )
    source.config.check_length(settings.max_seq_length)
    return source
