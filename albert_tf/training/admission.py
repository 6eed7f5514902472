"""What is recorded of a run, and whether it may continue from the model that it starts with."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Sequence

from albert_tf.checkpoints import (
    containers,
    model_folder,
    record_comparison,
    run_record,
    tasks,
)
from albert_tf.checkpoints.record_comparison import Changes
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.files import Json
from albert_tf.model.config import AlbertConfig, config_file
from albert_tf.training.settings import RunSettings


class InitialWeights:
    """The weights that a run, or all runs of a sweep, start with.

    Args:
        init_checkpoint: their path; None or "" for random ones.
    """

    def __init__(self, init_checkpoint: str | None) -> None:
        self._path = init_checkpoint

    @functools.cached_property
    def record(self) -> FileRecord:
        """What is recorded of them, for which their file is read, once."""
        if not self._path:
            return FileRecord("none")
        path = model_folder.find_checkpoint(self._path)
        return FileRecord(f"digest {containers.digest(path)}", run_record.absolute(path))


def refuse_early(
    settings: RunSettings,
    config: AlbertConfig,
    tokenizer: RunRecord,
    weights: InitialWeights,
    tasks: Sequence[str],
) -> None:
    """Raises the ValueError of `Run.admit` about task, model and vocabulary, and logs nothing.

    Reading the data may take minutes, which a run that is refused anyway need not wait for.

    Args:
        settings: the completed settings of the run.
        config: the model's config.
        tokenizer: the record of the tokenizer.
        weights: the weights that the run starts with, which only a resumed run is compared by.
        tasks: the names that the task may have, which may depend on its data; () if any.
    """
    if settings.allow_changed_settings:  # changes are logged by `Run.admit`
        return
    folder = RunFolder(settings.output_dir).current
    trained = settings.trained_in(folder)
    before = folder if settings.do_train else trained
    name = before.record.task_name if before else ""
    task: dict[str, Json] = {"name": name if name in tasks else tasks[0]} if tasks else {}
    early = dataclasses.replace(tokenizer, task=task)
    compared = weights if _resumes(settings, folder) else None
    record = make_record(settings, config, None, early, compared)
    compare_record(record, folder, trained, settings, is_final=False)


def _resumes(settings: RunSettings, folder: RunFolder) -> bool:
    """Returns whether a run continues the training in its folder."""
    return settings.do_train and folder.has_checkpoint


def make_record(
    settings: RunSettings,
    config: AlbertConfig,
    precision: str | None,
    known: RunRecord,
    weights: InitialWeights | None,
) -> RunRecord:
    """Returns the record of a run, without its start.

    Args:
        settings: the settings of the run.
        config: the model's config.
        precision: the compute dtype, such as "float32"; None if it is not known yet.
        known: what the program has found out: the files of vocabulary and training data, the task,
            and settings.
        weights: those that the run starts with; None if they are not compared, nor recorded.
    """
    values = json.loads(run_record.to_json(settings.to_dict())) | known.settings
    values[run_record.PRECISION] = precision  # instead of "auto"
    if precision is None:
        del values[run_record.PRECISION]
    files = {run_record.CONFIG: _config_record(settings, config)}
    if weights is not None:
        files[run_record.INIT_CHECKPOINT] = weights.record
    return dataclasses.replace(
        known,
        settings=values,
        config=config.to_dict(),
        files={**files, **known.files},
    )


def _config_record(settings: RunSettings, config: AlbertConfig) -> FileRecord:
    content = json.dumps(config.to_dict(), sort_keys=True)
    return FileRecord.of_text(content, config_file(settings.albert_config_file or ""))


def compare_record(
    record: RunRecord,
    folder: RunFolder,
    trained: RunFolder | None,
    settings: RunSettings,
    is_final: bool = True,
) -> Changes:
    """Compares the record of a run with that of its folder, or of the model that it starts with.

    Args:
        record: the record.
        folder: the folder of the run.
        trained: folder of the weights that the run starts with; None for random weights.
        settings: the settings of the run.
        is_final: whether what cannot be compared is logged; False for a part of the record.

    Returns:
        The accepted changes.

    Raises:
        ValueError: something has changed, and `allow_changed_settings` is not set.
    """
    if _resumes(settings, folder):
        changes = record_comparison.check_training(folder, record, settings, is_final)
        if changes or trained is folder:
            return changes
    if trained is None:
        return {}
    names = set(record_comparison.OF_TEXT)
    if not settings.do_train:
        names |= {run_record.TASK, run_record.TASK_MODULE}
        names |= settings.names_for_model
        labels = trained.record.labels
        if not labels or not tasks.are_default(labels):
            names.add(run_record.LABELS)
    return record_comparison.check_model(trained, record, names, settings, is_final)
