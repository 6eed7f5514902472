"""What a fine-tuning program does before TensorFlow is imported.

What a run needs is read here, so that mistakes are reported early: config, vocabulary, the record
of the model that the run starts with, and the data. A run whose settings or vocabulary have changed
is refused before the data are read and tokenized, which may take minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.finetuning.rows import NoGoodRowError
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.task import AnyFineTuningTask
from albert_tf.tables.python_rows import tables_of
from albert_tf.training import admission

if TYPE_CHECKING:  # what needs TensorFlow
    from albert_tf.training.hooks import Hook


# Settings that name the files of a split, or the folder with all of them.
_FILES = ("train_file", "dev_file", "test_file", "predict_file", "data_dir")


def run_fine_tuning(
    name: str,
    task_class: type[AnyFineTuningTask],
    settings: FineTuningSettings,
    hooks: Sequence[Hook] = (),
    rows: Mapping[str, object] | None = None,
) -> FineTuningResult:
    """Trains, evaluates, predicts and exports a model for a task.

    Args:
        name: name of the task in `albert_tf.finetuning.registry`.
        task_class: the class of the task.
        settings: of its `settings_class`; see `finetuning.run_task`.
        hooks: called in training; see `albert_tf.training.hooks`.
        rows: split → rows to read instead of files.

    Raises:
        ValueError, OSError: settings, files or data are invalid or inconsistent; the message says
            which.
    """
    settings = settings.completed()
    source = open_source(settings)
    vocabulary = run_record.of_tokenizer(source.unchecked_tokenizer, settings.vocabulary_file)
    weights = admission.InitialWeights(settings.init_checkpoint)
    for each in settings.runs():
        names = _names_of(task_class, name)
        admission.refuse_early(each, source.config, vocabulary, weights, names)
    try:
        task = task_class.open(settings, source, None if rows is None else tables_of(rows))
    except NoGoodRowError as error:
        flags = [name for name in _FILES if getattr(settings, name, None)]
        asked = f". Is {' or '.join(f'--{name}' for name in flags)} right?" if flags else ""
        raise ValueError(f"{error}{asked}") from None
    from albert_tf.finetuning.fine_tune import fine_tune  # imported late: needs TensorFlow

    return fine_tune(task, source, name, hooks, weights)


def _names_of(task_class: type[AnyFineTuningTask], name: str) -> Sequence[str]:
    """Returns the names that a task may have in the record of a run; () if that is not known.

    A class of the user may choose one for the data.
    """
    if not task_class.__module__.startswith("albert_tf."):
        return ()
    return task_class.names or (name,)


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
