"""`trained_with.json`: task, vocabulary, data and settings that checkpoints were trained with.

Training writes the file with its first checkpoint; converted checkpoints keep the part about the
task, its labels and the vocabulary. Programs that use a checkpoint compare it with their own,
because a model only works with the vocabulary and the order of labels it was trained with, and
others of the same size would give wrong results without an error.
"""

from __future__ import annotations

import dataclasses
import json
import os
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf import files
from albert_tf.checkpoints import finding
from albert_tf.sentence_objectives import NONE, OBJECTIVES, SOP
from albert_tf.settings import SettingsGroup, describe, from_text, with_current_names
from albert_tf.tokenization import FullTokenizer

FILE = "trained_with.json"
VOCABULARY, LOWER_CASE = "vocabulary", "do_lower_case"  # names in the identity
OBJECTIVE = "sentence_objective"
TASK = "task"  # name in the identity of the row of `albert_tf.tasks`
LABELS = "label list"  # in the order of their ids, as a JSON list
OF_TEXT = frozenset({VOCABULARY, LOWER_CASE})  # names that tokenization depends on
_DIGEST_LENGTH = 16


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

    def with_labels(self, labels: Sequence[str]) -> TrainedWith:
        """Returns a copy with the labels of the model; unchanged if there are none."""
        found = {LABELS: json.dumps(labels, ensure_ascii=False)} if labels else {}
        return dataclasses.replace(self, identity=self.identity | found)

    def with_task(self, name: str) -> TrainedWith:
        """Returns a copy with the name of the model's task; unchanged if it is empty."""
        found = {TASK: name} if name else {}
        return dataclasses.replace(self, identity=self.identity | found)

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


def read(folder: str) -> TrainedWith | None:
    """Reads `trained_with.json`; returns None if the folder does not have this file.

    Raises:
        ValueError: the file is damaged.
    """
    path = os.path.join(folder, FILE)
    if not files.exists(path):
        return None
    fields = typing.get_type_hints(TrainedWith)
    values = files.read_own_json(path, fields)
    return TrainedWith(**{name: with_current_names(values[name]) for name in fields})


def read_settings(folder: str) -> dict[str, str]:
    """Returns setting → text of the run in a folder: as trained, or if unknown, as last used.

    Raises:
        ValueError: a file of the run is damaged.
    """
    known = read(folder) or TrainedWith({})
    flags = finding.flags_of_run(folder)[0]
    return {name: str(value) for name, value in (flags | known.others | known.identity).items()}


def read_objective(folder: str) -> str:
    """Returns the sentence objective that the model in a folder was trained with.

    Without a record, this is "sop". If it is not registered here, it is "none", with a warning: the
    model is then used without its sentence head.

    Raises:
        ValueError: a file of the run is damaged.
    """
    found = read_settings(folder).get(OBJECTIVE, SOP)
    if found in OBJECTIVES:
        return found
    text = "%s: trained with sentence_objective=%s, which is not registered here (only %s)"
    logging.warning(text + ": the sentence head is left out", folder, found, ", ".join(OBJECTIVES))
    return NONE


def read_task(folder: str) -> str:
    """Returns the name of the task that the model in a folder was trained for; "" if unknown.

    Raises:
        ValueError: the file is damaged.
    """
    known = read(folder)
    return "" if known is None else known.identity.get(TASK, "")


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


def write(folder: str, trained_with: TrainedWith) -> None:
    """Writes `trained_with.json`."""
    files.write_json(os.path.join(folder, FILE), dataclasses.asdict(trained_with))


def describe_vocabulary(size: int, checksum: str) -> str:
    """Returns the fingerprint of a vocabulary.

    Args:
        size: number of entries.
        checksum: SHA-256 of the vocabulary file, in hexadecimal.
    """
    return f"{size} entries, sha256 {checksum[:_DIGEST_LENGTH]}"


def of_tokenizer(tokenizer: FullTokenizer, path: str) -> TrainedWith:
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
    known = read(folder)
    if known is None or VOCABULARY not in known.identity:
        return None
    if not known.is_same(vocabulary, VOCABULARY):
        raise ValueError(
            f"the model in {folder} was trained with another vocabulary: "
            f"{known.show(VOCABULARY)}; now it is {vocabulary.show(VOCABULARY)}. Use the "
            "vocabulary of the training."
        )
    return known.only(OF_TEXT)


def check_labels(folder: str, labels: Sequence[str]) -> None:
    """Compares the labels in `task.json` with those that the model in the folder was trained with.

    Args:
        folder: folder of the model's checkpoint and of `task.json`.
        labels: the labels of this file, in the order of their ids.

    Raises:
        ValueError: they differ in number, order or name. The message has both lists.
    """
    known, found = read(folder), json.dumps(labels, ensure_ascii=False)
    expected = found if known is None else known.identity.get(LABELS, found)
    if found != expected:
        raise ValueError(
            f"{os.path.join(folder, finding.TASK_FILE)} lists the labels {found}, but the model "
            f"was trained with {expected} ({FILE}). Restore these in this order: each label is the "
            "name of an output."
        )


def absolute(path: str) -> str:
    """Returns the absolute form of a local path; a remote path unchanged."""
    return path if files.is_remote(path) else os.path.abspath(path)
