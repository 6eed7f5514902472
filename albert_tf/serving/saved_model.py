"""Exports fine-tuned models as SavedModels.

    model = tf.saved_model.load("export/1700000000")
    model.signatures["serving_default"](input=tf.constant([example.SerializeToString()]))

A SavedModel has signatures for these inputs:

    examples   `input`, string [B]: serialized `tf.train.Example`s with the features
    tensors    the features, int32 [B, S], each under its own name
    texts      `text_a` and `text_b`, string [B]; requires `tensorflow_text`

One of the first two is named `serving_default`, namely the one that the official program exports.
Only models that classify or embed texts have the last one; see `TextSignature`.

If `serving_default` takes examples, the subfolder `tensors` is a second SavedModel whose
`serving_default` takes tensors, for conversion by OpenVINO and tf2onnx. Its weights are hard links
to those of the first one.

Source: `export_dir` of `run_classifier.py` and `run_squad_v1.py` in google-research/albert.

Letters: B batch size, S sequence length.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import tensorflow as tf
import tf_keras
from absl import logging

from albert_tf import acceleration, files
from albert_tf.checkpoints import store

SERIALIZED_INPUT = "input"  # official
DEFAULT_SIGNATURE = "serving_default"
TENSORS = "tensors"  # the signature, and the subfolder of the SavedModel with tensors only
OTHER_SIGNATURE = {True: TENSORS, False: "examples"}
TEXT_SIGNATURE = "texts"
_VARIABLES = "variables"  # the subfolder with the weights
EXTRA = "assets.extra"  # the Estimator's name for additional files in an export

Tensors = dict[str, tf.Tensor]
Feature: TypeAlias = tf.io.FixedLenFeature | tf.io.FixedLenSequenceFeature


@dataclasses.dataclass(frozen=True)
class TextSignature:
    """A signature that takes texts or pairs of texts as raw strings.

    Attributes:
        tokenizer: the `GraphTokenizer` of `answer`, whose lookup tables are saved.
        answer: function from the model and the first and second texts, string [B] each, to name →
            output. It calls the model as `model(batch, training=False)`.
    """

    tokenizer: tf.Module
    answer: Callable[[Any, tf.Tensor, tf.Tensor], Tensors]


def token_features(max_seq_length: int, *more: str) -> dict[str, tf.io.FixedLenFeature]:
    """Returns the features of an encoder's input, int64 [S] each.

    Args:
        max_seq_length: S.
        more: names of additional features of the same shape, such as `p_mask`.
    """
    names = ("input_ids", "input_mask", "segment_ids", *more)
    return {name: tf.io.FixedLenFeature((max_seq_length,), tf.int64) for name in names}


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


@acceleration.plain()
def export_saved_model(
    export_dir: str,
    model: Any,
    features: Mapping[str, Feature],
    outputs: Callable[[Tensors], Tensors],
    takes_examples: bool = True,
    any_length: bool = False,
    extra_files: Mapping[str, bytes] | None = None,
    texts: TextSignature | None = None,
) -> str:
    """Writes a SavedModel into a new folder `<export_dir>/<Unix time>`, as the Estimator does.

    Nothing else in `export_dir` is changed. The folder is renamed to its final name when complete.

    Args:
        export_dir: parent folder of the exports, which is created if needed.
        model: the model with its weights, called as `model(batch, training=False)`; see
            `float32_models`.
        features: name → feature of a serialized example. int64 is cast to int32 for the model. A
            `FixedLenSequenceFeature` has an additional axis of any size before its shape.
        outputs: converts the model's outputs to name → output of the SavedModel.
        takes_examples: whether `serving_default` takes serialized examples rather than tensors.
        any_length: whether the last axis of tensors may have any length, for models whose outputs
            do not depend on padding. Serialized examples always have the length of `features`.
        extra_files: name → content of files to write to `assets.extra`.
        texts: the signature for raw strings. None writes a SavedModel that can be loaded without
            tensorflow-text.

    Returns:
        The folder of the export.

    Raises:
        ValueError: `export_dir` cannot be written to.
        OSError: the disk is full.
    """
    files.ensure_directory(export_dir, "--export_dir")
    root, signatures = _make(model, features, outputs, takes_examples, any_length, texts)
    return _write(export_dir, root, signatures, extra_files or {})


@acceleration.plain()
def save(
    folder: str, model: Any, features: Mapping[str, Feature], texts: TextSignature | None
) -> None:
    """Writes a SavedModel whose `serving_default` takes tensors into a folder.

    Args:
        folder: the output folder, which may exist.
        model: as in `export_saved_model`; its outputs become the outputs of the SavedModel.
        features: as in `export_saved_model`.
        texts: as in `export_saved_model`.
    """
    root, signatures = _make(model, features, lambda outputs: outputs, False, True, texts)
    with _writing(folder):
        tf.saved_model.save(root, folder, signatures=signatures)


def _make(
    model: Any,
    features: Mapping[str, Feature],
    outputs: Callable[[Tensors], Tensors],
    takes_examples: bool,
    any_length: bool,
    texts: TextSignature | None,
) -> tuple[Any, dict[str, Any]]:
    """Returns the root object and signatures to save; see `export_saved_model` for arguments."""
    by_examples, by_tensors = _signatures(model, features, outputs, any_length)
    default, other = (by_examples, by_tensors) if takes_examples else (by_tensors, by_examples)
    root = tf.train.Checkpoint()
    root.variables = list(model.variables)  # Keras objects are not needed for loading
    signatures = {DEFAULT_SIGNATURE: default, OTHER_SIGNATURE[takes_examples]: other}
    if texts is not None:
        root.tokenizer = texts.tokenizer
        signatures[TEXT_SIGNATURE] = _text_function(model, texts)
    return root, signatures


def _write(
    export_dir: str, root: Any, signatures: Mapping[str, Any], extra_files: Mapping[str, bytes]
) -> str:
    """Writes a SavedModel to a new folder, which appears when it is complete; returns its path."""
    target = _name_new_folder(export_dir)
    with files.publish_directory(target, "--export_dir") as temporary:
        with _writing(target):
            tf.saved_model.save(root, temporary, signatures=signatures)
            if TENSORS in signatures:
                _write_tensors(os.path.join(temporary, TENSORS), root, signatures[TENSORS])
        if extra_files:
            files.ensure_directory(os.path.join(temporary, EXTRA), "--export_dir")
        for name, content in extra_files.items():
            with files.write_atomically(os.path.join(temporary, EXTRA, name), "wb") as stream:
                stream.write(content)
    logging.info("Exported to %s", target)
    return target


def _write_tensors(folder: str, root: Any, by_tensors: Any) -> None:
    """Writes a SavedModel that only takes tensors, for OpenVINO and tf2onnx.

    These convert the default signature and do not support string ops.
    """
    alone = tf.train.Checkpoint()
    alone.variables = list(root.variables)
    tf.saved_model.save(alone, folder, signatures={DEFAULT_SIGNATURE: by_tensors})
    _share_weights(folder, os.path.dirname(folder))


def _share_weights(folder: str, original: str) -> None:
    """Replaces the weights of a SavedModel by hard links to those of another one.

    The other SavedModel has the same variables under the same names, and more objects. Some
    file systems have no hard links: there, the second copy stays.
    """
    links = f"{folder}-links"
    try:
        shutil.copytree(os.path.join(original, _VARIABLES), links, copy_function=os.link)
    except OSError:
        shutil.rmtree(links, ignore_errors=True)
    else:
        shutil.rmtree(os.path.join(folder, _VARIABLES))
        os.rename(links, os.path.join(folder, _VARIABLES))


@contextlib.contextmanager
def _writing(folder: str) -> Iterator[None]:
    """Suppresses TensorFlow's informational messages about SavedModels, but not its warnings.

    Converts errors about full and unwritable disks to OSError.
    """
    verbosity = logging.get_verbosity()
    logging.set_verbosity(min(verbosity, logging.WARNING))
    try:
        with store.naming_disk_errors(folder, "the SavedModel"):
            yield
    finally:
        logging.set_verbosity(verbosity)


def _signatures(
    model: Any,
    features: Mapping[str, Feature],
    outputs: Callable[[Tensors], Tensors],
    any_length: bool,
) -> tuple[Any, Any]:
    """Returns the signatures that take serialized examples and tensors."""

    def answer(batch: Mapping[str, tf.Tensor]) -> Tensors:
        ours = {
            name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
            for name, value in batch.items()
        }
        return outputs(model(ours, training=False))

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, SERIALIZED_INPUT)], autograph=False
    )
    def serve_examples(serialized: tf.Tensor) -> Tensors:
        return answer(tf.io.parse_example(serialized, dict(features)))

    def tensor_spec(name: str, feature: Feature) -> tf.TensorSpec:
        shape = [None, *feature.shape]
        if isinstance(feature, tf.io.FixedLenSequenceFeature):
            shape.insert(0, None)
        if any_length and len(shape) > 1:
            shape[-1] = None
        return tf.TensorSpec(shape, tf.int32 if feature.dtype == tf.int64 else feature.dtype, name)

    specs = [tensor_spec(name, feature) for name, feature in features.items()]

    @tf.function(input_signature=specs, autograph=False)
    def serve_tensors(*tensors: tf.Tensor) -> Tensors:
        return answer(dict(zip(features, tensors, strict=True)))

    return serve_examples, serve_tensors


def _text_function(model: Any, signature: TextSignature) -> Any:
    """Returns a signature for raw strings as a function."""
    inputs = [tf.TensorSpec([None], tf.string, name) for name in ("text_a", "text_b")]

    @tf.function(input_signature=inputs, autograph=False)
    def serve_texts(first: tf.Tensor, second: tf.Tensor) -> Tensors:
        return signature.answer(model, first, second)

    return serve_texts


def _name_new_folder(export_dir: str) -> str:
    """Returns the path of the folder `<Unix time>`, or of the next unused number."""
    number = int(time.time())
    while files.exists(os.path.join(export_dir, str(number))):
        number += 1
    return os.path.join(export_dir, str(number))
