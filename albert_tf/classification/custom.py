"""A row of the table of tasks for data of one's own, and what task a model was trained for.

Any folder with train, dev and test files will do, tab- or comma-separated or JSON lines: columns
are found by the names in their header, labels are read from the training data.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence

from albert_tf import files
from albert_tf.classification import reading as classification_data
from albert_tf.classification import tasks
from albert_tf.classification.tasks import ACCURACY, OWN_DATA, ClassificationTask, Columns, Source
from albert_tf.finetuning import tables

EXTENSIONS = (".tsv", ".csv", ".jsonl", ".json", ".txt")
TASK_FILE = "task.json"
MAX_LABELS = 1000  # more of them are taken for a wrong column
MAX_EXAMPLES_OF_THEIR_OWN = 50  # so many examples may each have a label of their own


def own_labels(train: classification_data.ExampleSet) -> tuple[str, ...]:
    """The labels of own training data: in numerical order if they are integers, else sorted.

    Raises:
        ValueError: fewer than two, too many, or fractions, which belong to a regression.
    """
    lines = {str(example.label): example.line for example in reversed(train.examples)}
    labels = sorted(lines)
    advice = "Is --label_column right?"
    if len(labels) < 2:
        raise ValueError(f"{train.path}: every example has the label {labels[0]!r}. {advice}")
    fractions = [
        label for label in labels if classification_data.is_number(label) and float(label) % 1
    ]
    if fractions:
        raise ValueError(
            f"{train.path}, line {lines[fractions[0]]}: label {fractions[0]!r} is a fraction, "
            f"no class. For numbers pass --is_regression. {advice}"
        )
    if len(labels) > MAX_LABELS or len(labels) == len(train) > MAX_EXAMPLES_OF_THEIR_OWN:
        raise ValueError(
            f"{train.path}: {len(labels)} different labels in {len(train)} examples. {advice}"
        )
    if all(label.removeprefix("-").isdecimal() for label in labels):
        labels.sort(key=int)
    return tuple(labels)


def describe_own_data(
    data_dir: str,
    columns: Columns | None = None,
    has_header: bool | None = None,
    is_regression: bool = False,
    labels: Sequence[str] = (),
    max_bad_rows: int = 0,
) -> ClassificationTask:
    """Makes a row of the table for train, dev and test files of one's own.

    Args:
        data_dir: holds train, dev and test with one of EXTENSIONS; a split may be absent.
        columns: by name or number; what is None is looked up in the header, among
            `classification_data.KNOWN_NAMES`.
        has_header: whether the files have a header; None: look.
        is_regression: labels are numbers to be predicted.
        labels: in the order of their ids; read from the training data where empty.
        max_bad_rows: as in `read_examples`.

    Raises:
        FileNotFoundError: no such file at all, or no training data to read the labels from.
        ValueError: two files for one split, or anything that `read_examples` refuses.
    """
    splits = {}
    for split in ("train", "dev", "test"):
        names = [split + extension for extension in EXTENSIONS]
        found = [name for name in names if tables.is_file(os.path.join(data_dir, name))]
        if len(found) > 1:
            raise ValueError(f"{data_dir} has {' and '.join(found)}: which one? Leave one there.")
        if found:
            splits[split] = (Source(found[0], columns or Columns(), has_header, is_guessed=True),)
    if not splits:
        raise FileNotFoundError(
            f"{data_dir}: neither train, dev nor test with one of {', '.join(EXTENSIONS)} is there"
        )
    task = ClassificationTask(
        OWN_DATA,
        "",
        splits,
        tuple(labels),
        is_regression,
        metrics=("MSE", "pearson", "spearman") if is_regression else (ACCURACY, "macro_f1"),
        selection_metric="pearson" if is_regression else ACCURACY,
    )
    if is_regression or labels:
        return task
    if "train" not in splits:
        raise FileNotFoundError(f"{data_dir} has no train file to read the labels from")
    # Not logged: whoever trains reads the file again.
    train = classification_data.read_examples(task, data_dir, "train", max_bad_rows, False)
    return dataclasses.replace(task, labels=own_labels(train))


@dataclasses.dataclass(frozen=True)
class OwnDataOptions:
    """What a command line may say of own data.

    Attributes:
        text_a_column, text_b_column, label_column, guid_column: where a row has what: a number from
            0 (or from the end: -1), or a name; None: look in the header.
        has_header, is_regression, labels: as in `describe_own_data`.
    """

    text_a_column: str | None = None
    text_b_column: str | None = None
    label_column: str | None = None
    guid_column: str | None = None
    has_header: bool | None = None
    is_regression: bool = False
    labels: Sequence[str] = ()

    @property
    def columns(self) -> Columns:
        """The columns as a table of tasks has them."""
        texts = self.text_a_column, self.text_b_column, self.label_column, self.guid_column
        return Columns(*(_parse_column(text) for text in texts))


OPTION_FLAGS = [field.name for field in dataclasses.fields(OwnDataOptions)]


def _parse_column(text: str | None) -> tables.Column | None:
    if not text:
        return None
    return int(text) if text.removeprefix("-").isdecimal() else text


def find_task(
    name: str,
    data_dir: str,
    options: OwnDataOptions,
    model_folders: Sequence[str] = (),
    max_bad_rows: int = 0,
) -> ClassificationTask:
    """The row of the table of a `--task_name`, or for own data one that is made for them.

    Args:
        name: of a task, or OWN_DATA.
        data_dir: of own data.
        options: what is said of own data.
        model_folders: folders of a model that was trained already: the first one that remembers
            labels gives them, where `options` has none.
        max_bad_rows: as in `read_examples`.

    Raises:
        FileNotFoundError, ValueError: as `classification_tasks.find_task` and `describe_own_data`.
    """
    if name.strip().lower() != OWN_DATA:
        return tasks.find_task(name)
    remembered = [remembered_labels(folder) for folder in model_folders]
    labels = next(filter(None, [options.labels, *remembered]), ())
    return describe_own_data(
        data_dir, options.columns, options.has_header, options.is_regression, labels, max_bad_rows
    )


def remembered_labels(folder: str) -> tuple[str, ...]:
    """The labels of the model in a folder, as `remember_task` wrote them; () where it did not.

    Raises:
        ValueError: the file is damaged.
    """
    known = _read_task(folder)
    return () if known is None else known.labels


def _read_task(folder: str) -> _Remembered | None:
    path = os.path.join(folder, TASK_FILE)
    try:
        known = json.loads(files.read_text(path))
        return _Remembered(**known | {"labels": tuple(known["labels"])})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path}: not written by this program; move it away") from None


@dataclasses.dataclass(frozen=True)
class _Remembered:
    """What `task.json` has: see `ClassificationTask`."""

    task_name: str
    folder: str
    labels: tuple[str, ...]
    is_regression: bool


def remember_task(folder: str, task: ClassificationTask) -> None:
    """Writes `task.json`, which says what the model in a folder of checkpoints is for."""
    now = _Remembered(task.name, task.folder, task.labels, task.is_regression)
    if _read_task(folder) != now:
        with files.write_atomically(os.path.join(folder, TASK_FILE)) as stream:
            json.dump(dataclasses.asdict(now), stream, indent=1, ensure_ascii=False)
            stream.write("\n")


def check_task(folder: str, task: ClassificationTask, is_training: bool) -> None:
    """Holds a task against that of the model in a folder, if `task.json` is there.

    So a model does not go on with another task in silence, nor with other labels, which would have
    other meanings. Only training is bound to the task: a model may be evaluated on another one
    with the same labels, as MNLI's is on both of its dev sets.

    Args:
        folder: of checkpoints.
        task: its labels known.
        is_training: whether the model is to be trained.

    Raises:
        ValueError: the model is for something else; says what.
    """
    known = _read_task(folder)
    if known is None:
        return
    is_same = (known.labels, known.is_regression) == (task.labels, task.is_regression)
    if not is_same or (is_training and known.folder != task.folder):
        raise ValueError(
            f"{folder} holds a model of the task {known.task_name} with the labels "
            f"{_few(known.labels)}; now it is {task.name} with {_few(task.labels)}. Use another "
            "--output_dir, with this model as --init_checkpoint if it shall start from there."
        )


def _few(labels: Sequence[str]) -> str:
    return (", ".join(labels[:10]) + ", …" * (len(labels) > 10)) or "numbers"
