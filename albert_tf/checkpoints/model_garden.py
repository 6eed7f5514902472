"""Writes checkpoints for the TensorFlow Model Garden (tf-models-official).

`save_model_garden` writes an object-based TensorFlow 2 checkpoint for the Model Garden's encoder.
It can be passed to the Model Garden's tasks as `init_checkpoint`, or loaded in Python:

    encoder = model_garden.make_encoder(config)
    tf.train.Checkpoint(encoder=encoder).read("folder/albert_model.ckpt").expect_partial()

`load_checkpoint` reads all checkpoints of this kind. The Model Garden has neither a sentence-order
head nor hidden groups. Its encoder splits the hidden size into attention heads, so the kernels of
the attention are 3-D, and it applies the attention's dropout rate where Google's program uses
`hidden_dropout_prob`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import store
from albert_tf.checkpoints.families import check_google_layout
from albert_tf.checkpoints.names import name_map, variable_name
from albert_tf.config import AlbertConfig

CHECKPOINT_NAME = "albert_model.ckpt"


def check_config(config: AlbertConfig) -> None:
    """Checks that the Model Garden's encoder supports a model.

    Raises:
        ValueError: the model is not supported. The message says why.
    """
    check_google_layout(config, "the Model Garden's")
    if (config.num_hidden_groups, config.inner_group_num) != (1, 1):
        raise ValueError(
            "the Model Garden's ALBERT shares one block among all layers, but this model has "
            f"num_hidden_groups={config.num_hidden_groups}, "
            f"inner_group_num={config.inner_group_num}"
        )


def make_encoder(config: AlbertConfig) -> tf_keras.Model:
    """Returns the Model Garden's `AlbertEncoder` for a config, with random weights.

    Its inputs are `input_word_ids`, `input_mask` and `input_type_ids`, int32 [B, S]; its output is
    a dict of `sequence_output`, `encoder_outputs` and `pooled_output`.

    Raises:
        ValueError: the Model Garden's encoder does not support the model.
    """
    from official.modeling import tf_utils
    from official.nlp.modeling import networks

    check_config(config)
    return networks.AlbertEncoder(
        vocab_size=config.vocab_size,
        embedding_width=config.embedding_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        max_sequence_length=config.max_position_embeddings,
        type_vocab_size=config.type_vocab_size,
        intermediate_size=config.intermediate_size,
        activation=tf_utils.get_activation(config.hidden_act),
        dropout_rate=config.hidden_dropout_prob,
        attention_dropout_rate=config.attention_probs_dropout_prob,
        initializer=tf_keras.initializers.TruncatedNormal(stddev=config.initializer_range),
        dict_outputs=True,
    )


def to_model_garden(tensors: Mapping[str, np.ndarray], config: AlbertConfig) -> dict[str, Any]:
    """Returns the Model Garden's objects with the given weights, by their checkpoint names.

    Args:
        tensors: name → weight, with Google's names.
        config: the model's config.

    Returns:
        A dict of `encoder`, and `masked_lm` if `tensors` include that head.

    Raises:
        ValueError: the model is not supported, or weights of the encoder are missing.
    """
    items = {"encoder": make_encoder(config)}
    if any(name.startswith("cls/predictions/") for name in tensors):
        items["masked_lm"] = _make_masked_lm(items["encoder"], config)
    names = {theirs: ours for ours, theirs in name_map("model_garden").items()}
    variables = [variable for item in items.values() for variable in item.variables]
    wanted = {names[variable_name(variable)]: variable for variable in variables}
    missing = sorted(wanted.keys() - tensors.keys())
    if missing:
        raise ValueError(f"weights are missing: {', '.join(missing)}")
    for name, variable in wanted.items():
        variable.assign(np.reshape(tensors[name], variable.shape))
    left_out = sorted(tensors.keys() - wanted.keys())
    if left_out:
        logging.warning("Not part of the Model Garden, not written: %s", ", ".join(left_out))
    return items


def _make_masked_lm(encoder: tf_keras.Model, config: AlbertConfig) -> tf_keras.layers.Layer:
    """Returns the masked language modeling head of the Model Garden's `BertPretrainerV2`, built."""
    from official.modeling import tf_utils
    from official.nlp.modeling import layers

    head = layers.MaskedLM(
        embedding_table=encoder.get_embedding_table(),
        activation=tf_utils.get_activation(config.hidden_act),
        name="bert/cls/predictions",  # scope of the variables in that model
    )
    head(tf.zeros((1, 1, config.hidden_size)), tf.zeros((1, 1), tf.int32))
    return head


def save_model_garden(
    directory: str, tensors: Mapping[str, np.ndarray], config: AlbertConfig
) -> None:
    """Writes an object-based checkpoint that the Model Garden's ALBERT reads.

    Args:
        directory: an existing local folder, in which `albert_model.ckpt.*` and `checkpoint` are
            written.
        tensors: name → weight, with Google's names.
        config: the model's config.

    Raises:
        ValueError: the model is not supported, or weights of the encoder are missing.
    """
    items = to_model_garden(tensors, config)
    path = os.path.join(directory, CHECKPOINT_NAME)
    with store.naming_disk_errors(path, "the checkpoint"):
        tf.train.Checkpoint(**items).write(path)
    # The Model Garden's tasks read this file if `init_checkpoint` is a folder.
    with files.write_atomically(os.path.join(directory, "checkpoint")) as stream:
        stream.write(f'model_checkpoint_path: "{CHECKPOINT_NAME}"\n')
