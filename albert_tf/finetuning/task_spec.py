"""A row of the registry: everything that `from_pretrained` and the predictor know about a task.

Shapes: B batch size.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar, cast

from albert_tf.finetuning.head_variables import SHARED_HEAD
from albert_tf.finetuning.rows import Row
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.text_task import AnyTextTask, TextTask
from albert_tf.finetuning.texts import parse_pair
from albert_tf.finetuning.trained_model import TrainedModel

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras

    from albert_tf.finetuning.predicting_task import AnyPredictingTask
    from albert_tf.finetuning.task import AnyTask
    from albert_tf.model.modeling import AlbertEncoder, AlbertModel

Class = TypeVar("Class")
ModelClass: TypeAlias = "type[AlbertModel] | type[AlbertEncoder]"
# Returns the data of the splits, given the settings and the folder of the trained model, if any,
# and, if rows were passed from Python, split → table.
Reader = Callable[..., object]

_NAME = re.compile("[a-z][a-z0-9_]*")


class ComputingTask(Protocol):
    """A task that a model of TensorFlow is used for."""

    def compute(
        self, model: tf_keras.layers.Layer, batch: Mapping[str, tf.Tensor]
    ) -> Mapping[str, tf.Tensor]:
        """Returns the `outputs` of a model for a batch, name → [B, …]."""


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """A row of the registry.

    A class is given itself, or by a function without arguments that imports it and returns it.

    Attributes:
        name: name of the task in `from_pretrained`, `load_predictor` and `--task`, and in
            `run.json`; lowercase letters, digits and underscores.
        settings: the class of the fine-tuning program's settings, a subclass of
            `FineTuningSettings`.
        task: the class of the task, a subclass of `FineTuningTask`, or of `TextTask` if models are
            used for the task without being fine-tuned for it; the latter is called with a
            `TrainedModel`, and has a method `compute` as `FineTuningTask` has.
        head: the class of the model, called with the config and with `num_labels` if it has such
            an argument.
        reader: the function that reads the data, called with the settings and the folder of the
            trained model (or None) before TensorFlow is imported; its result is the argument `data`
            of the task's `make`. None if the task's `read` reads them. If rows are passed to
            `run_task`, it gets split → `Table` as a third argument.
        parse: the function that returns the example to predict in a row of a file or a request, or
            raises BadRowError; by default, it returns a pair of texts, (text, text or "").
        flags: the flags of `albert predict` that such a row can be given by, without "--"; () if
            any can.
        is_fine_tuned: whether models are fine-tuned for the task.
        head_variable: name of a variable of the head in checkpoints, which tells whether a
            checkpoint has the head; its first axis is that of the outputs. "" if there is no head.
        num_outputs: number of outputs of the head if all models have the same, which tells tasks
            apart whose heads have variables of the same names; None if labels decide it.
        head_arguments: further arguments of `head`, the same for all models of the task.
        head_settings: names of settings that are also arguments of `head`, with the values that
            the model was trained with.
        predicting: a function that imports the base class of `task` that needs no TensorFlow, a
            subclass of `PredictingTask` or `TextTask`, which is all that an exported model needs;
            None if `task` is imported for that, too.

    Raises:
        ValueError: the name has other characters.
    """

    name: str
    settings: type[FineTuningSettings] | Callable[[], type[FineTuningSettings]]
    task: type[AnyTask] | type[AnyTextTask] | Callable[[], type[AnyTask] | type[AnyTextTask]]
    head: ModelClass | Callable[[], ModelClass]
    reader: Reader | None = None
    parse: Callable[[Row], object] = parse_pair
    flags: tuple[str, ...] = ()
    is_fine_tuned: bool = True
    head_variable: str = SHARED_HEAD
    num_outputs: int | None = None
    head_arguments: Mapping[str, object] = dataclasses.field(default_factory=dict)
    head_settings: tuple[str, ...] = ()
    predicting: Callable[[], type[AnyPredictingTask] | type[AnyTextTask]] | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"TaskSpec.name={self.name!r}: expected lowercase letters, digits and underscores"
            )

    @property
    def settings_class(self) -> type[FineTuningSettings]:
        """The class of the settings."""
        return _loaded(self.settings)

    @property
    def head_class(self) -> ModelClass:
        """The class of the model."""
        return _loaded(self.head)

    @property
    def task_class(self) -> type[AnyTask]:
        """The class of the task.

        Raises:
            ValueError: no model is fine-tuned for it.
        """
        from albert_tf.finetuning.task import FineTuningTask  # needs TensorFlow

        task = _loaded(self.task)
        if not issubclass(task, FineTuningTask):
            raise ValueError(f"task={self.name!r}: no model is fine-tuned for it")
        return task

    def make_task(self, trained: TrainedModel) -> ComputingTask:
        """Returns the task of a trained model, which computes the outputs of a TensorFlow model.

        Raises:
            ValueError: what is recorded of the task is damaged, or does not fit the model.
        """
        return cast("ComputingTask", _loaded(self.task).of_trained(trained))

    def make_predicting(self, trained: TrainedModel) -> AnyPredictingTask | AnyTextTask:
        """Returns the part of the task of a trained model that needs no TensorFlow, if it has one.

        Raises:
            ValueError: as `make_task`.
        """
        return _loaded(self.predicting or self.task).of_trained(trained)


def text_task_of(
    task: ComputingTask | AnyPredictingTask | AnyTextTask, trained: TrainedModel
) -> AnyTextTask:
    """Returns what a predictor asks of the task of a trained model: the task itself, or its part.

    Args:
        task: what `make_task` or `make_predicting` returned.
        trained: the trained model.
    """
    if isinstance(task, TextTask):
        return task
    return cast("AnyPredictingTask", task).text_task(trained)


def _loaded(given: type[Class] | Callable[[], type[Class]]) -> type[Class]:
    """Returns a class that is given itself or by a function."""
    return given if isinstance(given, type) else given()
