"""What is recorded of a run, and whether it may continue from the model that it starts with."""

from __future__ import annotations

import dataclasses
import json

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
from albert_tf.model.config import AlbertConfig, config_file
from albert_tf.training.settings import RunSettings


def refuse_early(settings: RunSettings, config: AlbertConfig, tokenizer: RunRecord) -> None:
    """Raises the ValueError of `Run.admit` about settings, model and vocabulary, and logs nothing.

    Reading the data may take minutes, which a run that is refused anyway need not wait for.

    Args:
        settings: the completed settings of the run.
        config: the model's config.
        tokenizer: the record of the tokenizer.
    """
    if settings.allow_changed_settings:  # changes are logged by `Run.admit`
        return
    folder = RunFolder(settings.output_dir).current
    record = make_record(settings, config, None, tokenizer)
    compare_record(record, folder, settings.trained_in(folder), settings, is_final=False)


def make_record(
    settings: RunSettings, config: AlbertConfig, precision: str | None, known: RunRecord
) -> RunRecord:
    """Returns the record of a run, without its start.

    Args:
        settings: the settings of the run.
        config: the model's config.
        precision: the compute dtype, such as "float32"; None if it is not known yet.
        known: what the program has found out: the files of vocabulary and training data, the task,
            and settings.
    """
    values = json.loads(run_record.to_json(settings.to_dict())) | known.settings
    values[run_record.PRECISION] = precision  # instead of "auto"
    if precision is None:
        del values[run_record.PRECISION]
    files = {
        run_record.CONFIG: _config_record(settings, config),
        run_record.INIT_CHECKPOINT: _weights_record(settings.init_checkpoint),
    }
    return dataclasses.replace(
        known,
        settings=values,
        config=config.to_dict(),
        files={**files, **known.files},
    )


def _config_record(settings: RunSettings, config: AlbertConfig) -> FileRecord:
    content = json.dumps(config.to_dict(), sort_keys=True)
    return FileRecord.of_text(content, config_file(settings.albert_config_file or ""))


def _weights_record(init_checkpoint: str | None) -> FileRecord:
    if not init_checkpoint:
        return FileRecord("none")
    path = model_folder.find_checkpoint(init_checkpoint)
    return FileRecord(f"digest {containers.digest(path)}", run_record.absolute(path))


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
    if settings.do_train and folder.has_checkpoint:
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
