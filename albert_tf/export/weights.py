"""Writes the weights of a model in each of the formats that have them.

TensorFlow is imported by those that need it when they write.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from absl import logging

from albert_tf.checkpoints import huggingface, loading
from albert_tf.checkpoints.arrays import Array, LazyArrays, as_tensor
from albert_tf.checkpoints.run_folder import BEST
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.checkpoints.weight_names import GLOBAL_STEP, by_name, part_of
from albert_tf.model.objectives import SOP
from albert_tf.model.tokenization import FullTokenizer, Tokenizer

if TYPE_CHECKING:  # what needs TensorFlow
    from albert_tf.model.modeling import AlbertForPretraining


MASKED_LM, SENTENCE = "masked-LM head", "sentence head"  # keys of `weight_names.PARTS`


@dataclasses.dataclass(frozen=True)
class Output:
    """What is written.

    Attributes:
        folder: the folder.
        model: a model of the output's config.
        tensors: variable → weights, float32, read when they are asked for; those of a head of
            fine-tuning are not the model's.
        tokenizer: the tokenizer; None if the input has none.
        record: what is known of the training.
    """

    folder: str
    model: AlbertForPretraining
    tensors: Mapping[str, Array]
    tokenizer: Tokenizer | None
    record: RunRecord


def write_tensorflow(output: Output) -> None:
    """Writes `model.ckpt-best`, with Google's names."""
    from albert_tf.checkpoints import store

    step = {GLOBAL_STEP: np.array(0, np.int64)}  # Google's programs expect int64
    tensors = LazyArrays.of(output.tensors).plus(step)
    store.save_checkpoint(os.path.join(output.folder, BEST), tensors)


def write_hugging_face(output: Output) -> None:
    """Writes `model.safetensors` and what transformers needs beside it.

    Raises:
        ValueError: transformers has no such model.
    """
    model, record = output.model, output.record
    if record.settings.get("use_pooled_output") is False:
        raise ValueError(
            "Hugging Face's ALBERT classifies the pooled output, but this model was trained with "
            "--nouse_pooled_output and classifies the mean of all tokens"
        )
    if model.objective.has_head and model.sentence_objective != SOP:
        logging.warning(
            "Hugging Face's name of the sentence head is sop_classifier, but this one was trained "
            "with sentence_objective=%s",
            model.sentence_objective,
        )
    huggingface.save_hugging_face(
        output.folder, output.tensors, model.config, output.tokenizer, record.task
    )


def write_tf_hub(output: Output) -> None:
    """Writes a module for TensorFlow Hub."""
    from albert_tf.export.hub_module import save_hub_module

    parts = _assign(output, "a TF-Hub module")
    model, tokenizer = output.model, output.tokenizer
    if not (tokenizer is None or isinstance(tokenizer, FullTokenizer)):
        logging.warning(
            "A TF-Hub module has a vocabulary, not a Hugging Face tokenizer: it is left out"
        )
        tokenizer = None
    save_hub_module(
        output.folder, model, model.config, MASKED_LM in parts, SENTENCE in parts, tokenizer
    )


def write_saved_model(output: Output) -> None:
    """Writes a SavedModel that computes embeddings, with all weights."""
    from albert_tf.export import saved_model
    from albert_tf.export.embeddings import embeddings_export, poolings_of
    from albert_tf.export.signatures import hold

    parts = _assign(output, "a pre-trained SavedModel")
    model = output.model
    if "pooler" not in parts:
        loading.leave_out_pooler(model)
    exported = embeddings_export(
        model.encoder,
        output.tokenizer,
        model.config.max_position_embeddings,
        poolings_of(parts),
    )
    variables = list(model.encoder.variables)
    if MASKED_LM in parts:
        variables += model.masked_lm.variables
    if SENTENCE in parts and model.sentence_head is not None:
        variables += model.sentence_head.variables
    saved_model.save(output.folder, hold(variables), exported.signatures)


def _assign(output: Output, target: str) -> set[str]:
    """Assigns the weights to the model, zeros where there are none; returns the parts with weights.

    Args:
        output: what is written. A warning names each weight that its model does not have.
        target: the form in which the model is written, for the warnings.

    Returns:
        Keys of `weight_names.PARTS`.
    """
    from albert_tf.model.initialization import set_value

    variables = by_name(output.model.variables)
    for name in sorted(output.tensors.keys() - variables.keys()):
        logging.warning("%s is not part of %s and is left out", name, target)
    for name, variable in variables.items():
        value = output.tensors.get(name)
        if value is None:
            value = np.zeros(variable.shape, np.float32)
        set_value(variable, as_tensor(value))
    return set(map(part_of, output.tensors))
