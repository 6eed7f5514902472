"""The task of a model, as the record of a run and Hugging Face's `config.json` name it.

The names are those of records. The registry in `finetuning/` has a row for each, and adds those of
users. Hugging Face's `architectures`, `problem_type`, `id2label` and `num_labels` say what a run of
this package records in `run.json`; `RunFolder` reads them where there is no such record, so that
every program and function knows the same of a folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from albert_tf import files
from albert_tf.spelling import did_you_mean

CLASSIFICATION = "classification"
REGRESSION = "regression"
MULTI_LABEL = "multi_label_classification"
TOKEN_CLASSIFICATION = "token_classification"
MULTIPLE_CHOICE = "multiple_choice"
SPANS = "spans"
ANSWERABLE_SPANS = "answerable_spans"
FILL_MASK = "fill_mask"
EMBEDDINGS = "embeddings"
PRETRAINING = "pretraining"  # of a model for pre-training, which is used to fill in masks
ALIASES = {PRETRAINING: FILL_MASK}

_POOLS = ("use_pooled_output",)
_head_settings: dict[str, tuple[str, ...]] = {
    CLASSIFICATION: _POOLS,
    REGRESSION: _POOLS,
    MULTI_LABEL: _POOLS,
    TOKEN_CLASSIFICATION: (),
    MULTIPLE_CHOICE: (),
    SPANS: (),
    ANSWERABLE_SPANS: ("start_n_top", "end_n_top"),
    FILL_MASK: (),
    EMBEDDINGS: (),
}
NAMES = tuple(_head_settings)  # of this package

_SEQUENCE = "AlbertForSequenceClassification"
# Class of transformers → task; that of _SEQUENCE depends on `problem_type`.
_TASKS = {
    _SEQUENCE: CLASSIFICATION,
    "AlbertForTokenClassification": TOKEN_CLASSIFICATION,
    "AlbertForMultipleChoice": MULTIPLE_CHOICE,
    "AlbertForQuestionAnswering": SPANS,
}
_MASKED_WORDS = "AlbertForMaskedLM"
_PROBLEM_TYPES = {
    "single_label_classification": CLASSIFICATION,
    "multi_label_classification": MULTI_LABEL,
    "regression": REGRESSION,
}
_DEFAULT_LABEL = "LABEL_{}"
_DEFAULT_COUNT = 2  # transformers does not write this number of labels


def add(name: str, head_settings: tuple[str, ...]) -> None:
    """Adds a task of a user, and the names of the settings that its head is made with."""
    _head_settings[name] = head_settings


def canonical(name: str) -> str:
    """Returns the name of a task, which may be given by its alias.

    Raises:
        ValueError: there is no such task. The message lists all tasks.
    """
    known = ALIASES.get(name, name)
    if known not in _head_settings:
        names = (*_head_settings, *ALIASES)
        expected = did_you_mean(name, names) or f"expected one of {', '.join(map(repr, names))}."
        raise ValueError(
            f"task={name!r}: {expected} If it is a task of your own, import the "
            "file that registers it (albert predict: --task_module)"
        )
    return known


def head_settings(name: str) -> tuple[str, ...]:
    """Returns the names of the settings that are arguments of the head of a task.

    Raises:
        ValueError: there is no such task.
    """
    return _head_settings[canonical(name)]


# In `config.json`.


def read_task(values: Mapping[str, files.Json]) -> files.JsonObject:
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


def predicts_masked_words(values: Mapping[str, files.Json]) -> bool:
    """Returns whether a model was saved to predict masked words: with that head alone.

    Args:
        values: the content of `config.json`.
    """
    return _MASKED_WORDS in (values.get("architectures") or [])


def are_default(labels: Sequence[str]) -> bool:
    """Returns whether labels are those of a model that was trained without names."""
    return list(labels) == _default_labels(len(labels))


def _default_labels(count: int) -> list[str]:
    return [_DEFAULT_LABEL.format(number) for number in range(count)]


def _read_labels(values: Mapping[str, files.Json]) -> list[str]:
    names = values.get("id2label") or {}
    if not isinstance(names, dict) or set(names) != {str(n) for n in range(len(names))}:
        raise ValueError(f"id2label={names!r:.100}: expected names of the labels 0, 1, 2, …")
    if names:
        return [str(names[str(number)]) for number in range(len(names))]
    return _default_labels(int(values.get("num_labels") or _DEFAULT_COUNT))


def write_task(size: int, task: Mapping[str, files.Json]) -> files.JsonObject:
    """Returns the entries of `config.json` for a head with the weights `output_weights`.

    Args:
        size: number of outputs of the head.
        task: the entry `task` of `run.json`; {} if there is none.

    Raises:
        ValueError: task and head differ in their number of labels.
    """
    name = task.get("name") or CLASSIFICATION
    classes = {name: architecture for architecture, name in _TASKS.items()}
    values: files.JsonObject = {"architectures": [classes.get(name, _SEQUENCE)]}
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
