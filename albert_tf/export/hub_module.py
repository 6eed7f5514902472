"""Writes TensorFlow 2 SavedModels with the interface of the ALBERT encoders on TF-Hub.

The SavedModels written by `save_hub_module` can be loaded with `hub.KerasLayer(folder)` and
`tf.saved_model.load(folder)`. They have the same inputs and outputs as the modules on TF-Hub.
`encoder(dict(input_word_ids=…, input_mask=…, input_type_ids=…))` calls the encoder, and
`encoder.mlm(dict(…, masked_lm_positions=…))` the model for pre-training.

The inputs are int32 [B, S], and [B, P] for the positions. The outputs are float32:
`pooled_output` and the identical `default` [B, H], `sequence_output` [B, S, H], and
`encoder_outputs`, a list of the outputs of the layers [B, S, H]. `mlm` adds `mlm_logits` [B, P,
V], and `sop` adds `sop_log_probs` [B, 2], with class 0 for segments in the original order; models
of another sentence objective have its abbreviation in place of `sop`. The signature
`serving_default` is for TensorFlow Serving. The attributes `sp_model_file`, or `vocab_file` and
`do_lower_case`, contain the vocabulary, and `albert_config_file` contains the config.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import tensorflow as tf

from albert_tf.checkpoints.run_record import LOWER_CASE
from albert_tf.export import saved_model
from albert_tf.export.signatures import DEFAULT, Signature, Tensors
from albert_tf.model import dispatch
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import FullTokenizer

if TYPE_CHECKING:  # what needs TensorFlow
    from albert_tf.model.modeling import AlbertForPretraining


_INPUTS = {
    "input_ids": "input_word_ids",
    "input_mask": "input_mask",
    "segment_ids": "input_type_ids",
}
_POSITIONS = "masked_lm_positions"
_IDS = tf.TensorSpec((None, None), tf.int32)
_SIGNATURE_OUTPUTS = ("default", "pooled_output", "sequence_output")


@dispatch.plain()
def save_hub_module(
    directory: str,
    model: AlbertForPretraining,
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

    def serve(inputs: Tensors) -> Tensors:
        outputs = encode(inputs, training=False)
        return {name: outputs[name] for name in _SIGNATURE_OUTPUTS}

    root = _callable_object(encode, encoder.variables)
    if has_masked_lm:
        variables = encoder.variables + model.masked_lm.variables
        root.mlm = _callable_object(predict_words, variables, _POSITIONS)
    head = model.sentence_head
    if has_sentence_head and head is not None:

        @tf.function(autograph=False)
        def classify_pairs(inputs: Tensors, training: bool = False) -> Tensors:
            outputs = encode(inputs, training=training)
            logits = head(outputs["pooled_output"])
            return outputs | {f"{model.sentence_objective}_log_probs": tf.nn.log_softmax(logits)}

        variables = encoder.variables + head.variables
        setattr(root, model.sentence_objective, _callable_object(classify_pairs, variables))
    signature = Signature(dict.fromkeys(_INPUTS.values(), _IDS), serve)
    with _assets(root, config, tokenizer):
        saved_model.save(directory, root, {DEFAULT: signature})


def _callable_object(
    call: tf.types.experimental.PolymorphicFunction,
    variables: list[tf.Variable],
    *more_inputs: str,
) -> tf.train.Checkpoint:
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
def _assets(
    root: tf.train.Checkpoint, config: AlbertConfig, tokenizer: FullTokenizer | None
) -> Iterator[None]:
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
