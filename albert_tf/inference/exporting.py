"""Exports the model in a folder: `export_saved_model`, and `deploy` for other runtimes.

The files of `deploy` take ids and return what a SavedModel returns for them (docs/serving.md). Each
is compared with the model before the folder gets its name.

Letters: B batch size, S sequence length.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import cast

import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import model_folder, run_record, tasks
from albert_tf.checkpoints.loading import encoder_of
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.checkpoints.sentence_modules import RECORDED
from albert_tf.checkpoints.tasks import EMBEDDINGS
from albert_tf.export import embeddings, quantizations, saved_model
from albert_tf.export.check import TOLERANCE, compare, random_batch, random_texts
from albert_tf.export.formats import FORMATS, Format
from albert_tf.export.quantizations import NONE
from albert_tf.export.runtimes import Batch, Step, identify
from albert_tf.export.signatures import DEFAULT, TENSORS, ExportedModel, Signature
from albert_tf.finetuning import registry
from albert_tf.finetuning.batching import Padding, evaluation_batches
from albert_tf.finetuning.task import AnyFineTuningTask
from albert_tf.inference.model_task import find_task, open_task
from albert_tf.inference.predictor import BATCH_SIZE
from albert_tf.inference.pretrained import load_trained
from albert_tf.inference.settings import PredictorSettings
from albert_tf.model import dispatch
from albert_tf.model.poolings import EXPORTED_POOLINGS, POOLINGS


def export_saved_model(
    folder: files.PathLike,
    export_dir: files.PathLike,
    task: str | None = None,
    max_seq_length: int | None = None,
) -> str:
    """Writes a SavedModel of the model in a folder, as `--export_dir` of the programs does.

    Its signatures take serialized examples, tensors and, to classify or embed texts, raw strings
    (docs/serving.md). Its weights are float32. TensorFlow Serving can serve it, and
    `albert predict --model_dir` and `load_predictor` accept its folder.

    >>> model, tokenizer = albert_tf.from_pretrained(
    ...     "albert_tiny/", "classification", num_labels=2
    ... )
    >>> albert_tf.save_pretrained(model, "topics", tokenizer, labels=["sports", "politics"])
    >>> served = tf.saved_model.load(albert_tf.export_saved_model("topics", "export"))
    >>> text = tf.constant(["The match ended 2:1."])
    >>> answer = served.signatures["texts"](text_a=text, text_b=tf.constant([""]))
    >>> answer["probabilities"].shape
    TensorShape([1, 2])

    Args:
        folder: a folder that `load_predictor` accepts, such as one written by `save_pretrained`.
        export_dir: parent folder of the exports, which is created if needed.
        task: as in `load_predictor`. A model that was not fine-tuned is exported for embeddings.
        max_seq_length: sequence length of serialized examples, and maximum sequence length of
            texts, in tokens. Defaults to that of training, or else to the model's maximum.

    Returns:
        The folder of the export, `<export_dir>/<Unix time>`.

    Raises:
        FileNotFoundError: the folder has no checkpoint, config or vocabulary.
        ValueError: the model has no head for the task; `max_seq_length` exceeds the model's
            maximum, or leaves no room for the context after a question of the longest length; or
            `export_dir` cannot be written to.
    """
    source = ModelSource.open(folder)
    model_files = saved_model.model_files(
        source.config_file, source.vocabulary_file, source.run.record
    )
    with saved_model.float32_models():
        made = make_export(source, find_task(source, task), max_seq_length)
        target = files.path_text(export_dir, "export_dir")
        return saved_model.export(target, made.variables, made.exported, model_files)


def make_export(
    source: ModelSource,
    task: str,
    max_seq_length: int | None,
    poolings: Sequence[str] = EXPORTED_POOLINGS,
) -> ExportedModel:
    """Returns what the model in a folder exports. Call it in `saved_model.float32_models`.

    Args:
        source: the model.
        task: the name of the task.
        max_seq_length: see `export_saved_model`.
        poolings: the embeddings that a model that was not fine-tuned returns, if it has a pooler.

    Raises:
        ValueError: as in `export_saved_model`.
    """
    spec = registry.get(task)
    if not spec.is_fine_tuned:
        return _export_embeddings(source, max_seq_length, poolings)
    options = PredictorSettings(max_seq_length=max_seq_length)
    fine_tuned = cast("AnyFineTuningTask", open_task(source, task, options))
    length = fine_tuned.max_seq_length
    model, _ = load_trained(source, task)
    exported = fine_tuned.make_export(model, length, source.run)
    return ExportedModel(model.variables, exported, length, fine_tuned.labels)


def _export_embeddings(
    source: ModelSource, max_seq_length: int | None, poolings: Sequence[str]
) -> ExportedModel:
    """Returns what a model that was not fine-tuned exports; see `make_export`."""
    has_masked_lm = "masked-LM head" in source.parts
    model, tokenizer = load_trained(
        source, tasks.PRETRAINING if has_masked_lm else tasks.EMBEDDINGS
    )
    modules = source.sentence_modules
    takes_texts = modules is None or not modules.lowercases
    if not takes_texts:
        logging.warning("%s: the export takes no texts, which are lowercased", source.folder)
    options = PredictorSettings(max_seq_length=max_seq_length)
    length = open_task(source, tasks.EMBEDDINGS, options).max_seq_length
    exported = embeddings.embeddings_export(
        encoder_of(model),
        tokenizer if takes_texts else None,
        length,
        embeddings.poolings_of(source.parts, poolings),
        modules,
    )
    return ExportedModel(model.variables, exported, length)


def deploy(
    source: ModelSource,
    output: str,
    output_format: str,
    quantization: str = NONE,
    max_seq_length: int | None = None,
    tolerance: float = quantizations.TOLERANCE,
) -> str:
    """Writes a model to a new folder, with its config, vocabulary, labels and record.

    Args:
        source: the model; one that was not fine-tuned computes embeddings.
        output: the folder.
        output_format: a key of `FORMATS`.
        quantization: how the weights are stored: NONE for float32, or what the format has.
        max_seq_length: length of the rows of a TFLite model, in tokens. Defaults to that of
            training, or else to the model's maximum.
        tolerance: of quantized weights: the largest difference of an output, as a share of its
            largest number.

    Returns:
        How far the outputs of the file are from the model's, for random ids and, with quantized
        weights, the examples of the run: a sentence.

    Raises:
        ValueError: the package of the format is not installed, it cannot represent the model, or
            the file computes something else.
    """
    form = FORMATS[output_format]
    if form.write_model is None:
        raise ValueError(f"--output_format={output_format} has weights, not what a model computes")
    form.check_packages()
    task = find_task(source)
    with saved_model.float32_models(), dispatch.plain():
        made = make_export(source, task, max_seq_length, POOLINGS)
        exported = dataclasses.replace(made.exported, quantization=quantization)
        made = dataclasses.replace(made, exported=exported)
        signature = _signature_of(made, form.is_fixed)
        record = _record_of(source, task, made)
        with files.publish_directory(files.real_path(output), "--output") as folder:
            run = form.write_model(folder, made, signature)
            said = _check(run, signature, form, source, made, quantization, tolerance)
            place = os.path.join(folder, form.files_in)
            os.makedirs(place, exist_ok=True)
            record = _with_checksums(record, folder)
            beside = saved_model.model_files(source.config_file, source.vocabulary_file, record)
            for name, content in {**beside, **made.exported.files}.items():
                files.write_file(os.path.join(place, name), content)
    return said


def _check(
    run: Step,
    signature: Signature,
    form: Format,
    source: ModelSource,
    made: ExportedModel,
    quantization: str,
    tolerance: float,
) -> str:
    """Returns how far a file is from the model; see `deploy`.

    Raises:
        ValueError: it is too far.
    """
    batches, rows_text = [random_batch(signature, form.is_fixed)], "random ids"
    if quantization != NONE:
        batches = random_texts(signature, form.is_fixed, source.config.vocab_size)
        if examples := _example_batches(source, form, made):
            rows = sum(len(batch["input_ids"]) for batch in examples)
            rows_text = f"{rows} rows of the run's examples and {rows_text}"
        batches += examples
    difference = compare(run, signature, batches)
    said = f"largest difference of an output from the model, for {rows_text}: "
    said += f"{difference.absolute:.1e}"
    if quantization == NONE:
        if difference.absolute > TOLERANCE:
            raise ValueError(
                f"--output_format={form.name}: an output of the file differs from the model by "
                f"{difference.absolute:.1e}; nothing was written"
            )
        return said
    said += f", {difference.relative:.2g} of its largest number"
    if difference.relative > tolerance:
        raise ValueError(
            f"--quantization={quantization}: {said}, more than --quantization_tolerance="
            f"{tolerance:g}; nothing was written. Compare answers of your own before you raise it"
        )
    return said


def _example_batches(source: ModelSource, form: Format, made: ExportedModel) -> list[Batch]:
    """Returns the examples that a run keeps, as batches for a file; [] if there are none."""
    task = find_task(source)
    length = made.max_seq_length
    asked = open_task(source, task, PredictorSettings(max_seq_length=length))
    examples = [asked.parse_row(row) for row in source.run.examples()]
    features = asked.features_of(examples) if examples else None
    if features is None:
        return []
    padding = asked.padding(Padding(length, length if form.is_fixed else 1))
    size = 1 if form.is_fixed else BATCH_SIZE
    return [batch for _, batch in evaluation_batches(features, size, padding)]


def _record_of(source: ModelSource, task: str, made: ExportedModel) -> RunRecord:
    """Returns the record of a model, complete: it answers from the folder without its weights."""
    of_text = run_record.of_tokenizer(source.tokenizer, source.vocabulary_file)
    record = source.run.record
    length = {"max_seq_length": made.max_seq_length}
    details = {**record.task, "name": task, "labels": list(made.labels)}
    if task == EMBEDDINGS and source.sentence_modules is not None:
        details[RECORDED] = source.sentence_modules.describe(source.config.hidden_size)
    return dataclasses.replace(
        record,
        settings={**record.settings, **of_text.settings, **length},
        files={**record.files, **of_text.files},
        task=details,
    )


def _with_checksums(record: RunRecord, folder: str) -> RunRecord:
    """Returns the record with what identifies the files for a predictor, if there are any."""
    for name in model_folder.ANSWERING & set(os.listdir(folder)):
        contents = model_folder.read_exported(os.path.join(folder, name))
        found = identify(contents, record.labels)
        return dataclasses.replace(record, files={**record.files, **found})
    return record


def _signature_of(made: ExportedModel, is_fixed: bool) -> Signature:
    """Returns the signature that takes ids; if fixed, with rows of full length."""
    exported = made.exported
    if is_fixed and exported.tflite is not None:
        return exported.tflite
    tensors = exported.signatures.get(TENSORS) or exported.signatures[DEFAULT]
    if not is_fixed:
        return tensors
    inputs = {
        name: tf.TensorSpec([*spec.shape[:-1], made.max_seq_length], spec.dtype)
        for name, spec in tensors.inputs.items()
    }
    if any(None in spec.shape[1:] for spec in inputs.values()):
        raise ValueError(
            "--output_format=tflite: a TFLite model has a fixed number of options, and a model for "
            "multiple choice has not. Use onnx, openvino or saved_model"
        )
    return Signature(inputs, tensors.compute)
