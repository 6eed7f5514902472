"""Determines the task, labels and training settings of a model from the files in its folder.

The folder is the output directory of one of the programs, or any folder that `from_pretrained`
accepts, such as a released archive. The head in the checkpoint identifies most tasks; `task.json`
and the recorded settings distinguish the others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from albert_tf.checkpoints import families, finding, trained_with
from albert_tf.checkpoints.containers import open_weights
from albert_tf.checkpoints.names import variable_name
from albert_tf.checkpoints.pretrained import load_pretrained
from albert_tf.classification import custom
from albert_tf.classification.tasks import ClassificationTask
from albert_tf.inference.settings import EMBEDDINGS, FILL_MASK, TASKS
from albert_tf.modeling import AlbertModel
from albert_tf.settings import SettingsGroup, describe, from_text
from albert_tf.squad.task import HEAD_V1, HEAD_V2
from albert_tf.token_classification.task import Tags, remembered_tags
from albert_tf.tokenization import FullTokenizer

HEAD = "output_weights"  # of classification, regression, multiple choice and token classification
MASKED_LM_HEAD = "cls/predictions/output_bias"
# A setting that is unique to one program → the task that this program trains models for.
SIGNS = {"max_qa_length": "multiple_choice", "use_pooled_output": "classification"}


class ModelFolder:
    """A folder with a trained model.

    Args:
        path: the folder, or a checkpoint in it.

    Attributes:
        path: the `path` argument.
        folder: the folder of the model.
        records: the folder with the files that describe the run: `folder`, or in an export the
            subfolder with copies of these files.
        checkpoint: path of the checkpoint.
        shapes: weight name, as in this library → shape.
        recorded: setting name → text of its value in training; {} if no settings were recorded.

    Raises:
        FileNotFoundError, ValueError: the folder has no checkpoint, or more than one.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.folder = finding.folder_of(path)
        self.records = finding.records_of(self.folder)
        weights = open_weights(path)
        self.checkpoint = weights.path
        entries = families.recognize(weights.shapes).entries
        self.shapes = {name: tuple(entry.shape) for name, entry in entries.items()}
        self.recorded = trained_with.read_settings(self.records)

    def load(self, task: str | None, **arguments: Any) -> tuple[Any, FullTokenizer]:
        """Returns the model for a task and its tokenizer.

        Args:
            task: as in `albert_tf.from_pretrained`.
            **arguments: the other arguments of `albert_tf.from_pretrained`.
        """
        return load_pretrained(self.checkpoint, task, **arguments)

    def find_task(self, wanted: str | None = None) -> str:
        """Returns the task to use the model for, one of `TASKS`.

        Args:
            wanted: the requested task. None selects the task that the model was fine-tuned for, or
                embeddings if it was not fine-tuned.

        Raises:
            ValueError: the checkpoint has no head for the task, or its task is ambiguous.
        """
        if wanted is None:
            return self._trained_task() or EMBEDDINGS
        if wanted not in TASKS:
            raise ValueError(f"task={wanted!r}: expected one of {', '.join(map(repr, TASKS))}")
        if wanted != EMBEDDINGS and not self._has_head_of(wanted):
            trained = self._trained_task() or "no task"
            raise ValueError(
                f"{self.path} has no head for the task {wanted}: it was fine-tuned for {trained}"
            )
        return wanted

    def possible_tasks(self) -> tuple[str, ...]:
        """Returns all tasks that the model supports, starting with the one it was fine-tuned for.

        Raises:
            ValueError: the task of the model is ambiguous.
        """
        masks = (FILL_MASK,) if self._has_head_of(FILL_MASK) else ()
        return tuple(dict.fromkeys((self.find_task(), *masks, EMBEDDINGS)))

    def _has_head_of(self, task: str) -> bool:
        heads = {FILL_MASK: MASKED_LM_HEAD, "spans": HEAD_V1, "answerable_spans": HEAD_V2}
        return heads.get(task, HEAD) in self.shapes

    def _trained_task(self) -> str | None:
        if HEAD_V2 in self.shapes or HEAD_V1 in self.shapes:
            return "answerable_spans" if HEAD_V2 in self.shapes else "spans"
        if HEAD not in self.shapes:
            return None
        task = self._remembered_task()
        if task is None and self.shapes[HEAD][0] == 1:
            raise ValueError(
                f"{self.path} has a head with one output, and no file that records its task: pass "
                "the task, regression or multiple_choice"
            )
        return task or "classification"

    def _remembered_task(self) -> str | None:
        """Returns the task according to `task.json` or the recorded settings, or None."""
        known = finding.read_json_if_there(self.records, custom.TASK_FILE)
        if "token_labels" in known:
            return "token_classification"
        if known:
            remembered = custom.read_task(self.records)
            is_regression = remembered is not None and remembered.is_regression
            return "regression" if is_regression else "classification"
        return next((task for name, task in SIGNS.items() if name in self.recorded), None)

    def classification_task(self, task: str) -> ClassificationTask:
        """Returns the classification or regression task, with labels "0", "1", … if unknown.

        Raises:
            ValueError: the recorded labels are those of another head.
        """
        known = custom.read_task(self.records)
        is_regression = task == "regression"
        if known is not None and known.is_regression == is_regression:
            if not is_regression:
                self._check_count(known.labels)
            return ClassificationTask(
                known.task_name, known.folder, {}, known.labels, known.is_regression
            )
        count = 0 if is_regression else self.shapes[HEAD][0]
        return ClassificationTask("", "", {}, tuple(map(str, range(count))), is_regression)

    def _check_count(self, labels: Sequence[str]) -> None:
        """Raises ValueError unless there are as many labels as outputs of the model."""
        count = self.shapes[HEAD][0]
        if len(labels) != count:
            raise ValueError(
                f"{self.records}/{custom.TASK_FILE} lists {len(labels)} labels, and the model "
                f"has {count} outputs: they do not belong together"
            )

    def tags(self) -> Tags:
        """Returns the labels of token classification.

        Raises:
            ValueError: the labels were not recorded, or are those of another head.
        """
        tags = remembered_tags(self.records)
        if tags is None:
            raise ValueError(
                f"{self.folder} has no {custom.TASK_FILE}, which lists the labels of the tokens"
            )
        self._check_count(tags.labels)
        return tags

    def settings(self, names: Collection[str], of: type[SettingsGroup]) -> dict[str, Any]:
        """Returns name → value of those recorded settings that are in `names`.

        Args:
            names: names of settings.
            of: the settings class that defines them.
        """
        fields = {field.name: field for field in describe(of)}
        return {
            name: from_text(self.recorded[name], fields[name])
            for name in names
            if name in fields and name in self.recorded
        }


class LoadedModelFolder(ModelFolder):
    """A folder whose model is in memory, and may have been trained since it was loaded.

    Args:
        path: as in `ModelFolder`.
        model: a model that was loaded from the folder.
        tokenizer: its tokenizer.
    """

    def __init__(self, path: str, model: Any, tokenizer: FullTokenizer) -> None:
        super().__init__(path)
        self.shapes = {variable_name(weight): tuple(weight.shape) for weight in model.variables}
        self._loaded = model, tokenizer

    def load(self, task: str | None, **arguments: Any) -> tuple[Any, FullTokenizer]:
        """Returns the model, or its encoder if the task is None; ignores the arguments."""
        model, tokenizer = self._loaded
        is_head = task is None and isinstance(model, AlbertModel)
        return (model.encoder if is_head else model), tokenizer
