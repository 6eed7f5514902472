"""Determines the task, labels and training settings of a model from the files in its folder.

The folder is the output directory of one of the programs, which record their task, or any folder
that `from_pretrained` accepts, such as a released archive. `run_record` reads the record of a run,
or Hugging Face's `config.json`. Without either, the head in the checkpoint tells the task.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from albert_tf import tasks
from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.pretrained import (
    ModelSource,
    leave_out_pooler,
    load_pretrained,
)
from albert_tf.classification import custom
from albert_tf.classification.tasks import ClassificationTask
from albert_tf.settings import SettingsGroup, fields_of
from albert_tf.tasks import (
    CLASSIFICATION,
    EMBEDDINGS,
    MULTI_LABEL,
    MULTIPLE_CHOICE,
    REGRESSION,
    TaskSpec,
)
from albert_tf.token_classification.tags import Tags
from albert_tf.token_classification.task import recorded_tags
from albert_tf.tokenization import Tokenizer
from albert_tf.training.settings import RunSettings

HEAD = tasks.get(CLASSIFICATION).head_variable


class ModelFolder:
    """A folder with a trained model.

    Args:
        path: the folder, or a checkpoint in it.
        source: the model in it, if that has been opened.

    Attributes:
        path: the `path` argument.
        source: the model in the folder.
        folder: the folder of the model.
        run: the folder with the record of the training: `folder`, or in an export the subfolder
            with copies of its files.
        checkpoint: path of the checkpoint.
        shapes: weight name, as in this library → shape.

    Raises:
        FileNotFoundError, ValueError: the folder has no checkpoint, or more than one.
    """

    def __init__(self, path: str, source: ModelSource | None = None) -> None:
        self.path = path
        self.source = source or ModelSource(path)
        self.folder = self.source.folder
        self.run = self.source.run
        self.checkpoint = self.source.weights.path
        entries = self.source.recognized.entries
        self.shapes = {name: tuple(entry.shape) for name, entry in entries.items()}

    def load(self, task: str, **model_files: Any) -> tuple[Any, Tokenizer]:
        """Returns the model for a task and its tokenizer.

        Args:
            task: as in `albert_tf.from_pretrained`.
            **model_files: the arguments of `albert_tf.from_pretrained` about config and vocabulary.

        Raises:
            ValueError: as in `albert_tf.from_pretrained`, or the model needs a pooler, and the
                checkpoint has none.
        """
        is_changed = any(value is not None for value in model_files.values())
        source = ModelSource(self.checkpoint, **model_files) if is_changed else self.source
        model, tokenizer = load_pretrained(source, task)
        if "pooler" not in source.parts:
            if getattr(model, "uses_pooler", False):
                self.check_pooler(task)
            leave_out_pooler(model)
        return model, tokenizer

    def check_pooler(self, what: str) -> None:
        """Raises ValueError if the checkpoint has no pooler, which `what` needs."""
        if "pooler" not in self.source.parts:
            raise ValueError(
                f"{self.checkpoint}: {what} needs a pooler, and this checkpoint has none"
            )

    def find_task(self, wanted: str | None = None) -> str:
        """Returns the name of the task to use the model for.

        Args:
            wanted: the requested task. None selects the task that the model was fine-tuned for, or
                embeddings if it was not fine-tuned.

        Raises:
            ValueError: the task is not registered, the checkpoint has no head for it, or its task
                is ambiguous.
        """
        if wanted is None:
            return self._trained_task() or EMBEDDINGS
        spec = tasks.get(wanted)
        recorded = self.run.record.task_name
        # Several tasks have a head of the same name.
        is_other = spec.task is not None and recorded not in ("", spec.name)
        if is_other or not self._has_head_of(spec):
            trained = self._trained_task() or "no task"
            raise ValueError(
                f"{self.path} has no head for the task {wanted}: it was fine-tuned for {trained}"
            )
        return spec.name

    def possible_tasks(self) -> tuple[str, ...]:
        """Returns all tasks that the model supports, starting with the one it was fine-tuned for.

        Raises:
            ValueError: the task of the model is ambiguous.
        """
        others = [spec.name for spec in tasks.rows() if spec.task is None]
        others = [name for name in others if self._has_head_of(tasks.get(name))]
        return tuple(dict.fromkeys((self.find_task(), *others)))

    def _has_head_of(self, spec: TaskSpec) -> bool:
        return not spec.head_variable or spec.head_variable in self.shapes

    def _trained_task(self) -> str | None:
        """Returns the task that the model was fine-tuned for; None if it was not.

        Raises:
            ValueError: the recorded task is not registered, or none is recorded and it is
                ambiguous.
        """
        name = self.run.record.task_name
        try:
            if name and self._has_head_of(tasks.get(name)):
                return name
        except ValueError as error:
            raise ValueError(f"{self.run.path}: {error}") from None
        for spec in tasks.rows():
            if spec.task and spec.head_variable != HEAD and self._has_head_of(spec):
                return spec.name
        if HEAD in self.shapes and self.shapes[HEAD][0] == 1:
            raise ValueError(
                f"{self.path} has a head with one output, and no file that records its task: pass "
                f"the task, {REGRESSION} or {MULTIPLE_CHOICE}"
            )
        return CLASSIFICATION if HEAD in self.shapes else None

    def classification_task(self, task: str) -> ClassificationTask:
        """Returns the classification or regression task, with labels "0", "1", … if unknown.

        Raises:
            ValueError: the recorded labels are those of another head.
        """
        is_regression = task == REGRESSION
        labels = custom.recorded_labels(self.run.record)
        if labels and not is_regression:
            self._check_count(labels)
        else:
            labels = tuple(map(str, range(0 if is_regression else self.shapes[HEAD][0])))
        name = self.run.record.task.get("task_name", "")
        is_multi_label = task == MULTI_LABEL
        return ClassificationTask(
            name, "", {}, labels, is_regression=is_regression, is_multi_label=is_multi_label
        )

    def _check_count(self, labels: Sequence[str]) -> None:
        """Raises ValueError unless there are as many labels as outputs of the model."""
        count = self.shapes[HEAD][0]
        if len(labels) != count:
            raise ValueError(
                f"{self.run.path}: {run_record.FILE} or config.json lists {len(labels)} labels, "
                f"and the model has {count} outputs: they do not belong together"
            )

    def tags(self) -> Tags:
        """Returns the labels of token classification.

        Raises:
            ValueError: the labels were not recorded, or are those of another head.
        """
        tags = recorded_tags(self.run)
        if tags is None:
            raise ValueError(
                f"{self.run.path} has no {run_record.FILE} or config.json with labels of tokens"
            )
        self._check_count(tags.labels)
        return tags

    def settings(self, names: Collection[str], of: type[SettingsGroup]) -> dict[str, Any]:
        """Returns name → value of those recorded settings that are in `names`.

        Args:
            names: names of settings.
            of: the settings class that defines them.
        """
        return self.run.record.values_for(of, names)

    def all_settings(self, of: type[SettingsGroup]) -> dict[str, Any]:
        """Returns name → value for a program that uses the trained model, without its data.

        These are the recorded settings of data, model and predictions. Paths are not recorded;
        those that a program requires are the folder of the run's records.

        Args:
            of: the settings class of the program.
        """
        fields = fields_of(of)
        values = dict.fromkeys((field.name for field in fields if field.is_required), self.run.path)
        # Devices, logs and training are those of the machine and of the run that trained.
        others = {field.name for field in fields_of(RunSettings)}
        names = [field.name for field in fields if field.is_recorded and field.name not in others]
        recorded = self.settings(names, of)
        return values | recorded | {"output_dir": self.run.path, "do_train": False}
