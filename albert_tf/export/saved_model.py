"""Writes SavedModels, with the files beside them that make an export the folder of a model.

    model = tf.saved_model.load("export/1700000000")
    model.signatures["serving_default"](input=tf.constant([example.SerializeToString()]))

`signatures` has what an exported model computes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence

import tensorflow as tf
import tf_keras
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import model_folder, run_record, store
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.export import tflite
from albert_tf.export.runtimes import Array, Batch, Step
from albert_tf.export.signatures import DEFAULT, TENSORS, Export, ExportedModel, Signature, hold
from albert_tf.model import dispatch
from albert_tf.model.tokenization import read_files


@contextlib.contextmanager
def float32_models() -> Iterator[None]:
    """Context manager in which models are built to compute in float32, as in official exports.

    The precision of training does not matter here, and a server may not support bfloat16.
    """
    policy = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("float32")
    try:
        yield
    finally:
        tf_keras.mixed_precision.set_global_policy(policy)


def model_files(
    config_file: str, vocabulary_file: str | None, record: RunRecord
) -> dict[str, bytes]:
    """Returns name → content of the files with which an export is a folder of a model.

    Args:
        config_file: the config.
        vocabulary_file: the vocabulary, or a file of a Hugging Face tokenizer; None if unknown.
        record: the record of the training, which is left out if it is empty.
    """
    found = {os.path.basename(config_file): files.read_bytes(config_file)}
    if vocabulary_file:
        found |= read_files(vocabulary_file)
    if record != RunRecord():
        found[run_record.FILE] = record.to_json().encode()
    return found


@dispatch.plain()
def export(
    export_dir: str,
    variables: Sequence[tf.Variable],
    exported: Export,
    model_files: Mapping[str, bytes],
) -> str:
    """Writes a SavedModel into a new folder `<export_dir>/<Unix time>`, as the Estimator does.

    Nothing else in `export_dir` is changed, but a TFLite file is replaced. The folder is renamed to
    its final name when complete.

    Args:
        export_dir: parent folder of the exports, which is created if needed.
        variables: the weights, of a model in float32; see `float32_models`.
        exported: the signatures, files of the task, and TFLite file.
        model_files: see the function of this name.

    Returns:
        The folder of the SavedModel.

    Raises:
        ValueError: `export_dir` cannot be written to.
        OSError: the disk is full.
    """
    parent = os.path.join(export_dir, exported.subfolder) if exported.subfolder else export_dir
    files.ensure_directory(parent, "--export_dir")
    target = _name_new_folder(parent)
    if exported.tflite and exported.quantization:
        files.remove_half_written([os.path.join(export_dir, tflite.TFLITE_FILE)])
    with files.publish_directory(target, "--export_dir", names="[0-9]+") as temporary:
        save(temporary, hold(variables), exported.signatures, target)
        _write_extra_files(temporary, {**model_files, **exported.files})
    logging.info("Exported to %s", target)
    if exported.tflite and exported.quantization:
        path = os.path.join(export_dir, tflite.TFLITE_FILE)
        tflite.write_tflite(path, hold(variables), exported.tflite, exported.quantization)
    return target


@dispatch.plain()
def save(
    folder: str,
    root: tf.train.Checkpoint,
    signatures: Mapping[str, Signature],
    shown_as: str | None = None,
) -> None:
    """Writes a SavedModel.

    Args:
        folder: the output folder, which may exist.
        root: the object to save, which has all variables of the signatures; see `hold`. It gets
            their tokenizer.
        signatures: the signatures by name.
        shown_as: name of the folder in errors; None for its own.

    Raises:
        OSError: the disk is full, or the folder cannot be written to.
    """
    for signature in signatures.values():
        if signature.tokenizer is not None:
            root.tokenizer = signature.tokenizer
    functions = {name: signature.function for name, signature in signatures.items()}
    verbosity = logging.get_verbosity()
    logging.set_verbosity(min(verbosity, logging.WARNING))  # TensorFlow's messages about them
    try:
        with store.naming_disk_errors(shown_as or folder, "the SavedModel"):
            tf.saved_model.save(root, folder, signatures=functions)
    finally:
        logging.set_verbosity(verbosity)


def _write_extra_files(folder: str, contents: Mapping[str, bytes]) -> None:
    """Writes the files of `assets.extra` in an export."""
    if contents:
        files.ensure_directory(os.path.join(folder, model_folder.EXTRA_ASSETS), "--export_dir")
    for name, content in contents.items():
        path = os.path.join(folder, model_folder.EXTRA_ASSETS, name)
        files.write_file(path, content)


def _name_new_folder(export_dir: str) -> str:
    """Returns the path of the folder `<Unix time>`, or of the next unused number."""
    number = int(time.time())
    while files.exists(os.path.join(export_dir, str(number))):
        number += 1
    return os.path.join(export_dir, str(number))


def write_folder(folder: str, made: ExportedModel, signature: Signature) -> Step:
    """Writes a SavedModel with all signatures."""
    root = hold(made.variables)
    save(folder, root, made.exported.signatures)
    served = tf.saved_model.load(folder)
    name = TENSORS if TENSORS in made.exported.signatures else DEFAULT

    def compute(batch: Batch) -> dict[str, Array]:
        found = served.signatures[name](**{key: tf.constant(x) for key, x in batch.items()})
        return {key: value.numpy() for key, value in found.items()}

    return compute
