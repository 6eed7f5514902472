"""The record of a run: `run.json`, which describes the training of the checkpoints in its folder.

Its entries are

* the last start that trained: `started`, `command`, `directory`, `flags` (all settings), `config`,
  `versions`, `platform` and `device`;
* `identity` and `paths`: everything that the result of the training depends on. They are written
  with the first checkpoint, and compared when the run is resumed or its model is used, because a
  model only works with the vocabulary and the order of labels it was trained with, and others of
  the same size would give wrong results without an error;
* `task`: what the model's task needs to know again, such as its labels.

Converted checkpoints keep what is known of task and vocabulary. Other starts, such as evaluations,
leave a `run.json` of a training as it is. `runs.jsonl` has a line for every start, and
`results.json` the final metrics. In a folder of Hugging Face, `config.json` says which task and
labels the model has, if no record does.

TensorFlow is not imported here, so that programs know a run's settings at once.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import os
import platform
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from absl import logging

import albert_tf
from albert_tf import files
from albert_tf.checkpoints import huggingface_tasks
from albert_tf.config import AlbertConfig, is_hugging_face
from albert_tf.sentence_objectives import NONE, OBJECTIVES, SOP
from albert_tf.settings import SettingsGroup, describe, from_text
from albert_tf.tokenization import Tokenizer

FILE = "run.json"
RUNS_FILE = "runs.jsonl"
RESULTS_FILE = "results.json"
PHASES = ("train", "eval", "test")
_HUGGING_FACE_FILE = "config.json"
# Entries that a new start leaves as they are.
IDENTITY = "identity"
PATHS = "paths"
TASK = "task"
_OF_CHECKPOINTS = (IDENTITY, PATHS, TASK)
_KINDS = {
    "flags": dict,
    "config": dict,
    "directory": str,
    **dict.fromkeys((IDENTITY, PATHS), dict[str, str]),
    TASK: dict,
}

# Names in the identity.
VOCABULARY = "vocabulary"
LOWER_CASE = "do_lower_case"
OBJECTIVE = "sentence_objective"
PRECISION = "precision"
CONFIG = "config"
INIT_CHECKPOINT = "init_checkpoint"
TRAINING_DATA = "training data"
LABELS = "label list"  # in the order of their ids, as a JSON list
TASK_MODULE = "task module"  # the file of a task of the user
OF_TEXT = frozenset({VOCABULARY, LOWER_CASE})  # names that tokenization depends on
# What the weights of step 0 depend on. Everything else may change before the first step, for
# example after it ran out of memory.
_DECIDE_START = {"seed", "optimizer", "init_from_group0", INIT_CHECKPOINT}
_DIGEST_LENGTH = 16
_TABLE_WIDTH = 100  # in a wider table, each text is on a separate line

Changes = dict[str, tuple[str, str]]  # name → (before, now)


@dataclasses.dataclass(frozen=True)
class TrainedWith:
    """Everything that the result of a training run depends on.

    Attributes:
        identity: name → short text: settings that affect the result, and fingerprints of files.
        paths: name → absolute path of the file with that fingerprint.
        others: settings that do not affect the result, as texts.
    """

    identity: dict[str, str]
    paths: dict[str, str] = dataclasses.field(default_factory=dict)
    others: dict[str, str] = dataclasses.field(default_factory=dict)

    def adding(self, name: str, checksum: str, path: str) -> TrainedWith:
        """Returns a copy with the fingerprint of one more file.

        Args:
            name: name in the identity.
            checksum: SHA-256 of the content, in hexadecimal.
            path: path of the file; "" if it is not known.
        """
        identity = self.identity | {name: f"sha256 {checksum[:_DIGEST_LENGTH]}"}
        paths = self.paths | ({name: absolute(path)} if path else {})
        return TrainedWith(identity, paths, self.others)

    def adding_config(self, config: AlbertConfig, path: str) -> TrainedWith:
        """Returns a copy with the fingerprint of a model's config.

        Args:
            config: of the model.
            path: of its file; "" if that is not known.
        """
        content = json.dumps(config.to_dict(), sort_keys=True)
        return self.adding(CONFIG, hashlib.sha256(content.encode("utf-8")).hexdigest(), path)

    def with_labels(self, labels: Sequence[str]) -> TrainedWith:
        """Returns a copy with the labels of the model; unchanged if there are none."""
        entry = {LABELS: json.dumps(labels, ensure_ascii=False)} if labels else {}
        return dataclasses.replace(self, identity=self.identity | entry)

    def with_task(self, name: str) -> TrainedWith:
        """Returns a copy with the name of the model's task; unchanged if it is empty."""
        entry = {TASK: name} if name else {}
        return dataclasses.replace(self, identity=self.identity | entry)

    def only(self, names: Collection[str]) -> TrainedWith:
        """Returns a copy with only the given names and their paths."""
        identity = {name: text for name, text in self.identity.items() if name in names}
        return TrainedWith(identity, {n: p for n, p in self.paths.items() if n in names})

    def is_same(self, other: TrainedWith, name: str) -> bool:
        """Returns whether a name has the same text in both identities."""
        return self.identity.get(name) == other.identity.get(name)

    def show(self, name: str) -> str:
        """Returns the text for a name, with the path of its file if there is one."""
        path = self.paths.get(name)
        return self.identity[name] + (f" ({path})" if path else "")


# Reading


def content(folder: str) -> dict[str, Any]:
    """Returns all entries of the record in a folder; {} if there is none.

    Raises:
        ValueError: a file of the run is damaged.
    """
    entries = _read_own(folder)
    identity = entries.get(IDENTITY, {})
    if TASK in entries or TASK in identity:
        return entries
    theirs = _hugging_face_entries(folder)
    if IDENTITY in theirs:
        theirs[IDENTITY] |= identity
    return entries | theirs


def _hugging_face_entries(folder: str) -> dict[str, Any]:
    """Returns the entries that Hugging Face's `config.json` in a folder implies; {} without one.

    Raises:
        ValueError: the file is damaged, or describes no task.
    """
    path = os.path.join(folder, _HUGGING_FACE_FILE)
    values = files.read_json(path) if files.exists(path) else {}
    if not is_hugging_face(values):
        return {}
    try:
        name, details = huggingface_tasks.read_task(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    labels = details.get("token_labels") or details.get("labels") or []
    named = () if huggingface_tasks.are_default(labels) else labels
    identity = TrainedWith({}).with_task(name).with_labels(named).identity
    return ({IDENTITY: identity} if identity else {}) | ({TASK: details} if details else {})


def _read_own(folder: str) -> dict[str, Any]:
    """Returns the content of `run.json`; {} if there is none."""
    path = os.path.join(folder, FILE)
    if not files.exists(path):
        return {}
    text = files.read_text(path)
    entries = files.parse_json(text, path)
    kinds = {name: kind for name, kind in _KINDS.items() if name in entries}
    return files.parse_json(text, path, kinds)


def read_details(folder: str, fields: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Returns the entry `TASK`, and the path of the file that it is in.

    Args:
        folder: folder of the run.
        fields: name → type of required values, as in `files.parse_json`.

    Returns:
        The entry, and the path for messages; the entry is {} if there is none.

    Raises:
        ValueError: the file is damaged or was written by another program.
    """
    own, path = _read_own(folder), os.path.join(folder, FILE)
    if TASK not in own:
        theirs = content(folder).get(TASK, {})
        path = os.path.join(folder, _HUGGING_FACE_FILE) if theirs else path
        return (theirs if fields.keys() <= theirs.keys() else {}), path  # {}: of another task
    return files.parse_json(json.dumps(own[TASK]), path, fields), path


def read(folder: str) -> TrainedWith | None:
    """Returns what the checkpoints in a folder were trained with; None if this is not recorded.

    Raises:
        ValueError: a file of the run is damaged.
    """
    entries = content(folder)
    if IDENTITY not in entries:
        return None
    flags = {name: _as_text(value) for name, value in entries.get("flags", {}).items()}
    return TrainedWith(entries[IDENTITY], entries.get(PATHS, {}), flags)


def _as_text(value: Any) -> str:
    """Returns the value of a setting, as JSON has it, as `settings.to_text` does."""
    return ",".join(map(_as_text, value)) if isinstance(value, list) else str(value)


def read_flags(folder: str) -> tuple[dict[str, Any], str]:
    """Returns the settings of the run in a folder, and its working directory; {} and "" if unknown.

    Raises:
        ValueError: a file of the run is damaged.
    """
    entries = _read_own(folder)
    return entries.get("flags", {}), entries.get("directory", "")


def read_settings(folder: str) -> dict[str, str]:
    """Returns setting → text of the run in a folder: as trained, or if unknown, as last used.

    Raises:
        ValueError: a file of the run is damaged.
    """
    texts = {name: _as_text(value) for name, value in read_flags(folder)[0].items()}
    recorded = read(folder) or TrainedWith({})
    return texts | recorded.others | recorded.identity


def read_objective(folder: str) -> str:
    """Returns the sentence objective that the model in a folder was trained with.

    Without a record, this is "sop". If it is not registered here, it is "none", with a warning: the
    model is then used without its sentence head.

    Raises:
        ValueError: a file of the run is damaged.
    """
    objective = read_settings(folder).get(OBJECTIVE, SOP)
    if objective in OBJECTIVES:
        return objective
    text = "%s: trained with sentence_objective=%s, which is not registered here (only %s)"
    logging.warning(
        text + ": the sentence head is left out", folder, objective, ", ".join(OBJECTIVES)
    )
    return NONE


def read_task(folder: str) -> str:
    """Returns the name of the task that the model in a folder was trained for; "" if unknown.

    Raises:
        ValueError: a file of the run is damaged.
    """
    recorded = read(folder)
    return "" if recorded is None else recorded.identity.get(TASK, "")


def values_of(
    recorded: Mapping[str, str], names: Collection[str], of: type[SettingsGroup]
) -> dict[str, Any]:
    """Returns name → value of those settings in `names` that are recorded.

    Args:
        recorded: setting → text, as returned by `read_settings`.
        names: names of settings.
        of: the settings class that defines them.
    """
    fields = {field.name: field for field in describe(of)}
    return {
        name: from_text(recorded[name], fields[name])
        for name in names
        if name in fields and name in recorded
    }


# Writing


def write_content(folder: str, entries: Mapping[str, Any]) -> None:
    """Writes all entries of a record, as returned by `content`."""
    _write_json(folder, FILE, entries)


def write(folder: str, trained_with: TrainedWith) -> None:
    """Records what the checkpoints in a folder are trained with."""
    entry = {IDENTITY: trained_with.identity, PATHS: trained_with.paths}
    write_content(folder, content(folder) | entry)


def write_task(folder: str, details: Mapping[str, Any]) -> None:
    """Records the entry `TASK`."""
    write_content(folder, content(folder) | {TASK: dict(details)})


def write_start(folder: str, start: Mapping[str, Any]) -> None:
    """Records the start of a run, unless it does not train and an earlier one did.

    Args:
        folder: folder of the run.
        start: as returned by `describe_start`.
    """
    before = content(folder)
    if start["flags"].get("do_train") or not before.get("flags", {}).get("do_train"):
        kept = {name: before[name] for name in _OF_CHECKPOINTS if name in before}
        write_content(folder, dict(start) | kept)


def add_start(output_dir: str, start: Mapping[str, Any]) -> None:
    """Appends a start, as returned by `describe_start`, to `runs.jsonl`."""
    path = os.path.join(output_dir, RUNS_FILE)
    text = files.read_text(path) if files.exists(path) else ""
    if text and not text.endswith("\n"):
        text += "\n"
    with files.write_atomically(path) as stream:
        stream.write(text + to_json(start, indent=None) + "\n")


def describe_start(
    command: Sequence[str],
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
    device: Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the description of a start, for `write_start` and `add_start`.

    Args:
        command: the program and its arguments, such as `sys.argv`.
        settings: name → value of all settings including defaults; "flags" in the file.
        config: the model's config, as in albert_config.json.
        device: the devices and the precision.
        changes: folder → settings that differ from those its checkpoints were trained with and
            that the user accepted; "changed_settings" in the file.

    Returns:
        An entry for each argument, and `started` (UTC), the working `directory`, `platform` and
        `versions`.
    """
    entry = {
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": list(command),
        "directory": os.getcwd(),
        "flags": dict(settings),
        "config": dict(config),
        "versions": _versions(),
        "platform": platform.platform(),
        "device": dict(device),
    }
    if changes:
        entry["changed_settings"] = dict(changes)
    return entry


def _versions() -> dict[str, str]:
    """Returns package → version of the packages that results depend on."""
    # Imported here so that programs without TensorFlow can lock directories.
    import numpy as np
    import tensorflow as tf
    import tf_keras

    return {
        "python": platform.python_version(),
        "albert_tf": albert_tf.__version__,
        "tensorflow": tf.__version__,
        "tf_keras": tf_keras.__version__,
        "numpy": np.__version__,
    }


def record_results(output_dir: str, results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Updates the metrics of some phases in `results.json`.

    Args:
        output_dir: an existing directory.
        results: phase (one of `PHASES`) → name → value.

    Returns:
        The new content of the file.

    Raises:
        ValueError: the file is damaged.
    """
    all_results = read_results(output_dir) | dict(results)
    merged = {phase: all_results[phase] for phase in PHASES if phase in all_results}
    _write_json(output_dir, RESULTS_FILE, merged)
    return merged


def read_results(output_dir: str) -> dict[str, dict[str, Any]]:
    """Returns `results.json` as phase → name → value; {} if the file does not exist.

    Raises:
        ValueError: the file is damaged.
    """
    path = os.path.join(output_dir, RESULTS_FILE)
    if not files.exists(path):
        return {}
    results = files.read_json(path, dict.fromkeys(PHASES, dict | None))
    return {phase: results[phase] for phase in PHASES if results.get(phase) is not None}


def to_json(values: Mapping[str, Any], indent: int | None = 1) -> str:
    """Returns the text of a file of the run."""

    def plain(value: Any) -> Any:
        """Converts NumPy scalars to numbers and anything else to strings."""
        return value.item() if hasattr(value, "item") else str(value)

    return json.dumps(values, indent=indent, ensure_ascii=False, default=plain)


def _write_json(folder: str, name: str, values: Mapping[str, Any]) -> None:
    with files.write_atomically(os.path.join(folder, name)) as stream:
        stream.write(to_json(values) + "\n")


# Comparing


def differences_table(columns: Mapping[str, Mapping[str, str]]) -> str:
    """Returns a table of the names whose texts differ; "" if there are none.

    Args:
        columns: heading → name → text, such as the identities of two runs or of all workers.
    """
    names = sorted(set().union(*columns.values()))
    rows = [[name, *(column.get(name, "-") for column in columns.values())] for name in names]
    rows = [row for row in rows if len(set(row[1:])) > 1]
    if not rows:
        return ""
    lines = _columns([["", *columns], *rows])
    if max(map(len, lines)) > _TABLE_WIDTH:
        lines = []
        for name, *texts in rows:
            lines += [f"  {name}:", *_columns(zip(columns, texts, strict=True), indent=4)]
    return "\n".join(lines)


def _columns(rows: Iterable[Sequence[str]], indent: int = 2) -> list[str]:
    """Formats rows of cells as lines with aligned columns."""
    rows = list(rows)
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [" " * indent + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def check_training(output_dir: str, step: int, run: TrainedWith, allows_changes: bool) -> Changes:
    """Compares a training run with the previous training in its folder.

    Args:
        output_dir: folder of the run.
        step: the step that training is resumed from.
        run: the identity of the run.
        allows_changes: whether to only log changes (`--allow_changed_settings`).

    Returns:
        The changes.

    Raises:
        ValueError: something has changed. The message has a table of the changes.
    """
    before = read(output_dir)
    if before is None:
        text = "%s: nothing records what it was trained with, so the settings cannot be compared"
        logging.info(text, output_dir)
        return {}
    _log_others(output_dir, before, run)
    changes = _changes(before, run)
    if step == 0:
        later = {name: pair for name, pair in changes.items() if name not in _DECIDE_START}
        if later:
            text = "%s: nothing has been trained yet, so these changes are accepted:\n%s"
            logging.info(text, output_dir, _table(later))
        changes = {name: pair for name, pair in changes.items() if name in _DECIDE_START}
    return _decide(
        f"{output_dir} contains a run with other settings",
        changes,
        "Choose another --output_dir, or pass --allow_changed_settings to resume that run with the "
        "new settings.",
        allows_changes,
    )


def check_model(
    folder: str, run: TrainedWith, names: Collection[str], allows_changes: bool
) -> Changes:
    """Checks that a model is used with the vocabulary and settings it was trained with.

    Args:
        folder: folder of the model's checkpoint.
        run: identity of the run that uses the model, as returned by `describe`.
        names: the names in the identity that must be the same.
        allows_changes: whether to only log changes (`--allow_changed_settings`).

    Returns:
        The changes.

    Raises:
        ValueError: something has changed. The message has a table of the changes.
    """
    before = read(folder)
    if before is None:
        return {}
    changes = _changes(before, run.only(names))
    return _decide(
        f"the model in {folder} was trained with another {' and '.join(changes)}",
        changes,
        "Use the same one, or pass --allow_changed_settings to use the model anyway.",
        allows_changes,
    )


def _changes(before: TrainedWith, now: TrainedWith) -> Changes:
    """Returns the differences between two identities in the names that both have."""
    names = sorted(before.identity.keys() & now.identity.keys())
    return {
        name: (before.show(name), now.show(name)) for name in names if not before.is_same(now, name)
    }


def _table(changes: Changes) -> str:
    before, now = ({name: pair[i] for name, pair in changes.items()} for i in (0, 1))
    return differences_table({"before": before, "now": now})


def _decide(what: str, changes: Changes, advice: str, allows_changes: bool) -> Changes:
    """Logs and returns changes that are allowed; raises ValueError if they are not."""
    if changes and not allows_changes:
        raise ValueError(f"{what}:\n{_table(changes)}\n{advice}")
    if changes:
        logging.warning("%s:\n%s\nAccepted by --allow_changed_settings.", what, _table(changes))
    return changes


def _log_others(output_dir: str, before: TrainedWith, now: TrainedWith) -> None:
    """Logs changes that do not affect the result."""
    both = [
        run.others | {n: p for n, p in run.paths.items() if before.is_same(now, n)}
        for run in (before, now)
    ]
    common = both[0].keys() & both[1].keys()
    old, new = ({name: texts[name] for name in common} for texts in both)
    table = differences_table({"before": old, "now": new})
    if table:
        logging.info("%s: changes that do not affect the result:\n%s", output_dir, table)


# Vocabulary and labels


def describe_vocabulary(size: int, checksum: str) -> str:
    """Returns the fingerprint of a vocabulary.

    Args:
        size: number of entries.
        checksum: SHA-256 of the vocabulary file, in hexadecimal.
    """
    return f"{size} entries, sha256 {checksum[:_DIGEST_LENGTH]}"


def is_fingerprint(text: str, checksum: str) -> bool:
    """Returns whether a fingerprint from `describe_vocabulary` is that of this SHA-256."""
    return text.endswith(f" {checksum[:_DIGEST_LENGTH]}")


def of_tokenizer(tokenizer: Tokenizer, path: str) -> TrainedWith:
    """Returns the part of the identity that describes vocabulary and lowercasing.

    Args:
        tokenizer: the tokenizer.
        path: path of its vocabulary file.
    """
    identity = {
        VOCABULARY: describe_vocabulary(tokenizer.vocab_size, tokenizer.checksum),
        LOWER_CASE: str(tokenizer.do_lower_case),
    }
    return TrainedWith(identity, {VOCABULARY: absolute(path)})


def check_vocabulary(folder: str, vocabulary: TrainedWith) -> TrainedWith | None:
    """Compares a vocabulary with the one that the model in a folder was trained with.

    Args:
        folder: folder of the model's checkpoint.
        vocabulary: the vocabulary, as returned by `of_tokenizer`.

    Returns:
        The description of the training vocabulary; None if it is not known.

    Raises:
        ValueError: the model was trained with another vocabulary. The message names both.
    """
    recorded = read(folder)
    if recorded is None or VOCABULARY not in recorded.identity:
        return None
    if not recorded.is_same(vocabulary, VOCABULARY):
        raise ValueError(
            f"the model in {folder} was trained with another vocabulary: "
            f"{recorded.show(VOCABULARY)}; now it is {vocabulary.show(VOCABULARY)}. Use the "
            "vocabulary of the training."
        )
    return recorded.only(OF_TEXT)


def check_labels(folder: str, labels: Sequence[str], path: str) -> None:
    """Compares recorded labels of a task with those that the model in a folder was trained with.

    Args:
        folder: folder of the model's checkpoint.
        labels: the labels in the entry `TASK`, in the order of their ids.
        path: of the file with this entry, as returned by `read_details`.

    Raises:
        ValueError: they differ in number, order or name. The message has both lists.
    """
    recorded = read(folder)
    encoded = json.dumps(labels, ensure_ascii=False)
    expected = encoded if recorded is None else recorded.identity.get(LABELS, encoded)
    if encoded != expected:
        raise ValueError(
            f"{path} lists the labels {encoded}, but the model was trained with {expected}. "
            "Restore these in this order: each label is the name of an output."
        )


def absolute(path: str) -> str:
    """Returns the absolute form of a local path; a remote path unchanged."""
    return path if files.is_remote(path) else os.path.abspath(path)
