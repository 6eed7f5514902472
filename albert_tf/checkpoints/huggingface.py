"""Writes models in Hugging Face's format: `config.json`, `model.safetensors` and tokenizer files.

The result can be loaded with `transformers.AlbertForPreTraining.from_pretrained(folder)`. Compared
with Google's format, names differ (see `weight_names`), kernels are transposed, the projection
from E to H exists even if E = H, and "gelu" is the exact function with erf; Google's is called
"gelu_new".
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sized

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import safetensors_file
from albert_tf.checkpoints.arrays import LazyArrays
from albert_tf.checkpoints.families import check_google_layout, group_obstacle
from albert_tf.checkpoints.tasks import write_task
from albert_tf.checkpoints.weight_names import PROJECTION, name_map
from albert_tf.model.config import ACTIVATIONS, LAYER_NORM_EPSILON, AlbertConfig
from albert_tf.model.tokenization import (
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    FullTokenizer,
    Tokenizer,
)

WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
# Weight of a head → class with that head; the first match is used.
_ARCHITECTURES = (
    ("cls/seq_relationship/output_weights", "AlbertForPreTraining"),
    ("cls/predictions/output_bias", "AlbertForMaskedLM"),
    ("cls/squad/output_weights", "AlbertForQuestionAnswering"),
)
_CLASSIFIER = "output_weights"  # used by several heads; the task determines which


def config_to_hugging_face(
    config: AlbertConfig,
    tensors: Mapping[str, Sized],
    task: Mapping[str, files.Json] | None = None,
) -> files.JsonObject:
    """Returns the content of `config.json`.

    Args:
        config: the model's config, with Google's layout.
        tensors: name → weight; the heads among them determine the class that is written.
        task: the entry `task` of a run's `run.json`, with its name and labels.

    Raises:
        ValueError: Hugging Face does not have the activation, or task and head differ in their
            number of labels.
    """
    activations = ACTIVATIONS[config.hidden_act]
    if not activations:
        raise ValueError(f"Hugging Face's ALBERT does not have hidden_act={config.hidden_act!r}")
    heads = (architecture for name, architecture in _ARCHITECTURES if name in tensors)
    values = config.to_dict() | {
        "model_type": "albert",
        "architectures": [next(heads, "AlbertModel")],
        "hidden_act": activations[0],
        "layer_norm_eps": LAYER_NORM_EPSILON,
        "pad_token_id": 0,
    }
    if _CLASSIFIER in tensors:
        size = len(tensors[_CLASSIFIER])
        values |= write_task(size, task or {})
    return values


def to_hugging_face(tensors: Mapping[str, np.ndarray], config: AlbertConfig) -> LazyArrays:
    """Converts weights with Google's names to Hugging Face's names and layout.

    Each is computed when it is asked for.

    Raises:
        ValueError: Hugging Face's ALBERT does not support this model. The message says why.
    """
    check_google_layout(config)
    if obstacle := group_obstacle(config):
        raise ValueError(obstacle)
    names = name_map("hugging_face", config.num_hidden_groups, config.inner_group_num)
    left_out = sorted(set(tensors) - set(names))
    if left_out:
        logging.warning("Not part of Hugging Face's ALBERT, not written: %s", ", ".join(left_out))
    every = LazyArrays.of(tensors)
    if not config.has_embedding_projection:
        size = config.hidden_size
        kernel, bias = np.eye(size, dtype=np.float32), np.zeros(size, np.float32)
        every = every.plus({f"{PROJECTION}/kernel": kernel, f"{PROJECTION}/bias": bias})
    ours = {other: name for name, other in names.items() if name in every}

    def compute(other: str) -> np.ndarray:
        array = every[ours[other]]
        return array.T if ours[other].endswith("/kernel") else array

    shapes = {
        other: every.shapes[name][:: -1 if name.endswith("/kernel") else 1]
        for other, name in ours.items()
    }
    return LazyArrays(shapes, compute)


def save_hugging_face(
    directory: str,
    tensors: Mapping[str, np.ndarray],
    config: AlbertConfig,
    tokenizer: Tokenizer | None = None,
    task: Mapping[str, files.Json] | None = None,
) -> None:
    """Writes a folder that `from_pretrained` of `transformers` can load.

    Args:
        directory: an existing folder.
        tensors: name → weight, with Google's names.
        config: the model's config.
        tokenizer: the tokenizer, if it is known; one of a Hugging Face folder is written as it is,
            another as `tokenizer.json` and as its vocabulary, `spiece.model` or `vocab.txt`.
        task: as in `config_to_hugging_face`.

    Raises:
        ValueError: Hugging Face's ALBERT does not support this model, or tokenizers is not
            installed.
    """
    weights = to_hugging_face(tensors, config)
    try:
        import tokenizers  # noqa: F401 - is it installed?
    except ImportError:
        raise ValueError(
            "writing a Hugging Face model requires tokenizers: pip install 'albert-tf2[hf]'"
        ) from None
    values = config_to_hugging_face(config, tensors, task)
    files.write_json(os.path.join(directory, CONFIG_FILE), values)
    safetensors_file.write(os.path.join(directory, WEIGHTS_FILE), weights, {"format": "pt"})
    for name, content in (tokenizer.vocabulary_files if tokenizer else {}).items():
        files.write_file(os.path.join(directory, name), content)
    if isinstance(tokenizer, FullTokenizer):
        _write_tokenizer(directory, tokenizer)


def _write_tokenizer(directory: str, tokenizer: FullTokenizer) -> None:
    """Writes `tokenizer.json` and `tokenizer_config.json`."""
    from albert_tf.checkpoints.tokenizer_json import tokenizer_json

    tokenizer_class = "PreTrainedTokenizerFast"  # does exactly what tokenizer.json says
    try:
        content = tokenizer_json(tokenizer)
        files.write_file(os.path.join(directory, TOKENIZER_FILE), content)
    except ValueError as error:
        tokenizer_class = "AlbertTokenizer"
        logging.warning("%s. transformers needs sentencepiece and protobuf for the model", error)
    symbols = {"pad": tokenizer.pad_id, "unk": tokenizer.unk_id, "mask": tokenizer.mask_id}
    symbols |= {"cls": tokenizer.cls_id, "sep": tokenizer.sep_id}
    values = {
        "tokenizer_class": tokenizer_class,
        "do_lower_case": tokenizer.do_lower_case,
        # ALBERT was trained with segments, which AlbertTokenizer omits by default.
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "model_max_length": tokenizer.max_length,
        **{f"{symbol}_token": tokenizer.pieces[i] for symbol, i in symbols.items()},
    }
    files.write_json(os.path.join(directory, TOKENIZER_CONFIG_FILE), values)
