"""The comparison of two records: what has changed since a training, and whether that is allowed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from absl import logging

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import (
    FILE,
    INIT_CHECKPOINT,
    LABELS,
    LOWER_CASE,
    OBJECTIVE,
    PRECISION,
    TASK,
    VOCABULARY,
    RunRecord,
)

OF_TEXT = frozenset({VOCABULARY, LOWER_CASE})  # what tokenization depends on
ALWAYS_COMPARED = frozenset({LOWER_CASE, OBJECTIVE, PRECISION, TASK, LABELS})
# What the weights of step 0 depend on. Everything else may change before the first step, such as
# the batch size, after it ran out of memory.
_AFFECTS_STEP_0 = frozenset({"seed", "optimizer", "init_from_group0", INIT_CHECKPOINT})

_AFFECTS_ROUNDING = frozenset(
    {"fused_attention", "gradient_accumulation_steps", "gradient_checkpointing", "jit_compile"}
)

_MAX_SHOWN = 500  # letters of a text in a message

Changes = dict[str, tuple[str, str]]  # name → (before, now)


class ComparingSettings(Protocol):
    """What a comparison reads of the settings of a run."""

    @property
    def allow_changed_settings(self) -> bool:
        """Whether changes are only logged."""

    @property
    def names_for_training(self) -> set[str]:
        """The settings that the result of training depends on."""


def check_training(
    folder: RunFolder, now: RunRecord, settings: ComparingSettings, is_final: bool = True
) -> Changes:
    """Compares a training run with the previous training in its folder.

    Args:
        folder: the folder of the run, with a checkpoint.
        now: the record of the run.
        settings: settings of the run.
        is_final: whether what cannot be compared is logged; False for a part of the record.

    Returns:
        The changes.

    Raises:
        ValueError: something has changed. The message names each with both values.
    """
    before = folder.record
    if before == RunRecord() and is_final:
        text = "%s: nothing records what it was trained with, so the settings cannot be compared"
        logging.info(text, folder.path)
    names = ALWAYS_COMPARED | now.files.keys() | settings.names_for_training
    if is_final:
        _warn_of_missing(folder, now, names)
    changes = _changes(before, now, names)
    if not folder.is_trained:
        accepted = {name: changes.pop(name) for name in sorted(changes.keys() - _AFFECTS_STEP_0)}
        if accepted and is_final:
            text = "%s: nothing has been trained yet, so these changes are accepted:\n%s"
            logging.info(text, folder.path, lines_of(accepted))
    return _decide(
        f"{folder.path} contains a run with other settings",
        changes,
        "Choose another --output_dir, or pass --allow_changed_settings to resume that run with the "
        "new settings.",
        settings,
    )


def report_surroundings(folder: RunFolder, now: RunRecord) -> None:
    """Logs what a training is resumed with that may change the rounding of its numbers.

    These are the releases of packages, the devices, threads and processor, and the settings that
    decide in which order numbers are added up.

    Args:
        folder: the folder of the run, with the record of before.
        now: the record of the run, with its start.
    """
    changes = {
        name: (before, after)
        for name, (before, after) in _pairs(_surroundings(folder.record), _surroundings(now))
        if before != after
    }
    if changes:
        text = (
            "%s is resumed with other releases, devices or micro-batches, which may change the "
            "last bits of numbers (another number of devices or micro-batches also the dropout "
            "masks):\n%s"
        )
        logging.warning(text, folder.path, lines_of(changes))


def _surroundings(record: RunRecord) -> dict[str, str]:
    """Returns name → text of what `report_surroundings` compares."""
    found: dict[str, str] = {}
    for entry in ("versions", "device"):
        values = record.start.get(entry)
        if isinstance(values, dict):
            found |= {name: str(value) for name, value in values.items() if name != PRECISION}
    return found | record.texts(_AFFECTS_ROUNDING)


def _pairs(
    before: Mapping[str, str], after: Mapping[str, str]
) -> list[tuple[str, tuple[str, str]]]:
    """Returns (name, (before, after)) of the names that both have, in the order of `after`."""
    return [(name, (before[name], text)) for name, text in after.items() if name in before]


def check_model(
    folder: RunFolder,
    now: RunRecord,
    names: Collection[str],
    settings: ComparingSettings,
    is_final: bool = True,
) -> Changes:
    """Checks that a model is used with the vocabulary and settings it was trained with.

    Args:
        folder: folder with the record of the model.
        now: the record of the run that uses the model.
        names: the names in `RunRecord.texts` that must be the same.
        settings: settings of the run.
        is_final: see `check_training`.

    Returns:
        The changes.

    Raises:
        ValueError: something has changed. The message names each with both values.
    """
    if is_final:
        _warn_of_missing(folder, now, names)
    changes = _changes(folder.record, now, names)
    return _decide(
        f"the model in {folder.path} was trained with another {' and '.join(changes)}",
        changes,
        "Use the same one, or pass --allow_changed_settings to use the model anyway.",
        settings,
    )


def _changes(before: RunRecord, now: RunRecord, names: Collection[str]) -> Changes:
    """Returns the differences between two records in the names that both have."""
    ours, theirs = now.texts(names), before.texts(names)
    return {
        name: (str(before.files.get(name, theirs[name])), str(now.files.get(name, ours[name])))
        for name in sorted(ours.keys() & theirs.keys(), key=lambda name: (name != TASK, name))
        if ours[name] != theirs[name]
    }


def _warn_of_missing(folder: RunFolder, now: RunRecord, names: Collection[str]) -> None:
    """Logs what cannot be compared because the record of a run has no entry for it.

    The record of a converted or downloaded model, which was not started, has few entries.
    """
    before = folder.record
    missing = now.texts(names).keys() - before.texts(names).keys()
    if before.start and missing:
        logging.warning(
            "%s has no entry for %s, which therefore cannot be compared. Make sure that these are "
            "as they were in training.",
            folder.file(FILE),
            ", ".join(sorted(missing)),
        )


def _decide(what: str, changes: Changes, advice: str, settings: ComparingSettings) -> Changes:
    """Logs and returns changes that are allowed; raises ValueError if they are not.

    Of a run for another task, nothing else is named: its settings are those of another program.
    """
    if TASK in changes and not settings.allow_changed_settings:
        changes = {TASK: changes[TASK]}
    if changes:
        refuse_unless_allowed(f"{what}:\n{lines_of(changes)}", advice, settings, between="\n")
    return changes


def refuse_unless_allowed(
    what: str, advice: str, settings: ComparingSettings, between: str = " "
) -> None:
    """Raises ValueError, or logs a warning with `allow_changed_settings`.

    Args:
        what: what has changed.
        advice: what to do.
        settings: settings of the run.
        between: what separates the two in the message.
    """
    if not settings.allow_changed_settings:
        raise ValueError(f"{what}{between}{advice}")
    logging.warning("%s%sAccepted by --allow_changed_settings.", what, between)


def lines_of(texts: Mapping[str, Sequence[str]], between: str = " → ") -> str:
    """Returns a line for each name, with its texts unless one is too long.

    Args:
        texts: name → its texts, such as those before and now.
        between: what separates them.
    """
    lines = []
    for name, each in texts.items():
        shown = between.join(each) if max(map(len, each)) <= _MAX_SHOWN else "too long to show"
        lines.append(f"  {name}: {shown}")
    return "\n".join(lines)
