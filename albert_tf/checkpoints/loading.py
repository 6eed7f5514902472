"""Loads checkpoints of any family into a model, and reports what was loaded and what was not.

Our own checkpoints have TensorFlow 1's name-based format, a dictionary from variable name to array
on disk as `<prefix>.index` and `<prefix>.data-00000-of-00001`. They carry Google's names, the
optimizer's moments as `<variable>/adam_m` and `<variable>/adam_v`, and `global_step`, so that
Google's code reads them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import families
from albert_tf.checkpoints.containers import WeightFile, open_checkpoint, open_weights, read_tensor
from albert_tf.checkpoints.names import (
    GLOBAL_STEP,
    PARTS,
    PROJECTION,
    is_encoder,
    part_of,
    variable_name,
)
from albert_tf.config import AlbertConfig

_COLUMNS = ("part", "found", "loaded", "missing", "misshapen", "unused")
_MAX_LISTED_NAMES = 16  # in one list of a report


def read_step(prefix: str) -> int:
    """Returns the `global_step` of a checkpoint; 0 if it has none or is no TensorFlow one.

    Raises:
        ValueError: it is damaged, or its `global_step` is no number of steps.
    """
    if not files.exists(prefix + ".index"):
        return 0
    reader = open_checkpoint(prefix)
    if not reader.has_tensor(GLOBAL_STEP):
        return 0
    step = read_tensor(reader, GLOBAL_STEP, prefix)
    if np.ndim(step) or not np.issubdtype(step.dtype, np.integer) or step < 0:
        raise ValueError(f"{prefix}: its {GLOBAL_STEP} is {step}, a number of steps was expected")
    return int(step)


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What loading a checkpoint did, or would do, by the names of the model's variables.

    Attributes:
        prefix: the checkpoint.
        loaded: variables that take their value from it.
        missing: variables of the model that it lacks.
        misshapen: variable → (shape in the checkpoint, shape in the model).
        unused: its weights that the model does not have.
        title: its family and the format of the file.
        found: all its weights, without moments and counters.
        bookkeeping: how many moments and counters it has.
        sizes: what its shapes tell, under the keys of `AlbertConfig`.
        notes: reasons why it does not fit, and other contradictions.
        fits: whether it holds the whole encoder of the model.
    """

    prefix: str
    loaded: list[str]
    missing: list[str]
    misshapen: dict[str, tuple[list[int], list[int]]]
    unused: list[str]
    title: str
    found: list[str]
    bookkeeping: int
    sizes: dict[str, int]
    notes: list[str]
    fits: bool

    def __str__(self) -> str:
        """A table of counts by part of the model, and the names that did not load."""
        groups = (self.found, self.loaded, self.missing, list(self.misshapen), self.unused)
        parts = [[part_of(name) for name in group] for group in groups]
        counts = [(part, *(group.count(part) for group in parts)) for part in PARTS]
        rows = [_COLUMNS, *(row for row in counts if any(row[1:])), ("all", *map(len, groups))]
        shapes = self.misshapen.items()
        return "\n".join(
            [
                f"{self.prefix}: {self.title}",
                "  " + (", ".join(f"{k} {size}" for k, size in self.sizes.items()) or "no sizes"),
                *("  {:<20}{:>9}{:>9}{:>9}{:>11}{:>9}".format(*row) for row in rows),
                f"  and {self.bookkeeping} moments, counters and copies",
                *(f"  note: {note}" for note in self.notes),
                *_first(f"  missing    {name}" for name in self.missing),
                *_first(f"  misshapen  {n}: {theirs}, here {ours}" for n, (theirs, ours) in shapes),
                *_first(f"  unused     {name}" for name in self.unused),
            ]
        )


def _first(lines: Iterable[str]) -> list[str]:
    """The first lines, and how many more there are."""
    every = list(lines)
    more = len(every) - _MAX_LISTED_NAMES
    return every if more <= 1 else [*every[:_MAX_LISTED_NAMES], f"  … and {more} more"]


def load_checkpoint(
    model: Any, path: str, allow_partial: bool = False, init_from_group0: bool = False
) -> LoadReport:
    """Loads the weights of `model` from a checkpoint of any family that it can hold.

        >>> model = albert_tf.AlbertForPretraining(config)
        >>> report = load_checkpoint(model, "albert_tiny/")
        >>> report.fits, report.missing
        (True, [])

    Args:
        model: a model with Google's variable names, such as `AlbertForPretraining`. If it has a
            `.config`, contradictions between that and the checkpoint are reported.
        path: as in `find_checkpoint`.
        allow_partial: only warn where weights of the encoder do not fit.
        init_from_group0: take the weights of every hidden group from the checkpoint's group 0, so
            that a model with num_hidden_groups = num_hidden_layers starts from shared weights.

    Returns:
        what was loaded, missing and unused. Heads that are missing or of another shape keep their
        values; the report and the log name them.

    Raises:
        FileNotFoundError: no such checkpoint.
        ValueError: variables of the encoder (`bert/…`) are missing, misshapen or left over; or it
            is of a family that the model cannot hold; or damaged. Nothing has been changed then.
    """
    weights = open_weights(path)
    report, entries = _compare(model, weights, init_from_group0)
    if not report.loaded:
        raise ValueError(f"{report}\nNothing in this checkpoint fits the model.")
    if not (report.fits or allow_partial):
        raise ValueError(
            f"{report}\nThe checkpoint does not hold this model's encoder. Check that "
            "albert_config.json is the one that came with it, or pass --allow_partial_init to "
            "leave these variables at their random start."
        )
    _log(report)
    _assign(model, weights, {name: entries[name] for name in report.loaded})
    return report


def _log(report: LoadReport) -> None:
    """Logs what was loaded: one line, and the table too where something is unusual.

    The line says which heads are new, so that nobody takes them for trained ones, or the reverse.
    """
    if not report.fits:
        logging.warning("Loading in part, as asked:\n%s", report)
    elif report.misshapen or report.notes:
        logging.warning("%s", report)
    else:
        logging.debug("%s", report)
    heads = [name for name in report.loaded if not is_encoder(name)]
    new = [name for name in (*report.missing, *report.misshapen) if not is_encoder(name)]
    parts = [f"{report.prefix}: {report.title}, {len(report.loaded)} variables loaded"]
    if report.unused:
        parts.append(f"{len(report.unused)} without a place in the model are left out")
    if heads:
        parts.append(f"Heads taken from the checkpoint too: {', '.join(heads)}")
    if new:
        parts.append(f"New heads, which start from random weights: {', '.join(sorted(new))}")
    log = logging.warning if new else logging.info
    log("%s", ". ".join(parts))


def load_weights(model: Any, prefix: str) -> None:
    """Loads all weights of a trained model, heads included; none may stay random.

    Raises:
        FileNotFoundError: no such checkpoint.
        ValueError: a weight is missing or of another shape; the model is as it was.
    """
    weights = open_weights(prefix)
    report, entries = _compare(model, weights)
    if report.missing or report.misshapen:
        raise ValueError(
            f"{report}\nThe checkpoint does not hold all weights of this task and model. Give its "
            "own --albert_config_file, or train first."
        )
    _assign(model, weights, entries)


def inspect_checkpoint(path: str, model: Any = None, init_from_group0: bool = False) -> LoadReport:
    """Reports what `load_checkpoint` would do; without a model, what a checkpoint holds.

    Raises:
        FileNotFoundError, ValueError: as `load_checkpoint`, but for weights that do not fit.
    """
    return _compare(model, open_weights(path), init_from_group0)[0]


def read_weights(
    path: str, model: Any = None, init_from_group0: bool = False
) -> dict[str, np.ndarray]:
    """Returns all weights of a checkpoint, float32, under the names of this model.

    Args:
        path: as in `find_checkpoint`.
        model: the model whose layout the weights are converted to, where several are possible.
        init_from_group0: as in `load_checkpoint`.
    """
    weights = open_weights(path)
    entries = _compare(model, weights, init_from_group0)[1]
    return {name: _read(weights, entry) for name, entry in entries.items()}


def _read(weights: WeightFile, entry: families.Entry) -> np.ndarray:
    value = entry.compute(*(weights.read(source) for source in entry.sources))
    return np.asarray(value, np.float32)


def _assign(model: Any, weights: WeightFile, entries: Mapping[str, families.Entry]) -> None:
    """Gives variables their values; reads all of them first, as the file may be damaged."""
    values = {name: _read(weights, entry) for name, entry in entries.items()}
    for variable in model.variables:
        if (name := variable_name(variable)) in values:
            variable.assign(values[name])


def _compare(
    model: Any, weights: WeightFile, init_from_group0: bool = False
) -> tuple[LoadReport, dict[str, families.Entry]]:
    """Reports what of a file fits a model, with the entries that compute its weights."""
    recognized = families.recognize(weights.shapes)
    variables = [] if model is None else model.variables
    wanted = {variable_name(variable): tuple(variable.shape) for variable in variables}
    entries = families.fit(recognized.entries, wanted, init_from_group0)
    if model is not None:
        _drop_identity_projection(weights, entries, wanted)
    obstacles, notes = _remarks(recognized, entries, model)
    common = sorted(entries.keys() & wanted.keys())
    loaded = [name for name in common if entries[name].shape == wanted[name]]
    misshapen = {
        name: (list(entries[name].shape), list(wanted[name]))
        for name in common
        if entries[name].shape != wanted[name]
    }
    missing = sorted(wanted.keys() - entries.keys())
    unused = [] if model is None else sorted(entries.keys() - wanted.keys())
    # With `init_from_group0` other groups are unused as intended; else it is another model's.
    surplus = [n for n in unused if not (init_from_group0 and re.search("/group_[1-9]", n))]
    misfits = any(is_encoder(name) for name in (*missing, *misshapen, *surplus))
    report = LoadReport(
        prefix=weights.path,
        loaded=loaded,
        missing=missing,
        misshapen=misshapen,
        unused=unused + recognized.unmapped,
        title=f"{recognized.kind.title} ({weights.container})",
        found=[*entries, *recognized.unmapped],
        bookkeeping=len(recognized.bookkeeping),
        sizes=families.sizes(entries),
        notes=obstacles + notes,
        fits=not (obstacles or misfits),
    )
    return report, entries


def _remarks(
    recognized: families.Recognized, entries: dict[str, families.Entry], model: Any
) -> tuple[list[str], list[str]]:
    """Reasons why a model cannot hold a checkpoint, whatever its shapes; and other notes."""
    if recognized.kind.refusal:
        return [recognized.kind.refusal], []
    if model is None:
        return [], ["there was no config, so nothing was compared with one"]
    config = getattr(model, "config", None)
    if not isinstance(config, AlbertConfig):
        return [], []
    is_theirs = recognized.family == "hugging_face"
    obstacles = families.group_obstacles(config) if is_theirs else []
    notes = families.differences(recognized, entries, config) + families.contradictions(config)
    return obstacles, notes


def _drop_identity_projection(
    weights: WeightFile, entries: dict[str, families.Entry], wanted: dict[str, Any]
) -> None:
    """Removes a projection that the model lacks (E = H) if it is the identity."""
    names = [f"{PROJECTION}/kernel", f"{PROJECTION}/bias"]
    if not set(names) & set(wanted) and set(names) <= set(entries):
        kernel, bias = (_read(weights, entries[name]) for name in names)
        if families.is_identity(kernel, bias):
            for name in names:
                del entries[name]
