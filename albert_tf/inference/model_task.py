"""What a trained model is used for: its task, the outputs of its head, and its settings.

The model is that of a run, which records its task, or of any folder that `from_pretrained` accepts,
such as a released archive. Without a record, the head in the checkpoint tells the task; opening a
TensorFlow checkpoint for that imports TensorFlow, which a recorded or given task can spare.
"""

from __future__ import annotations

import dataclasses

from absl import logging

from albert_tf import files, tensorflow_packages
from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.tasks import FILL_MASK
from albert_tf.checkpoints.weight_names import SHARED_HEAD
from albert_tf.export.runtimes import choose_runtime
from albert_tf.finetuning import registry
from albert_tf.finetuning.task import AnyTask
from albert_tf.inference.settings import PredictorSettings, Settings
from albert_tf.settings import SettingsGroup, fields_of
from albert_tf.training.settings import RunSettings


def open_model(settings: Settings) -> ModelSource:
    """Returns the model to predict with, after checking its vocabulary and `max_seq_length`.

    Raises:
        ValueError, OSError: there is no such model, what computes it is not installed, or config,
            vocabulary and `max_seq_length` do not match; the message says which.
    """
    source = ModelSource.open(
        settings.model_dir,
        settings.albert_config_file,
        settings.vocab_file,
        settings.spm_model_file,
        settings.do_lower_case,
    )
    if source.is_exported:
        choose_runtime(source.checkpoint, settings.engine, settings.precision)
    else:
        check_tensorflow(source)
    if settings.max_seq_length is not None:
        source.config.check_length(settings.max_seq_length)
    _ = source.tokenizer  # compares the vocabulary with the config and the record
    return source


def check_tensorflow(source: ModelSource) -> None:
    """Checks that TensorFlow is there for a model that was not exported for another runtime.

    Raises:
        ValueError: it is not, or in a release that does not fit.
    """
    try:
        tensorflow_packages.check()
    except ValueError as error:
        raise ValueError(
            f"{error}, or convert {source.folder} elsewhere for a runtime without TensorFlow: "
            "albert convert --output_format=openvino"
        ) from None


def find_task(source: ModelSource, wanted: str | None = None) -> str:
    """Returns the name of the task to use a model for.

    Args:
        source: the model.
        wanted: the requested task. None selects the task that the model was fine-tuned for, or
            `registry.DEFAULT` if it was not fine-tuned.

    Raises:
        ValueError: the task is not registered, the model was fine-tuned for another one, or its
            task is ambiguous.
    """
    recorded = source.run.record.task_name
    if source.is_exported:
        return _task_of_export(source, recorded, wanted)
    if wanted is None:
        return _recorded_task(source) if recorded else _task_of_head(source)
    spec = registry.get(wanted)
    if spec.is_fine_tuned and recorded not in ("", spec.name):
        raise ValueError(
            f"{source.run.path}: the model was fine-tuned for the task {recorded}, and has no "
            f"head for {wanted}"
        )
    return spec.name


def _task_of_export(source: ModelSource, recorded: str, wanted: str | None) -> str:
    """Returns the task of an exported model, which has outputs for one task only."""
    if not recorded:
        raise ValueError(
            f"{source.checkpoint}: no {run_record.FILE} beside it says what it computes. Keep the "
            "files together that albert convert has written"
        )
    if wanted is not None and registry.get(wanted).name != recorded:
        raise ValueError(
            f"{source.checkpoint} was exported for the task {recorded}, and cannot be used for "
            f"{wanted}"
        )
    return _recorded_task(source)


def _recorded_task(source: ModelSource) -> str:
    """Returns the name of the task that the record of a model has."""
    try:
        return registry.get(source.run.record.task_name).name
    except ValueError as error:
        raise ValueError(f"{source.run.path}: {error}") from None


def find_predicted_task(source: ModelSource, wanted: str | None = None) -> str:
    """Returns the name of the task to predict with a model.

    It is that of `find_task`, except that a Hugging Face model for masked words predicts these, as
    in a pipeline of transformers, although it was not fine-tuned. This is logged.

    Args:
        source: the model.
        wanted: the requested task; None lets the model decide.

    Raises:
        ValueError: see `find_task`.
    """
    task = find_task(source, wanted)
    if wanted is not None or task != registry.DEFAULT or not _is_for_masked_words(source):
        return task
    logging.info(
        "%s: opened as %s, because its config.json says AlbertForMaskedLM; for %s, pass task=%s",
        source.folder,
        FILL_MASK,
        task,
        task,
    )
    return FILL_MASK


def _is_for_masked_words(source: ModelSource) -> bool:
    if source.is_exported or source.is_of_sentence_transformers:
        return False
    if not source.run.predicts_masked_words:
        return False
    return registry.get(FILL_MASK).is_head_in(source)


def possible_tasks(source: ModelSource) -> tuple[str, ...]:
    """Returns all tasks that a model supports, starting with that of `find_predicted_task`.

    Raises:
        ValueError: the task of the model is ambiguous.
    """
    if source.is_exported:
        return (find_task(source),)
    others = [s.name for s in registry.rows() if not s.is_fine_tuned and s.is_head_in(source)]
    return tuple(dict.fromkeys((find_predicted_task(source), *others)))


def _task_of_head(source: ModelSource) -> str:
    """Returns the task that the head in the checkpoint is for, or else `registry.DEFAULT`.

    Raises:
        ValueError: several tasks have such a head.
    """
    fitting = [s for s in registry.rows() if s.is_fine_tuned and s.is_head_in(source)]
    own_heads = [spec for spec in fitting if spec.head_variable != SHARED_HEAD]
    if own_heads or not fitting:
        return own_heads[0].name if own_heads else registry.DEFAULT
    of_size = [s.name for s in fitting if s.num_outputs == s.count_outputs(source)]
    if of_size:
        raise ValueError(
            f"{source.run.path}: the head is one that several tasks have, and no file records its "
            f"task: pass the task, {' or '.join(of_size)}"
        )
    return next(spec.name for spec in fitting if spec.num_outputs is None)


def open_task(source: ModelSource, name: str, options: PredictorSettings) -> AnyTask:
    """Returns the task to predict with a model, before the model is loaded.

    Args:
        source: the model.
        name: name of the task.
        options: the arguments of `load_predictor`.

    Raises:
        ValueError: the model has no head or pooler for the task, or fewer positions than asked.
    """
    spec = registry.get(name)
    recorded = source.run.record.values_for(spec.settings_class, ("max_seq_length",))
    length = options.max_seq_length or recorded.get("max_seq_length")
    settings: SettingsGroup = dataclasses.replace(options, max_seq_length=length)
    if spec.is_fine_tuned:
        length = length or source.config.max_position_embeddings
        source.config.check_length(length)
        values = all_settings(source, spec.settings_class) | {"max_seq_length": length}
        values.pop("tflite_quantization", None)  # of an export of the run
        settings = spec.settings_class(**values)
    task = spec.task.of_trained(spec.name, settings, source, spec.count_outputs(source))
    task.name = spec.name
    task.top_k = options.top_k
    return task


def all_settings(source: ModelSource, of: type[SettingsGroup]) -> files.JsonObject:
    """Returns name → value for a program that uses a trained model, without its data.

    These are the recorded settings of data, model and predictions. Paths are not recorded; those
    that a program requires are the folder of the run's records.

    Args:
        source: the model.
        of: the settings class of the program.
    """
    run, fields = source.run, fields_of(of)
    values = dict.fromkeys((field.name for field in fields if field.is_required), run.path)
    # Devices, logs and training are those of the machine and of the run that trained.
    others = {field.name for field in fields_of(RunSettings)}
    names = [field.name for field in fields if field.is_recorded and field.name not in others]
    recorded = run.record.values_for(of, names)
    return values | recorded | {"output_dir": run.path, "do_train": False}
