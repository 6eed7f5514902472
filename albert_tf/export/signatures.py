"""The signatures of exported models, and what is exported of a model for a task.

A SavedModel of a model for texts has signatures with these inputs:

    examples   `input`, string [B]: serialized `tf.train.Example`s with the tokens
    tensors    the tokens, int32 [B, S], each under its own name
    texts      `text_a` and `text_b`, string [B]; requires `tensorflow_text`

One of the first two is named `serving_default`, namely the one that the official program exports.
Only models that classify or embed texts have the last one; see `text_signature`.

Source: `export_dir` of `run_classifier.py` and `run_squad_v1.py` in google-research/albert.

Letters: B batch size, S sequence length.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

DEFAULT = "serving_default"
EXAMPLES = "examples"
TENSORS = "tensors"
TEXTS = "texts"
SERIALIZED_INPUT = "input"  # official

Tensors = dict[str, tf.Tensor]
Inputs = Mapping[str, tf.TensorSpec]
Compute = Callable[[Tensors], Tensors]


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function of an exported model.

    Attributes:
        inputs: name → shape and dtype.
        compute: returns name → output, given name → input.
        tokenizer: the `GraphTokenizer` that `compute` calls, whose lookup tables are saved.
    """

    inputs: Inputs
    compute: Compute
    tokenizer: tf.Module | None = None

    @functools.cached_property
    def function(self) -> tf.types.experimental.PolymorphicFunction:
        """`compute` as a `tf.function` of tensors that have the names of the inputs."""
        specs = [tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in self.inputs.items()]

        @tf.function(input_signature=specs, autograph=False)
        def serve(*tensors: tf.Tensor) -> Tensors:
            return self.compute(dict(zip(self.inputs, tensors, strict=True)))

        return serve


@dataclasses.dataclass(frozen=True)
class Export:
    """What is exported of a model for a task.

    Attributes:
        signatures: the signatures of the SavedModel by name, among them `serving_default`.
        files: name → content of files in `assets.extra`, beside config and vocabulary.
        tflite: the signature of `albert_model.tflite`, which takes one example of full length.
        quantization: how the weights in that file are stored; see `tflite.write_tflite`. None
            writes no such file.
        subfolder: folder of the SavedModels within that of the exports.
    """

    signatures: Mapping[str, Signature]
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    tflite: Signature | None = None
    quantization: str | None = None
    subfolder: str = ""


@dataclasses.dataclass(frozen=True)
class ExportedModel:
    """What a model exports, and the variables that its signatures use.

    Attributes:
        variables: the variables, float32.
        exported: the signatures, and the files beside them.
        max_seq_length: maximum sequence length of texts, in tokens.
        labels: names of the model's outputs; () if they have none.
    """

    variables: Sequence[tf.Variable]
    exported: Export
    max_seq_length: int
    labels: tuple[str, ...] = ()


def hold(variables: Sequence[tf.Variable]) -> tf.train.Checkpoint:
    """Returns an object to save that has variables alone: Keras objects are not needed to load."""
    root = tf.train.Checkpoint()
    root.variables = list(variables)
    return root


def token_inputs(max_seq_length: int, *more: str) -> dict[str, tf.TensorSpec]:
    """Returns the inputs of an encoder, int32 [B, S] each.

    Args:
        max_seq_length: S.
        more: names of additional inputs of the same shape, such as `p_mask`.
    """
    names = ("input_ids", "input_mask", "segment_ids", *more)
    return dict.fromkeys(names, tf.TensorSpec([None, max_seq_length], tf.int32))


def token_signatures(
    inputs: Inputs, compute: Compute, takes_examples: bool = True, any_length: bool = True
) -> dict[str, Signature]:
    """Returns the two signatures of a model that takes tokens, as tensors and serialized examples.

    Args:
        inputs: the tokens, int32 [B, S] or [B, C, S] with any number C of sequences.
        compute: returns name → output, given these.
        takes_examples: whether `serving_default` takes serialized examples rather than tensors.
        any_length: whether tensors may be of any length, for models whose outputs do not depend on
            padding. Serialized examples always have the length S.
    """
    examples = Signature(
        {SERIALIZED_INPUT: tf.TensorSpec([None], tf.string)},
        lambda serialized: compute(_parse_examples(serialized[SERIALIZED_INPUT], inputs)),
    )
    of_any_length = {
        name: tf.TensorSpec([*spec.shape[:-1], None], spec.dtype) for name, spec in inputs.items()
    }
    tensors = Signature(of_any_length if any_length else inputs, compute)
    if takes_examples:
        return {DEFAULT: examples, TENSORS: tensors}
    return {DEFAULT: tensors, EXAMPLES: examples}


def _parse_examples(serialized: tf.Tensor, inputs: Inputs) -> Tensors:
    """Returns the tokens in serialized examples, which store several sequences as one."""
    features: dict[str, tf.io.FixedLenFeature] = {}
    for name, spec in inputs.items():
        shape = spec.shape[-1:]
        features[name] = tf.io.FixedLenFeature(shape, tf.int64)
        if spec.shape.rank > 2:
            features[name] = tf.io.FixedLenSequenceFeature(shape, tf.int64, allow_missing=True)
    batch = tf.io.parse_example(serialized, features)
    return {name: tf.cast(value, inputs[name].dtype) for name, value in batch.items()}
