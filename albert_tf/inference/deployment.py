"""Writes models for runtimes that do not need this library: TFLite, OpenVINO, ONNX, SavedModels.

The files take ids and return what a SavedModel returns for them (docs/serving.md). Each is compared
with the model before the folder gets its name.

Letters: B batch size, S sequence length.
"""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import tensorflow as tf

from albert_tf import files
from albert_tf.checkpoints import exported_files, run_record
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.checkpoints.sentence_modules import RECORDED
from albert_tf.checkpoints.tasks import EMBEDDINGS
from albert_tf.export import saved_model
from albert_tf.export.formats import NONE
from albert_tf.export.signatures import DEFAULT, TENSORS, Signature
from albert_tf.finetuning.batching import Step
from albert_tf.inference import exported_model
from albert_tf.inference.deployment_formats import FORMATS
from albert_tf.inference.exporting import ExportedModel, make_export
from albert_tf.inference.model_task import find_task
from albert_tf.model import dispatch
from albert_tf.model.poolings import POOLINGS

_TOLERANCE = 1e-4  # of float32 weights
_PROBE_SEED = 12345
_PROBE_ROWS = 2


def deploy(
    source: ModelSource,
    output: str,
    output_format: str,
    quantization: str = NONE,
    max_seq_length: int | None = None,
) -> float:
    """Writes a model to a new folder, with its config, vocabulary, labels and record.

    Args:
        source: the model; one that was not fine-tuned computes embeddings.
        output: the folder.
        output_format: a key of `FORMATS`.
        quantization: data type of the weights of a TFLite model: NONE for float32, FLOAT16, or INT8
            for dynamic-range quantization.
        max_seq_length: length of the rows of a TFLite model, in tokens. Defaults to that of
            training, or else to the model's maximum.

    Returns:
        The largest difference of an output from the model's, for random ids.

    Raises:
        ValueError: the package of the format is not installed, it cannot represent the model, or
            the file computes something else.
    """
    form = FORMATS[output_format]
    form.check_packages()
    task = find_task(source)
    with saved_model.float32_models(), dispatch.plain():
        made = make_export(source, task, max_seq_length, POOLINGS)
        exported = dataclasses.replace(made.exported, quantization=quantization)
        made = dataclasses.replace(made, exported=exported)
        signature = _signature_of(made, form.is_fixed)
        record = _record_of(source, task, made)
        with files.publish_directory(files.real_path(output), "--output") as folder:
            run = form.write(folder, made, signature)
            difference = _compare(run, signature, form.is_fixed)
            if difference > _TOLERANCE and quantization == NONE:
                raise ValueError(
                    f"--output_format={output_format}: an output of the file differs from the "
                    f"model by {difference:.1e}; nothing was written"
                )
            place = os.path.join(folder, form.files_in)
            os.makedirs(place, exist_ok=True)
            record = _with_checksums(record, folder)
            beside = saved_model.model_files(source.config_file, source.vocabulary_file, record)
            for name, content in {**beside, **made.exported.files}.items():
                files.write_file(os.path.join(place, name), content)
    return difference


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
    for name in exported_files.ANSWERING & set(os.listdir(folder)):
        contents = exported_files.read(os.path.join(folder, name))
        found = exported_model.identify(contents, record.labels)
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


def _compare(run: Step, signature: Signature, is_fixed: bool) -> float:
    """Returns the largest difference of an output of a file from that of the model."""
    random = np.random.default_rng(_PROBE_SEED)
    rows = 1 if is_fixed else _PROBE_ROWS
    batch = {}
    for name, spec in signature.inputs.items():
        shape = [rows, *(size or 7 for size in spec.shape[1:])]
        batch[name] = random.integers(0, 2, shape).astype(np.int32)
        if name == "input_ids":
            batch[name] = random.integers(5, 60, shape).astype(np.int32)
        elif name != "segment_ids":
            batch[name][..., 0] = 1  # a row has at least one token
    expected = signature.function(*map(tf.constant, batch.values()))
    found = run(batch)
    return max(
        float(np.max(np.abs(found[name] - value.numpy()), initial=0.0))
        for name, value in expected.items()
        if value.dtype.is_floating and value.shape.rank
    )
