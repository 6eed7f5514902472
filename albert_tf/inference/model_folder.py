"""Determines the task, labels and training settings of a model from the files in its folder.

The folder is the output directory of one of the programs, which record their task, or any folder
that `from_pretrained` accepts, such as a released archive. `RunFolder` reads the record of a run,
or Hugging Face's `config.json`. Without either, the head in the checkpoint tells the task.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from albert_tf import tasks
from albert_tf.checkpoints.pretrained import (
    ModelSource,
    leave_out_pooler,
    load_pretrained,
)
from albert_tf.model.tokenization import Tokenizer
from albert_tf.settings import SettingsGroup, fields_of
from albert_tf.tasks import TaskSpec
from albert_tf.training.settings import RunSettings


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
                `tasks.DEFAULT` if it was not fine-tuned.

        Raises:
            ValueError: the task is not registered, the checkpoint has no head for it, or its task
                is ambiguous.
        """
        if wanted is None:
            return self._trained_task() or tasks.DEFAULT
        spec = tasks.get(wanted)
        recorded = self.run.record.task_name
        # Several tasks have a head of the same name.
        is_other = spec.is_fine_tuned and recorded not in ("", spec.name)
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
        others = [spec.name for spec in tasks.rows() if not spec.is_fine_tuned]
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
        fitting = [s for s in tasks.rows() if s.is_fine_tuned and self._has_head_of(s)]
        own_heads = [spec for spec in fitting if spec.head_variable != tasks.SHARED_HEAD]
        if own_heads or not fitting:
            return own_heads[0].name if own_heads else None
        of_size = [s.name for s in fitting if s.num_outputs == self.count_outputs(s)]
        if of_size:
            raise ValueError(
                f"{self.path} has a head that several tasks have, and no file that records its "
                f"task: pass the task, {' or '.join(of_size)}"
            )
        return next(spec.name for spec in fitting if spec.num_outputs is None)

    def count_outputs(self, spec: TaskSpec) -> int:
        """Returns the number of outputs of the head for a task; 0 without a head."""
        return int(self.shapes[spec.head_variable][0]) if spec.head_variable else 0

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
