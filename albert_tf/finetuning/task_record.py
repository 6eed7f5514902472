"""What a run records of its task: vocabulary, training data, labels, and a user's file."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from typing import Protocol, runtime_checkable

from albert_tf import files
from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.finetuning import imported_modules, registry
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.task import AnyTask
from albert_tf.model.tokenization import Tokenizer


@runtime_checkable
class HasPath(Protocol):
    """Examples that know where they are from."""

    path: str


def describe_task(
    settings: FineTuningSettings,
    tokenizer: Tokenizer,
    task: AnyTask,
    train: object,
    name: str = "",
) -> RunRecord:
    """Returns the record of the task, its vocabulary, training data and module.

    The module is that of a task outside of this package: its loss and metrics are in there.

    Args:
        settings: the settings, shared by all runs.
        tokenizer: the tokenizer, with the vocabulary.
        task: the task that read the data.
        train: the training examples, or None without training.
        name: name of the task in the registry, unless the task itself has one.

    Raises:
        ValueError: no task of this name is registered.
    """
    name = task.name or name
    if name:
        registry.get(name)
    of_text = run_record.of_tokenizer(tokenizer, settings.vocabulary_file)
    known = dict(of_text.files)
    if train is not None:
        path = train.path if isinstance(train, HasPath) else ""
        known[run_record.TRAINING_EXAMPLES] = FileRecord.of(task.checksum(train), path)
    source = _source_of(task)
    if source:
        known[run_record.TASK_MODULE] = FileRecord.of(_checksum(source), source)
        known |= _describe_imports(type(task).__module__, source)
    details = {
        "name": name,
        "labels": list(task.labels),
        run_record.SELECTION_METRIC: task.selection_metric,
        **task.details(),
    }
    return RunRecord(settings=of_text.settings, files=known, task=details)


def _describe_imports(module: str, source: str) -> dict[str, FileRecord]:
    """Returns the entry for the modules of the user that a task's file imports, if any."""
    found = imported_modules.find_imported(module, source)
    if not found:
        return {}
    contents = hashlib.sha256(" ".join(sorted(map(_checksum, found.values()))).encode())
    paths = ", ".join(found.values())
    return {
        run_record.TASK_IMPORTS: dataclasses.replace(
            FileRecord.of(contents.hexdigest(), ""), path=paths
        )
    }


def _checksum(path: str) -> str:
    return hashlib.sha256(files.read_bytes(path)).hexdigest()


def _source_of(task: AnyTask) -> str | None:
    """Returns the file of a task's class; None in this package, and without a file."""
    if type(task).__module__.startswith(f"{registry.__package__}."):
        return None
    try:
        return inspect.getsourcefile(type(task))
    except (OSError, TypeError):  # typed into an interpreter
        return None
