"""The registry of tasks, with a row for everything that a model is fine-tuned or used for.

    registry.register(
        registry.TaskSpec("multi_label", Settings, MultiLabel, AlbertForClassification)
    )

`from_pretrained`, `load_predictor`, `albert predict` and its web page get everything that they know
about a task from its row. A run records the name of the row with its checkpoints. Rows of this
package refer to classes and functions by "module:name", which are imported on first use.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from albert_tf.checkpoints import tasks
from albert_tf.checkpoints.tasks import (
    ANSWERABLE_SPANS,
    CLASSIFICATION,
    EMBEDDINGS,
    FILL_MASK,
    MULTI_LABEL,
    MULTIPLE_CHOICE,
    REGRESSION,
    SPANS,
    TOKEN_CLASSIFICATION,
)
from albert_tf.finetuning.rows import Row
from albert_tf.finetuning.texts import parse_pair
from albert_tf.settings import SettingsGroup

DEFAULT = EMBEDDINGS  # of a model that was not fine-tuned
SHARED_HEAD = "output_weights"  # variable of the heads of most tasks

_NAME = re.compile("[a-z][a-z0-9_]*")


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """A row of the registry.

    Classes and functions are given as objects, or as "module:name"; see `resolve`.

    Attributes:
        name: name of the task in `from_pretrained`, `load_predictor` and `--task`, and in
            `run.json`; lowercase letters, digits and underscores.
        settings: the class of the fine-tuning program's settings, a subclass of
            `FineTuningSettings`.
        task: the class of the task, a subclass of `FineTuningTask`, or of `TextTask` if models are
            used for the task without being fine-tuned for it.
        head: the class of the model, called with the config and with `num_labels` if it has such
            an argument.
        reader: the function that reads the data, called with the settings and the folder of the
            trained model (or None) before TensorFlow is imported; its result is the argument `data`
            of the task's `make`. None if the task's `read` reads them.
        parse: the function that returns the example to predict in a row of a file or a request, or
            raises BadRowError; by default, it returns a pair of texts, (text, text or "").
        is_fine_tuned: whether models are fine-tuned for the task.
        head_variable: name of a variable of the head in checkpoints, which tells whether a
            checkpoint has the head; its first axis is that of the outputs. "" if there is no head.
        num_outputs: number of outputs of the head if all models have the same, which tells tasks
            apart whose heads have variables of the same names; None if labels decide it.
        head_arguments: further arguments of `head`, the same for all models of the task.
        head_settings: names of settings that are also arguments of `head`, with the values that
            the model was trained with.

    Raises:
        ValueError: the name has other characters.
    """

    name: str
    settings: str | type[SettingsGroup]
    task: str | type[Any]
    head: str | type[Any]
    reader: str | Callable[[Any, Any], Any] | None = None
    parse: str | Callable[[Row], Any] = parse_pair
    is_fine_tuned: bool = True
    head_variable: str = SHARED_HEAD
    num_outputs: int | None = None
    head_arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    head_settings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"TaskSpec.name={self.name!r}: expected lowercase letters, digits and underscores"
            )


def resolve(reference: Any) -> Any:
    """Returns the object that "module:name" refers to, after importing it; others unchanged."""
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


_ANY_SETTINGS = "albert_tf.finetuning.settings:FineTuningSettings"
_CLASSIFIER = TaskSpec(
    CLASSIFICATION,
    "albert_tf.finetuning.classification:Settings",
    "albert_tf.finetuning.classification.task:Classifier",
    "albert_tf.model.heads:AlbertForClassification",
    "albert_tf.finetuning.classification.reading:read_data",
    head_settings=tasks.head_settings(CLASSIFICATION),
)
_SPANS = TaskSpec(
    SPANS,
    "albert_tf.finetuning.squad:Settings",
    "albert_tf.finetuning.squad.task:QuestionAnswering",
    "albert_tf.model.heads:AlbertForSpans",
    "albert_tf.finetuning.squad.reading:read_data",
    "albert_tf.finetuning.squad.reading:parse_question",
    head_variable="cls/squad/output_weights",
)
_BUILT_IN = (
    _CLASSIFIER,
    dataclasses.replace(
        _CLASSIFIER,
        name=REGRESSION,
        num_outputs=1,
        head_arguments={"num_labels": 1, "is_regression": True},
    ),
    dataclasses.replace(
        _CLASSIFIER,
        name=MULTI_LABEL,
        head_arguments={"is_multi_label": True},
    ),
    TaskSpec(
        TOKEN_CLASSIFICATION,
        "albert_tf.finetuning.token_classification:Settings",
        "albert_tf.finetuning.token_classification.task:TokenClassifier",
        "albert_tf.model.heads:AlbertForTokenClassification",
        "albert_tf.finetuning.token_classification.reading:read_data",
        "albert_tf.finetuning.token_classification.sentences:parse_words",
    ),
    TaskSpec(
        MULTIPLE_CHOICE,
        "albert_tf.finetuning.race:Settings",
        "albert_tf.finetuning.race.task:MultipleChoice",
        "albert_tf.model.heads:AlbertForMultipleChoice",
        "albert_tf.finetuning.race.reading:read_data",
        "albert_tf.finetuning.race.questions:parse_choice",
        num_outputs=1,
    ),
    _SPANS,
    dataclasses.replace(
        _SPANS,
        name=ANSWERABLE_SPANS,
        head="albert_tf.model.heads:AlbertForAnswerableSpans",
        head_variable="start_logits/dense/kernel",
        head_settings=tasks.head_settings(ANSWERABLE_SPANS),
    ),
    TaskSpec(
        FILL_MASK,
        _ANY_SETTINGS,
        "albert_tf.inference.fill_mask:FillMask",
        "albert_tf.model.modeling:AlbertForPretraining",
        parse="albert_tf.inference.inputs:parse_masked",
        is_fine_tuned=False,
        head_variable="cls/predictions/output_bias",
    ),
    TaskSpec(
        EMBEDDINGS,
        _ANY_SETTINGS,
        "albert_tf.inference.embeddings:Embeddings",
        "albert_tf.model.modeling:AlbertEncoder",
        is_fine_tuned=False,
        head_variable="",
    ),
)
_rows = {spec.name: spec for spec in _BUILT_IN}


def register(spec: TaskSpec) -> None:
    """Adds a task, and replaces one of the same name, for example when a file is imported again.

    Raises:
        ValueError: a task of this package has the same name.
    """
    if spec.name in tasks.ALIASES or any(spec.name == own.name for own in _BUILT_IN):
        raise ValueError(f"{spec.name!r} is a task of albert_tf: give yours another name")
    _rows[spec.name] = spec
    tasks.add(spec.name, spec.head_settings)


def names() -> tuple[str, ...]:
    """Returns the names of all tasks, those of this package first."""
    return tuple(_rows)


def rows() -> tuple[TaskSpec, ...]:
    """Returns the rows of all tasks, in the order of `names`."""
    return tuple(_rows.values())


def get(name: str) -> TaskSpec:
    """Returns the row of a task; "pretraining" is another name of "fill_mask".

    Raises:
        ValueError: there is no such task. The message lists all tasks.
    """
    return _rows[tasks.canonical(name)]


def import_tasks(module: str) -> None:
    """Imports a module that registers tasks.

    Args:
        module: path of a Python file, whose folder is added to `sys.path` as for a script; or the
            dotted name of an installed module.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the module cannot be imported, or another one of the same name has been.
    """
    name = module
    path = None
    if module.endswith(".py"):
        path = os.path.realpath(module)
        if not os.path.isfile(path):
            raise FileNotFoundError(f"{module}: no such file. Expected one that registers a task")
        folder = os.path.dirname(path)
        name = os.path.basename(path).removesuffix(".py")
        if folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        imported = importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f"{module}: cannot be imported: {error}") from error
    source = os.path.realpath(imported.__file__ or "")
    if path is not None and source != path:
        raise ValueError(f"{module}: {source} has the same module name, {name!r}. Rename the file")
