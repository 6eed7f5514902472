"""What an exported model computes: functions of named tensors, which `saved_model` writes.

A SavedModel of a model for texts has signatures with these inputs:

    examples   `input`, string [B]: serialized `tf.train.Example`s with the tokens
    tensors    the tokens, int32 [B, S], each under its own name
    texts      `text_a` and `text_b`, string [B]; requires `tensorflow_text`

One of the first two is named `serving_default`, namely the one that the official program exports.
Only models that classify or embed texts have the last one.

Source: `export_dir` of `run_classifier.py` and `run_squad_v1.py` in google-research/albert.

Letters: B batch size, S sequence length.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.model.config import MEAN, POOLED, POOLINGS
from albert_tf.model.tokenization import Tokenizer

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
    def function(self) -> Any:
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
        quantization: how the weights in that file are stored; see `saved_model.write_tflite`. None
            writes no such file.
        subfolder: folder of the SavedModels within that of the exports.
    """

    signatures: Mapping[str, Signature]
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    tflite: Signature | None = None
    quantization: str | None = None
    subfolder: str = ""


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
    features: dict[str, Any] = {}
    for name, spec in inputs.items():
        shape = spec.shape[-1:]
        features[name] = tf.io.FixedLenFeature(shape, tf.int64)
        if spec.shape.rank > 2:
            features[name] = tf.io.FixedLenSequenceFeature(shape, tf.int64, allow_missing=True)
    batch = tf.io.parse_example(serialized, features)
    return {name: tf.cast(value, inputs[name].dtype) for name, value in batch.items()}


# The signature for raw strings, which computes the outputs of a model in batches in the graph.
#
# It takes any number of texts. In a single batch, they would need memory for all of them at once,
# and all would be as long as the longest one.
#
# Letters: N rows, S sequence length.

BATCH_SIZE = 32  # in a batch, as in `load_predictor`


def text_signatures(
    tokenizer: Tokenizer | None,
    model: Callable[[Tensors], Any],
    outputs: Callable[[Any], Tensors],
    max_seq_length: int,
    pad_to: int | None = None,
) -> dict[str, Signature]:
    """Returns the signature `texts` of a model; {} without a tokenizer for graphs.

    Its inputs are `text_a` and `text_b`, string [N], where the latter may be "".

    Args:
        tokenizer: the tokenizer of the model; None if it is unknown.
        model: as in `compute_in_batches`.
        outputs: converts the model's outputs to name → output of the signature.
        max_seq_length: maximum number of tokens in a row, including special tokens.
        pad_to: S; None for models whose outputs do not depend on padding, which is left out.
    """
    # Imported late: takes 0.2 s, with tensorflow-text, which a run without an export does not need.
    from albert_tf.model.graph_tokenizer import GraphTokenizer, is_supported

    if tokenizer is None or not is_supported(tokenizer):
        return {}
    graph = GraphTokenizer(tokenizer)

    def answer(texts: Tensors) -> Tensors:
        batch = graph.pack(texts["text_a"], texts["text_b"], max_seq_length, pad_to)
        return outputs(compute_in_batches(model, batch, is_trimmed=pad_to is None))

    inputs = dict.fromkeys(("text_a", "text_b"), tf.TensorSpec([None], tf.string))
    return {TEXTS: Signature(inputs, answer, graph)}


def compute_in_batches(
    model: Callable[[Tensors], Any],
    features: Mapping[str, tf.Tensor],
    is_trimmed: bool = False,
) -> Any:
    """Returns the outputs of a model for N rows, computed for at most BATCH_SIZE at a time.

    Args:
        model: returns the outputs of a batch, which have a row for each row of the batch, in any
            structure.
        features: `input_ids`, `input_mask` and others, int32 [N, S].
        is_trimmed: whether batches are made of rows of similar length, and cut to the longest of
            them. The outputs then must depend neither on padding nor, in their shapes, on S.

    Returns:
        The outputs in the order of the rows, [N, …] each.
    """
    mask = features["input_mask"]
    count = tf.shape(mask)[0]
    if is_trimmed:
        lengths = tf.reduce_sum(mask, -1)  # [N]
        order = tf.argsort(lengths, direction="DESCENDING", stable=True)  # [N]
        lengths = tf.gather(lengths, order)
        features = {name: tf.gather(feature, order) for name, feature in features.items()}

    def compute_part(number: tf.Tensor) -> Any:
        rows = slice(number * BATCH_SIZE, (number + 1) * BATCH_SIZE)
        part = {name: feature[rows] for name, feature in features.items()}
        if is_trimmed:
            longest = tf.reduce_max(tf.concat(([1], lengths[rows]), 0))
            part = {name: x[:, :longest] for name, x in part.items()}
        return model(part)

    # Traced separately because the loop needs the dtypes and shapes of the outputs in advance.
    traced = tf.function(compute_part, autograph=False)
    traced = traced.get_concrete_function(tf.TensorSpec((), tf.int32))
    parts = tf.maximum((count + BATCH_SIZE - 1) // BATCH_SIZE, 1)
    outputs = [
        tf.TensorArray(spec.dtype, parts, infer_shape=False, element_shape=[None, *spec.shape[1:]])
        for spec in tf.nest.flatten(traced.structured_outputs)
    ]

    def add(number: tf.Tensor, outputs: list[tf.TensorArray]) -> Any:
        values = tf.nest.flatten(traced(number))
        written = [x.write(number, value) for x, value in zip(outputs, values, strict=True)]
        return number + 1, written

    _, outputs = tf.while_loop(
        lambda number, _: number < parts, add, (0, outputs), parallel_iterations=1
    )
    values = [output.concat() for output in outputs]  # [N, …] each
    if is_trimmed:
        places = tf.argsort(order)  # [N]
        values = [tf.gather(value, places) for value in values]
    return tf.nest.pack_sequence_as(traced.structured_outputs, values)


# Exports pre-trained models as SavedModels for text embeddings.
#
# Letters: B batch size, S sequence length, H hidden size.

_LAST_LAYERS = 4


def pool(
    outputs: Mapping[str, Any], input_mask: tf.Tensor, poolings: Iterable[str]
) -> dict[str, tf.Tensor]:
    """Returns embeddings of texts, pooling → float32 [B, H].

    Args:
        outputs: outputs of an encoder, including `hidden_states` for "mean_last_4".
        input_mask: [B, S], 1 for tokens and 0 for padding, which is ignored.
        poolings: the poolings to compute, out of `POOLINGS`.
    """
    mask = tf.cast(input_mask, tf.float32)[:, :, None]  # [B, S, 1]

    def mean(layers: Iterable[tf.Tensor]) -> tf.Tensor:
        floats = [tf.cast(layer, tf.float32) for layer in layers]
        x = tf.add_n(floats) / len(floats)  # [B, S, H]
        return tf.reduce_sum(x * mask, axis=1) / tf.reduce_sum(mask, axis=1)

    pooled = {}
    for pooling in poolings:
        if pooling == POOLED:
            pooled[pooling] = tf.cast(outputs["pooled_output"], tf.float32)
        elif pooling == MEAN:
            pooled[pooling] = mean([outputs["sequence_output"]])
        else:
            pooled[pooling] = mean(outputs["hidden_states"][1:][-_LAST_LAYERS:])
    return pooled


def poolings_of(parts: Collection[str]) -> tuple[str, ...]:
    """Returns the poolings that a checkpoint with these parts of a model has weights for.

    Args:
        parts: keys of `checkpoints.families.PARTS`.
    """
    return tuple(pooling for pooling in POOLINGS if pooling != POOLED or "pooler" in parts)


def embeddings_export(
    encoder: Any,
    tokenizer: Tokenizer | None,
    max_seq_length: int,
    poolings: Sequence[str] = POOLINGS,
) -> Export:
    """Returns the export of an encoder, which computes embeddings of tokens and of texts.

    Args:
        encoder: an `AlbertEncoder`.
        tokenizer: the tokenizer of the model; None omits the signature that takes raw strings.
        max_seq_length: S of serialized examples, and the maximum of S for texts.
        poolings: the embeddings to return, out of `POOLINGS`.
    """

    def embed(batch: Tensors) -> Tensors:
        outputs = encoder(batch, training=False, output_hidden_states=True)
        sequence = {"sequence_output": outputs["sequence_output"]}
        return pool(outputs, batch["input_mask"], poolings) | sequence

    def embed_texts(batch: Tensors) -> Tensors:
        outputs = embed(batch)
        return {name: outputs[name] for name in poolings}

    inputs = token_inputs(max_seq_length)
    signatures = token_signatures(inputs, embed, takes_examples=False)
    return Export(
        signatures | text_signatures(tokenizer, embed_texts, lambda found: found, max_seq_length)
    )
