"""The record of a run, `run.json`: how the checkpoints in its folder were trained.

A run writes it when it starts to train. It is compared when the run is resumed or its model is
used, because a model only works with the vocabulary and the order of labels it was trained with,
and others of the same size would give wrong results without an error. A converted or saved model
has a record of what is known of its training.

TensorFlow is not imported here, so that programs quickly know a run's settings.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import os
import platform
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from albert_tf import files
from albert_tf.files import Json, JsonObject
from albert_tf.model.tokenization import Tokenizer
from albert_tf.settings import SettingsGroup, check_value, converted, fields_of
from albert_tf.version import __version__

FILE = "run.json"
FORMAT = 1  # of the file; a change that this version would misread needs the next number

# Settings of a record that a program may not have as a flag, or that it chooses itself.
LOWER_CASE = "do_lower_case"
OBJECTIVE = "sentence_objective"
PRECISION = "precision"
RECORD_STREAMS = "record_streams"
STREAM_ORDER = "stream_order"
SORTED_ORDER = "sorted_order"
# Files of a record.
VOCABULARY = "vocabulary"
CONFIG = "config"
INIT_CHECKPOINT = "init_checkpoint"
TRAINING_DATA = "training data"  # the records of pre-training
TRAINING_EXAMPLES = "training examples"  # what fine-tuning learns from, whatever file has it
RECORD_METADATA = "record metadata"
RECORD_CONTENTS = "record contents"  # the bytes of record files
TASK_MODULE = "task module"  # the file of a task of the user
# An entry of the task: the metric that selects the best checkpoint.
SELECTION_METRIC = "selection_metric"
# Names in the comparison of two records.
TASK = "task"
LABELS = "label list"
_PRETRAINING = "pretraining"  # whose records have no name of a task, but a sentence objective

_DIGEST_LENGTH = 16


@dataclasses.dataclass(frozen=True)
class FileRecord:
    """A file that a training depends on.

    Attributes:
        digest: a text that identifies its content.
        path: its absolute path, for messages; "" if it is not known.
    """

    digest: str
    path: str = ""

    @classmethod
    def of(cls, checksum: str, path: str) -> FileRecord:
        """Returns the record of a file with a SHA-256, in hexadecimal."""
        return cls(f"sha256 {checksum[:_DIGEST_LENGTH]}", absolute(path) if path else "")

    @classmethod
    def of_text(cls, content: str, path: str) -> FileRecord:
        """Returns the record of a file with this content."""
        return cls.of(hashlib.sha256(content.encode("utf-8")).hexdigest(), path)

    @classmethod
    def of_vocabulary(cls, size: int, checksum: str, path: str) -> FileRecord:
        """Returns the record of a vocabulary with `size` entries and a SHA-256, in hexadecimal."""
        return cls(f"{size} entries, sha256 {checksum[:_DIGEST_LENGTH]}", path)

    def has(self, checksum: str) -> bool:
        """Returns whether this is the record of a file with this SHA-256."""
        return self.digest.endswith(f" {checksum[:_DIGEST_LENGTH]}")

    def __str__(self) -> str:
        return self.digest + (f" ({self.path})" if self.path else "")


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """Everything that is recorded of a run; empty where nothing is known.

    Attributes:
        start: when and how the training was started last: `started` (UTC), `command`, `directory`,
            `versions`, `platform`, `device`, and `changed_settings` if any were accepted.
        settings: name → value of the program's settings, as JSON has it.
        config: the model's config, as in albert_config.json.
        files: name → file that the training depended on.
        task: `name` in `albert_tf.finetuning.registry`, `labels` in the order of their ids, the
            `selection_metric`, and what the task itself adds.
        place: the path that it was read from, for messages.
    """

    start: Mapping[str, object] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)
    config: Mapping[str, object] = dataclasses.field(default_factory=dict)
    files: Mapping[str, FileRecord] = dataclasses.field(default_factory=dict)
    task: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    place: str = dataclasses.field(default=FILE, compare=False)

    @classmethod
    def from_json(cls, text: str, place: str) -> RunRecord:
        """Parses the text of `run.json`.

        Raises:
            ValueError: it is damaged, or was written by another program or by a newer version of
                this package, which is named. The message names `place`.
        """
        values = files.parse_json(text, place)
        _check_format(values, place)
        kinds = {field.name: dict for field in dataclasses.fields(cls) if field.name != "place"}
        files.check_fields(values, place, kinds)
        start = {"directory": ""} | values["start"]
        task = {"name": "", "labels": []} | values["task"]
        files.check_fields(start, f"{place}: start", {"directory": str})
        files.check_fields(task, f"{place}: task", {"name": str, "labels": list})
        if not all(isinstance(label, str) for label in task["labels"]):
            raise ValueError(f"{place}: expected texts as labels, got {task['labels']!r:.100}")
        kept = {}
        for name, file in values["files"].items():
            files.check_fields({"file": file}, f"{place}: {name}", {"file": dict})
            files.check_fields(file, f"{place}: {name}", {"digest": str, "path": str})
            kept[name] = FileRecord(file["digest"], file["path"])
        return cls(**{name: values[name] for name in kinds} | {"files": kept, "place": place})

    def to_json(self) -> str:
        """Returns the text of `run.json`."""
        values = dataclasses.asdict(self)
        del values["place"]
        return to_json({"format": FORMAT, **values}) + "\n"

    @property
    def task_name(self) -> str:
        """Name of the task that the model was fine-tuned for; "" if unknown."""
        return str(self.task.get("name", ""))

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the model's outputs; () if there are none."""
        return tuple(self.task.get("labels", ()))

    def only(self, *names: str) -> RunRecord:
        """Returns a record with only some settings and files, and the name of the task."""
        task = {"name": self.task_name} if self.task_name else {}
        return RunRecord(
            settings={name: self.settings[name] for name in names if name in self.settings},
            files={name: self.files[name] for name in names if name in self.files},
            task=task,
        )

    def values_for(self, of: type[SettingsGroup], names: Collection[str]) -> JsonObject:
        """Returns name → value of those settings in `names` that are recorded.

        Args:
            of: the settings class that defines them.
            names: names of settings.

        Raises:
            ValueError: a value has another type than the setting, or is not allowed for it.
        """
        values = {}
        for field in fields_of(of):
            if field.name not in names or field.name not in self.settings:
                continue
            value = self.settings[field.name]
            parts = value if isinstance(value, list) and field.is_tuple else [value]
            kinds = (int, float) if field.type is float else (field.type,)
            if value is not None and not all(type(part) in kinds for part in parts):
                raise ValueError(
                    f"{self.place}: expected {field.type.__name__} as {field.name}, "
                    f"got {value!r:.100}"
                )
            values[field.name] = tuple(value) if isinstance(value, list) else value
        try:
            converted(of, values)
            for defined in dataclasses.fields(of):
                check_value(defined, values.get(defined.name))
        except ValueError as error:
            raise ValueError(f"{self.place}: {error}") from None
        return values

    def texts(self, names: Collection[str] | None = None) -> dict[str, str]:
        """Returns name → text of what is compared: settings, digests of files, task and labels.

        Args:
            names: the names to return; None for all.
        """
        entries = {name: _text(value) for name, value in self.settings.items()}
        entries |= {name: file.digest for name, file in self.files.items()}
        task = self.task_name or (_PRETRAINING if self.settings.get(OBJECTIVE) else "")
        if task:
            entries[TASK] = task
        if self.labels:
            entries[LABELS] = json.dumps(self.labels, ensure_ascii=False)
        return {n: text for n, text in entries.items() if names is None or n in names}


def _check_format(values: Mapping[str, object], place: str) -> None:
    """Raises ValueError if the format of a record is unknown."""
    number = values.get("format")
    if type(number) is int and number == FORMAT:
        return
    if type(number) is not int or number < FORMAT:
        raise ValueError(f"{place}: 'format' is {number!r:.100}, expected {FORMAT}")
    start = values.get("start")
    versions = start.get("versions") if isinstance(start, dict) else None
    writer = versions.get("albert_tf") if isinstance(versions, dict) else None
    which = f"albert-tf2 {writer} or later" if writer else "a newer version of albert-tf2"
    raise ValueError(
        f"{place}: 'format' is {number}, and albert-tf2 {__version__} reads {FORMAT}: use {which}"
    )


def _text(value: object) -> str:
    """Returns the value of a setting for messages, equal for equal values."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(_text, value))
    return str(float(value) if type(value) is int else value).removesuffix(".0")


def of_tokenizer(tokenizer: Tokenizer, path: str) -> RunRecord:
    """Returns the part of a record that describes vocabulary and lowercasing.

    Args:
        tokenizer: the tokenizer.
        path: path of its vocabulary file.
    """
    vocabulary = FileRecord.of_vocabulary(tokenizer.vocab_size, tokenizer.checksum, absolute(path))
    return RunRecord(settings={LOWER_CASE: tokenizer.do_lower_case}, files={VOCABULARY: vocabulary})


def describe_start(command: Sequence[str], device: Mapping[str, object]) -> JsonObject:
    """Returns the entry `start` of a record.

    Args:
        command: the program and its arguments, such as `sys.argv`.
        device: the devices and the precision.
    """
    return {
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": list(command),
        "directory": os.getcwd(),
        "versions": _versions(),
        "platform": platform.platform(),
        "device": dict(device),
    }


def _versions() -> dict[str, str]:
    """Returns package → version of the packages that results depend on."""
    # Imported here so that programs without TensorFlow can read records.
    import tensorflow as tf
    import tf_keras

    return {
        "python": platform.python_version(),
        "albert_tf": __version__,
        "tensorflow": tf.__version__,
        "tf_keras": tf_keras.__version__,
        "numpy": np.__version__,
    }


def to_json(values: Mapping[str, object], indent: int | None = 1) -> str:
    """Returns the text of a file of the run."""

    def plain(value: object) -> object:
        """Converts NumPy scalars to numbers and anything else to strings."""
        return value.item() if isinstance(value, np.generic) else str(value)

    return json.dumps(values, indent=indent, ensure_ascii=False, default=plain)


def absolute(path: str) -> str:
    """Returns the absolute form of a local path; a remote path unchanged."""
    return path if files.is_remote(path) else os.path.abspath(path)
