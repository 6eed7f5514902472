"""SavedModels: what an exported model computes, and how it is written, with the files beside it.

    model = tf.saved_model.load("export/1700000000")
    model.signatures["serving_default"](input=tf.constant([example.SerializeToString()]))

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

import contextlib
import dataclasses
import functools
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import finding, run_record, store
from albert_tf.checkpoints.run_record import LOWER_CASE, RunRecord
from albert_tf.model import ops
from albert_tf.model.config import AlbertConfig
from albert_tf.model.huggingface_tokenizer import list_files
from albert_tf.model.poolings import MEAN, POOLED, POOLINGS
from albert_tf.model.tokenization import FullTokenizer, Tokenizer

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


# Writing.


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
    paths = [config_file, *(list_files(vocabulary_file) if vocabulary_file else ())]
    found = {os.path.basename(path): files.read_bytes(path) for path in paths}
    if record != RunRecord():
        found[run_record.FILE] = record.to_json().encode()
    return found


@ops.plain()
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
    with files.publish_directory(target, "--export_dir") as temporary:
        save(temporary, hold(variables), exported.signatures, target)
        _write_extra_files(temporary, {**model_files, **exported.files})
    logging.info("Exported to %s", target)
    if exported.tflite and exported.quantization:
        path = os.path.join(export_dir, TFLITE_FILE)
        write_tflite(path, hold(variables), exported.tflite, exported.quantization)
    return target


def hold(variables: Sequence[tf.Variable]) -> Any:
    """Returns an object to save that has variables alone: Keras objects are not needed to load."""
    root = tf.train.Checkpoint()
    root.variables = list(variables)
    return root


@ops.plain()
def save(
    folder: str, root: Any, signatures: Mapping[str, Signature], shown_as: str | None = None
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
        files.ensure_directory(os.path.join(folder, finding.EXTRA_ASSETS), "--export_dir")
    for name, content in contents.items():
        path = os.path.join(folder, finding.EXTRA_ASSETS, name)
        files.write_file(path, content)


def _name_new_folder(export_dir: str) -> str:
    """Returns the path of the folder `<Unix time>`, or of the next unused number."""
    number = int(time.time())
    while files.exists(os.path.join(export_dir, str(number))):
        number += 1
    return os.path.join(export_dir, str(number))


TFLITE_FILE = "albert_model.tflite"  # official
NONE = "none"
FLOAT16 = "float16"
INT8 = "int8"


def write_tflite(path: str, root: Any, signature: Signature, quantization: str = NONE) -> None:
    """Writes a TFLite model that takes one example of full length at a time.

        runner = tf.lite.Interpreter(path).get_signature_runner("serving_default")
        runner(input_ids=ids, input_mask=mask, segment_ids=segments)  # int32 [1, S] each

    Call it by its signature `serving_default` and the names of inputs and outputs, because the
    converter does not preserve their order.

    Args:
        path: the output file; its folder is created if needed.
        root: an object with all variables of the signature; see `hold`.
        signature: a signature whose inputs are [B, S]; those of the file are [1, S].
        quantization: quantization of the weights: NONE, FLOAT16, or INT8, which is dynamic-range
            quantization with 8-bit integer matmuls. Outputs and activations stay float32.

    Raises:
        ValueError: the folder cannot be written to.
    """
    files.ensure_directory(os.path.dirname(path), "--export_dir")
    single = {
        name: tf.TensorSpec([1, *spec.shape[1:]], spec.dtype)
        for name, spec in signature.inputs.items()
    }
    concrete = Signature(single, signature.compute).function.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], root)
    if quantization != NONE:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantization == FLOAT16:
        converter.target_spec.supported_types = [tf.float16]
    content = converter.convert()
    files.write_file(path, content)
    logging.info("Exported to %s (%.1f MB)", path, len(content) / 1e6)


# Writes TensorFlow 2 SavedModels with the interface of the ALBERT encoders on TF-Hub.
#
# The SavedModels written by `save_hub_module` can be loaded with `hub.KerasLayer(folder)` and
# `tf.saved_model.load(folder)`. They have the same inputs and outputs as the modules on TF-Hub.
# `encoder(dict(input_word_ids=…, input_mask=…, input_type_ids=…))` calls the encoder, and
# `encoder.mlm(dict(…, masked_lm_positions=…))` the model for pre-training.
#
# The inputs are int32 [B, S], and [B, P] for the positions. The outputs are float32:
# `pooled_output` and the identical `default` [B, H], `sequence_output` [B, S, H], and
# `encoder_outputs`, a list of the outputs of the layers [B, S, H]. `mlm` adds `mlm_logits` [B, P,
# V], and `sop` adds `sop_log_probs` [B, 2], with class 0 for segments in the original order; models
# of another sentence objective have its abbreviation in place of `sop`. The signature
# `serving_default` is for TensorFlow Serving. The attributes `sp_model_file`, or `vocab_file` and
# `do_lower_case`, contain the vocabulary, and `albert_config_file` contains the config.

_INPUTS = {
    "input_ids": "input_word_ids",
    "input_mask": "input_mask",
    "segment_ids": "input_type_ids",
}
_POSITIONS = "masked_lm_positions"
_IDS = tf.TensorSpec((None, None), tf.int32)
_SIGNATURE_OUTPUTS = ("default", "pooled_output", "sequence_output")


@ops.plain()
def save_hub_module(
    directory: str,
    model: Any,
    config: AlbertConfig,
    has_masked_lm: bool = True,
    has_sentence_head: bool = True,
    tokenizer: FullTokenizer | None = None,
) -> None:
    """Writes a SavedModel in TF-Hub's format.

    Args:
        directory: the output folder, which is created if needed.
        model: an `AlbertForPretraining`.
        config: the model's config.
        has_masked_lm: whether to include `mlm`; False if the head was not trained.
        has_sentence_head: whether to include `sop`; False if the head was not trained.
        tokenizer: the tokenizer whose vocabulary to include. `do_lower_case` is stored for
            WordPiece; SentencePiece modules on TF-Hub always lowercase.
    """
    encoder = model.encoder

    # AutoGraph is not needed because no Python control flow depends on the value of a tensor.
    @tf.function(autograph=False)
    def encode(inputs: Tensors, training: bool = False) -> Tensors:
        batch = {ours: inputs[theirs] for ours, theirs in _INPUTS.items()}
        outputs = encoder(batch, training=training, output_hidden_states=True)
        return {
            "sequence_output": outputs["sequence_output"],
            "pooled_output": outputs["pooled_output"],
            "default": outputs["pooled_output"],
            "encoder_outputs": list(outputs["hidden_states"][1:]),
        }

    @tf.function(autograph=False)
    def predict_words(inputs: Tensors, training: bool = False) -> Tensors:
        outputs = encode({name: inputs[name] for name in _INPUTS.values()}, training=training)
        x = tf.gather(outputs["sequence_output"], inputs[_POSITIONS], batch_dims=1)  # [B, P, H]
        logits = model.masked_lm(x, encoder.embeddings)
        return outputs | {"mlm_logits": logits}

    @tf.function(autograph=False)
    def classify_pairs(inputs: Tensors, training: bool = False) -> Tensors:
        outputs = encode(inputs, training=training)
        logits = model.sentence_head(outputs["pooled_output"])
        return outputs | {f"{model.sentence_objective}_log_probs": tf.nn.log_softmax(logits)}

    def serve(inputs: Tensors) -> Tensors:
        outputs = encode(inputs, training=False)
        return {name: outputs[name] for name in _SIGNATURE_OUTPUTS}

    root = _callable_object(encode, encoder.variables)
    if has_masked_lm:
        variables = encoder.variables + model.masked_lm.variables
        root.mlm = _callable_object(predict_words, variables, _POSITIONS)
    if has_sentence_head and model.sentence_head is not None:
        variables = encoder.variables + model.sentence_head.variables
        setattr(root, model.sentence_objective, _callable_object(classify_pairs, variables))
    signature = Signature(dict.fromkeys(_INPUTS.values(), _IDS), serve)
    with _assets(root, config, tokenizer):
        save(directory, root, {DEFAULT: signature})


def _callable_object(call: Any, variables: list[tf.Variable], *more_inputs: str) -> Any:
    """Returns a savable object that can be called, traced for training and for inference."""
    root = tf.train.Checkpoint()
    root.__call__ = call
    specs = dict.fromkeys((*_INPUTS.values(), *more_inputs), _IDS)
    for training in (True, False):
        call.get_concrete_function(specs, training=training)
    root.variables = variables
    root.trainable_variables = variables
    root.regularization_losses = []
    return root


@contextlib.contextmanager
def _assets(root: Any, config: AlbertConfig, tokenizer: FullTokenizer | None) -> Iterator[None]:
    """Attaches the config and vocabulary as assets, whose files exist until the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        config_file = os.path.join(folder, "albert_config.json")
        config.to_json_file(config_file)
        root.albert_config_file = tf.saved_model.Asset(config_file)
        if tokenizer is not None:
            ((name, content),) = tokenizer.vocabulary_files.items()
            path = os.path.join(folder, name)
            with open(path, "wb") as stream:
                stream.write(content)
            if tokenizer.is_sentencepiece:
                root.sp_model_file = tf.saved_model.Asset(path)
            else:
                root.vocab_file = tf.saved_model.Asset(path)
                is_lower = tf.Variable(tokenizer.do_lower_case, trainable=False, name=LOWER_CASE)
                root.do_lower_case = is_lower
        yield
