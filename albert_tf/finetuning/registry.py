"""The registry of tasks, with a row for everything that a model is fine-tuned or used for.

    registry.register(registry.TaskSpec("multi_label", MultiLabel, AlbertForClassification))

`from_pretrained`, `load_predictor`, `albert predict` and its web page get everything that they know
about a task from its row. A run records the name of the row with its checkpoints. No row imports
TensorFlow: the classes of models are imported by functions.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from albert_tf import files
from albert_tf.checkpoints import tasks
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.weight_names import ANSWERABLE_SPANS_HEAD, SHARED_HEAD, SPANS_HEAD
from albert_tf.finetuning.classification.task import Classifier
from albert_tf.finetuning.race.task import MultipleChoice
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.squad.task import QuestionAnswering
from albert_tf.finetuning.task import AnyFineTuningTask, AnyTask, FineTuningTask
from albert_tf.finetuning.token_classification.task import TokenClassifier

if TYPE_CHECKING:  # what needs TensorFlow
    from albert_tf.model import heads
    from albert_tf.model.modeling import AlbertEncoder, AlbertModel

DEFAULT = tasks.EMBEDDINGS  # of a model that was not fine-tuned

ModelClass: TypeAlias = "type[AlbertModel] | type[AlbertEncoder]"

_NAME = re.compile("[a-z][a-z0-9_]*")


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """A row of the registry.

    Attributes:
        name: name of the task in `from_pretrained`, `load_predictor` and `--task`, and in
            `run.json`; lowercase letters, digits and underscores.
        task: the class of the task.
        head: the class of the model, or a function that imports it and returns it. It is called
            with the config, and with `num_labels` if it has such an argument.
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
    task: type[AnyTask]
    head: ModelClass | Callable[[], ModelClass]
    head_variable: str = SHARED_HEAD
    num_outputs: int | None = None
    head_arguments: Mapping[str, object] = dataclasses.field(default_factory=dict)
    head_settings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"TaskSpec.name={self.name!r}: expected lowercase letters, digits and underscores"
            )

    @property
    def settings_class(self) -> type[FineTuningSettings]:
        """The class of the settings that models are trained with."""
        return self.task.settings_class

    @property
    def head_class(self) -> ModelClass:
        """The class of the model."""
        return self.head if isinstance(self.head, type) else self.head()

    @property
    def is_fine_tuned(self) -> bool:
        """Whether models are fine-tuned for the task."""
        return issubclass(self.task, FineTuningTask)

    @property
    def fine_tuned(self) -> type[AnyFineTuningTask]:
        """The class of the task.

        Raises:
            ValueError: no model is fine-tuned for it.
        """
        if not issubclass(self.task, FineTuningTask):
            raise ValueError(f"task={self.name!r}: no model is fine-tuned for it")
        return self.task

    def is_head_in(self, source: ModelSource) -> bool:
        """Returns whether a model has the head of the task."""
        return not self.head_variable or self.head_variable in source.recognized.entries

    def count_outputs(self, source: ModelSource) -> int:
        """Returns the number of outputs of the head of a model; 0 for a task without a head.

        Raises:
            ValueError: the checkpoint has no such head.
        """
        if source.is_exported:
            return len(source.run.record.labels)
        if not self.is_head_in(source):
            raise ValueError(
                f"{source.checkpoint} has no head for the task {self.name} ({self.head_variable}). "
                "To train a new one, pass num_labels"
            )
        if not self.head_variable:
            return 0
        return int(source.recognized.entries[self.head_variable].shape[0])


def _classification_head() -> type[heads.AlbertForClassification]:
    from albert_tf.model.heads import AlbertForClassification

    return AlbertForClassification


def _token_head() -> type[heads.AlbertForTokenClassification]:
    from albert_tf.model.heads import AlbertForTokenClassification

    return AlbertForTokenClassification


def _choice_head() -> type[heads.AlbertForMultipleChoice]:
    from albert_tf.model.heads import AlbertForMultipleChoice

    return AlbertForMultipleChoice


def _span_head() -> type[heads.AlbertForSpans]:
    from albert_tf.model.heads import AlbertForSpans

    return AlbertForSpans


def _answerable_head() -> type[heads.AlbertForAnswerableSpans]:
    from albert_tf.model.heads import AlbertForAnswerableSpans

    return AlbertForAnswerableSpans


_POOLS = tasks.head_settings(tasks.CLASSIFICATION)
_own = {
    spec.name: spec
    for spec in (
        TaskSpec(tasks.CLASSIFICATION, Classifier, _classification_head, head_settings=_POOLS),
        TaskSpec(
            tasks.REGRESSION,
            Classifier,
            _classification_head,
            num_outputs=1,
            head_arguments={"num_labels": 1, "is_regression": True},
            head_settings=_POOLS,
        ),
        TaskSpec(
            tasks.MULTI_LABEL,
            Classifier,
            _classification_head,
            head_arguments={"is_multi_label": True},
            head_settings=_POOLS,
        ),
        TaskSpec(tasks.TOKEN_CLASSIFICATION, TokenClassifier, _token_head),
        TaskSpec(tasks.MULTIPLE_CHOICE, MultipleChoice, _choice_head, num_outputs=1),
        TaskSpec(tasks.SPANS, QuestionAnswering, _span_head, SPANS_HEAD),
        TaskSpec(
            tasks.ANSWERABLE_SPANS,
            QuestionAnswering,
            _answerable_head,
            ANSWERABLE_SPANS_HEAD,
            head_settings=tasks.head_settings(tasks.ANSWERABLE_SPANS),
        ),
    )
}
_users: dict[str, TaskSpec] = {}


def add(spec: TaskSpec) -> None:
    """Adds a task of this package, whose name is one of `checkpoints.tasks.NAMES`."""
    _own[spec.name] = spec


def register(spec: TaskSpec) -> None:
    """Adds a task, and replaces one of the same name, for example when a file is imported again.

    Raises:
        ValueError: a task of this package has the same name.
    """
    if spec.name in tasks.ALIASES or spec.name in tasks.NAMES:
        raise ValueError(f"{spec.name!r} is a task of albert_tf: give yours another name")
    _users[spec.name] = spec
    tasks.add(spec.name, spec.head_settings)


def names() -> tuple[str, ...]:
    """Returns the names of all tasks, those of this package first."""
    return tuple(spec.name for spec in rows())


def rows() -> tuple[TaskSpec, ...]:
    """Returns the rows of all tasks, in the order of `names`."""
    return (*_own.values(), *_users.values())


def get(name: str) -> TaskSpec:
    """Returns the row of a task; "pretraining" is another name of "fill_mask".

    Raises:
        ValueError: there is no such task. The message lists all tasks.
    """
    known = tasks.canonical(name)
    spec = _own.get(known) or _users.get(known)
    if spec is None:  # `inference`, which has the tasks without fine-tuning, is not imported
        raise ValueError(f"task={name!r}: no model is fine-tuned for it")
    return spec


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
        files.check_file(module, "--task_module")
        path = os.path.realpath(module)
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
