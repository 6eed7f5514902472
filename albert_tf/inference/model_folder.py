"""The folder of a trained model, with its task and the settings that it was trained with.

Opening a TensorFlow checkpoint imports TensorFlow, which a recorded or given task can spare.
"""

from __future__ import annotations

from typing import Any

from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.finetuning import registry
from albert_tf.finetuning.registry import TaskSpec
from albert_tf.inference.settings import Settings
from albert_tf.settings import SettingsGroup, fields_of
from albert_tf.training.settings import RunSettings


class ModelFolder(ModelSource):
    """A model in a folder, with the task and the settings that it was trained with.

    The folder is the output directory of one of the programs, which record their task, or any
    folder that `from_pretrained` accepts, such as a released archive. `RunFolder` reads the record
    of a run, or Hugging Face's `config.json`. Without either, the head in the checkpoint tells the
    task.
    """

    def find_task(self, wanted: str | None = None) -> str:
        """Returns the name of the task to use the model for.

        Args:
            wanted: the requested task. None selects the task that the model was fine-tuned for, or
                `registry.DEFAULT` if it was not fine-tuned.

        Raises:
            ValueError: the task is not registered, the model was fine-tuned for another one, or its
                task is ambiguous.
        """
        recorded = self.run.record.task_name
        if wanted is None:
            try:
                return registry.get(recorded).name if recorded else self._task_of_head()
            except ValueError as error:
                raise ValueError(f"{self.run.path}: {error}") from None
        spec = registry.get(wanted)
        if spec.is_fine_tuned and recorded not in ("", spec.name):
            raise ValueError(
                f"{self.run.path}: the model was fine-tuned for the task {recorded}, and has no "
                f"head for {wanted}"
            )
        return spec.name

    def possible_tasks(self) -> tuple[str, ...]:
        """Returns all tasks that the model supports, starting with the one it was fine-tuned for.

        Raises:
            ValueError: the task of the model is ambiguous.
        """
        others = [s.name for s in registry.rows() if not s.is_fine_tuned and self._has_head_of(s)]
        return tuple(dict.fromkeys((self.find_task(), *others)))

    def _has_head_of(self, spec: TaskSpec) -> bool:
        return not spec.head_variable or spec.head_variable in self.recognized.entries

    def _task_of_head(self) -> str:
        """Returns the task that the head in the checkpoint is for, or else `registry.DEFAULT`.

        Raises:
            ValueError: several tasks have such a head.
        """
        fitting = [s for s in registry.rows() if s.is_fine_tuned and self._has_head_of(s)]
        own_heads = [spec for spec in fitting if spec.head_variable != registry.SHARED_HEAD]
        if own_heads or not fitting:
            return own_heads[0].name if own_heads else registry.DEFAULT
        of_size = [s.name for s in fitting if s.num_outputs == self.count_outputs(s)]
        if of_size:
            raise ValueError(
                "the head is one that several tasks have, and no file records its task: pass the "
                f"task, {' or '.join(of_size)}"
            )
        return next(spec.name for spec in fitting if spec.num_outputs is None)

    def count_outputs(self, spec: TaskSpec) -> int:
        """Returns the number of outputs of the head for a task; 0 for a task without a head.

        Raises:
            ValueError: the checkpoint has no such head.
        """
        name = spec.head_variable
        if not self._has_head_of(spec):
            raise ValueError(
                f"{self.checkpoint} has no head for the task {spec.name} ({name}). To train a new "
                "one, pass num_labels"
            )
        return int(self.recognized.entries[name].shape[0]) if name else 0

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
        recorded = self.run.record.values_for(of, names)
        return values | recorded | {"output_dir": self.run.path, "do_train": False}


def open_model(settings: Settings) -> ModelFolder:
    """Returns the folder of the model, after checking its vocabulary and `max_seq_length`.

    Raises:
        ValueError, OSError: there is no such model, or config, vocabulary and `max_seq_length` do
            not match; the message says which.
    """
    model_folder = ModelFolder(
        settings.model_dir,
        settings.albert_config_file,
        settings.vocab_file,
        settings.spm_model_file,
        settings.do_lower_case,
    )
    if settings.max_seq_length is not None:
        model_folder.config.check_length(settings.max_seq_length)
    _ = model_folder.tokenizer  # compares the vocabulary with the config and the record
    return model_folder
