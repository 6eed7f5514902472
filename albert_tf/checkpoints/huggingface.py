"""Writes models in Hugging Face's format: `config.json`, `model.safetensors` and tokenizer files.

The result can be loaded with `transformers.AlbertForPreTraining.from_pretrained(folder)`. Compared
with Google's format, names differ (see `families`), kernels are transposed, the projection from E
to H exists even if E = H, and "gelu" is the exact function with erf; Google's is called "gelu_new".
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf.checkpoints.families import (
    PROJECTION,
    check_google_layout,
    group_obstacle,
    name_map,
)
from albert_tf.checkpoints.run_record import (
    CLASSIFICATION,
    MULTI_LABEL,
    MULTIPLE_CHOICE,
    REGRESSION,
    SPANS,
    TOKEN_CLASSIFICATION,
)
from albert_tf.model.activation_names import ACTIVATIONS
from albert_tf.model.config import LAYER_NORM_EPSILON, AlbertConfig
from albert_tf.model.huggingface_tokenizer import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE
from albert_tf.model.tokenization import FullTokenizer, Tokenizer

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
    tensors: Mapping[str, Any],
    task: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
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


def to_hugging_face(
    tensors: Mapping[str, np.ndarray], config: AlbertConfig
) -> dict[str, np.ndarray]:
    """Converts weights with Google's names to Hugging Face's names and layout.

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
    every = dict(tensors)
    if not config.has_embedding_projection:
        size = config.hidden_size
        every[f"{PROJECTION}/kernel"] = np.eye(size, dtype=np.float32)
        every[f"{PROJECTION}/bias"] = np.zeros(size, np.float32)
    return {
        other: np.ascontiguousarray(every[name].T if name.endswith("/kernel") else every[name])
        for name, other in names.items()
        if name in every
    }


def save_hugging_face(
    directory: str,
    tensors: Mapping[str, np.ndarray],
    config: AlbertConfig,
    tokenizer: Tokenizer | None = None,
    task: Mapping[str, Any] | None = None,
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
        ValueError: Hugging Face's ALBERT does not support this model, or safetensors or tokenizers
            is not installed.
    """
    weights = to_hugging_face(tensors, config)
    try:
        import tokenizers  # noqa: F401 - is it installed?
        from safetensors.numpy import save
    except ImportError:
        raise ValueError(
            "writing a Hugging Face model requires safetensors and tokenizers: pip install "
            "'albert-tf2[hf]'"
        ) from None
    values = config_to_hugging_face(config, tensors, task)
    files.write_json(os.path.join(directory, CONFIG_FILE), values)
    files.write_file(
        os.path.join(directory, WEIGHTS_FILE), save(weights, metadata={"format": "pt"})
    )
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


# The task and the labels of a model in Hugging Face's `config.json`, read and written.
#
# `architectures`, `problem_type`, `id2label` and `num_labels` say there what a run of this package
# records in `run.json`. `RunFolder` reads them with `read_task` where there is no such record, so
# that every program and function knows the same of a folder.

_SEQUENCE = "AlbertForSequenceClassification"
# Class of a fine-tuned model → task; that of _SEQUENCE depends on `problem_type`.
_TASKS = {
    _SEQUENCE: CLASSIFICATION,
    "AlbertForTokenClassification": TOKEN_CLASSIFICATION,
    "AlbertForMultipleChoice": MULTIPLE_CHOICE,
    "AlbertForQuestionAnswering": SPANS,
}
_PROBLEM_TYPES = {
    "single_label_classification": CLASSIFICATION,
    "multi_label_classification": MULTI_LABEL,
    "regression": REGRESSION,
}
_DEFAULT_LABEL = "LABEL_{}"
_DEFAULT_COUNT = 2  # transformers does not write this number of labels


def read_task(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the task that a model was fine-tuned for, and what `run.json` would record of it.

    Labels have the names that `pipeline` of transformers returns, such as "LABEL_0" if the model
    was trained without names.

    Args:
        values: the content of `config.json`.

    Returns:
        The entry `task` of `run.json`: the name of the task, unless its class is unknown, and its
        labels, if it has any; {} if the model was not fine-tuned.

    Raises:
        ValueError: the ids of the labels are not 0, 1, 2 and so on; or the problem type is unknown.
    """
    classes = values.get("architectures") or []
    task = next((_TASKS[name] for name in classes if name in _TASKS), "")
    if task in (MULTIPLE_CHOICE, SPANS):
        return {"name": task}
    labels = _read_labels(values)
    if task == TOKEN_CLASSIFICATION:
        return {"name": task, "labels": labels}
    if task == CLASSIFICATION:
        kind = values.get("problem_type")
        if kind is None:  # as transformers decides by the number of labels
            kind = "regression" if len(labels) == 1 else "single_label_classification"
        if kind not in _PROBLEM_TYPES:
            expected = ", ".join(_PROBLEM_TYPES)
            raise ValueError(f"problem_type={kind!r:.100}: expected one of {expected}")
        task = _PROBLEM_TYPES[kind]
    if not task and (classes or are_default(labels)):
        return {}
    named = {"name": task} if task else {}
    return named | {"labels": [] if task == REGRESSION else labels}


def are_default(labels: Sequence[str]) -> bool:
    """Returns whether labels are those of a model that was trained without names."""
    return list(labels) == _default_labels(len(labels))


def _default_labels(count: int) -> list[str]:
    return [_DEFAULT_LABEL.format(number) for number in range(count)]


def _read_labels(values: Mapping[str, Any]) -> list[str]:
    names = values.get("id2label") or {}
    if not isinstance(names, dict) or set(names) != {str(n) for n in range(len(names))}:
        raise ValueError(f"id2label={names!r:.100}: expected names of the labels 0, 1, 2, …")
    if names:
        return [str(names[str(number)]) for number in range(len(names))]
    return _default_labels(int(values.get("num_labels") or _DEFAULT_COUNT))


def write_task(size: int, task: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entries of `config.json` for a head with the weights `output_weights`.

    Args:
        size: number of outputs of the head.
        task: the entry `task` of `run.json`; {} if there is none.

    Raises:
        ValueError: task and head differ in their number of labels.
    """
    name = task.get("name") or CLASSIFICATION
    classes = {name: architecture for architecture, name in _TASKS.items()}
    values: dict[str, Any] = {"architectures": [classes.get(name, _SEQUENCE)]}
    if name == MULTIPLE_CHOICE:
        return values
    labels = list(task.get("labels", ()))
    if labels and len(labels) != size:
        raise ValueError(
            f"the head has {size} outputs, but the task has {len(labels)} labels: "
            f"{', '.join(labels[:10])}"
        )
    labels = labels or _default_labels(size)
    values |= {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    problem_types = {name: kind for kind, name in _PROBLEM_TYPES.items()}
    return values | ({"problem_type": problem_types[name]} if name in problem_types else {})
