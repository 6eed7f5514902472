"""Loads checkpoints of any family into a model, and reports what was and was not loaded.

This package writes checkpoints in the name-based format of TensorFlow 1, a mapping from variable
names to arrays stored as `<prefix>.index` and `<prefix>.data-00000-of-00001`. Google's code can
read them: they have Google's variable names, the optimizer's moments as `<variable>/adam_m` and
`<variable>/adam_v` (`lamb_m` and `lamb_v` with albert_zh's LAMB), and `global_step`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import families, finding, releases, run_record
from albert_tf.checkpoints.containers import WeightFile, open_checkpoint, open_weights, read_tensor
from albert_tf.checkpoints.names import (
    ADAPTERS,
    GLOBAL_STEP,
    PARTS,
    PROJECTION,
    is_encoder,
    part_of,
    variable_name,
)
from albert_tf.config import AlbertConfig
from albert_tf.sentence_objectives import SCOPE
from albert_tf.sharing import GROUPS

_COLUMNS = ("part", "found", "loaded", "missing", "misshapen", "unused")
_MAX_LISTED_NAMES = 16  # per list of a report


def read_step(prefix: str) -> int:
    """Returns the `global_step` of a checkpoint; 0 if it has none or another format.

    Raises:
        ValueError: the checkpoint is damaged, or its `global_step` is invalid.
    """
    if not files.exists(prefix + ".index"):
        return 0
    reader = open_checkpoint(prefix)
    if not reader.has_tensor(GLOBAL_STEP):
        return 0
    step = read_tensor(reader, GLOBAL_STEP, prefix)
    if np.ndim(step) or not np.issubdtype(step.dtype, np.integer) or step < 0:
        raise ValueError(f"{prefix}: {GLOBAL_STEP} is {step}, expected an integer of 0 or more")
    return int(step)


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """The result of loading a checkpoint, or of comparing it with a model.

    Weights have the names of the model's variables.

    Attributes:
        prefix: the checkpoint.
        loaded: variables that are loaded from the checkpoint.
        missing: variables of the model that the checkpoint lacks.
        misshapen: variable → (shape in the checkpoint, shape in the model).
        unused: weights of the checkpoint that the model does not have.
        title: family of the checkpoint and file format.
        found: all weights of the checkpoint, without optimizer moments and counters.
        bookkeeping: number of optimizer moments and counters.
        sizes: sizes inferred from shapes, with the keys of `AlbertConfig`.
        notes: reasons why the checkpoint does not fit, and other contradictions.
        fits: whether the checkpoint has all weights of the model's encoder.
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
        """Returns a table of counts by part of the model, and the names not loaded."""
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

    @property
    def reason(self) -> str:
        """Why the checkpoint does not fit: the keys of the config that differ, or else a weight."""
        shapes = (f"{n} has the shape {t}, here {o}" for n, (t, o) in self.misshapen.items())
        misfits = [
            *shapes,
            *(f"{name} is missing" for name in self.missing),
            *(f"{name} is not in the model" for name in self.unused),
        ]
        of_encoder = [text for text in misfits if is_encoder(text) or text.startswith(ADAPTERS)]
        more = f" (and {len(of_encoder) - 1} more)" if len(of_encoder) > 1 else ""
        return "; ".join(self.notes) or "".join(of_encoder[:1]) + more


def _first(lines: Iterable[str]) -> list[str]:
    """Returns the first lines, and a line with the number of the others."""
    every = list(lines)
    more = len(every) - _MAX_LISTED_NAMES
    return every if more <= 1 else [*every[:_MAX_LISTED_NAMES], f"  … and {more} more"]


def load_checkpoint(
    model: Any, path: str, allow_partial: bool = False, init_from_group0: bool = False
) -> LoadReport:
    """Loads the weights of `model` from a checkpoint of any supported family.

    >>> model = albert_tf.AlbertForPretraining(config)
    >>> report = load_checkpoint(model, "albert_tiny/")
    >>> report.fits, report.missing
    (True, [])

    Args:
        model: a model with Google's variable names, such as `AlbertForPretraining`. If it has a
            `.config`, contradictions between the config and the checkpoint are reported.
        path: as in `find_checkpoint`.
        allow_partial: whether to only warn if weights of the encoder do not fit, or if the sentence
            head was trained with another objective.
        init_from_group0: whether to initialize all hidden groups from group 0 of the checkpoint, so
            that a model with num_hidden_groups = num_hidden_layers starts from shared weights.

    Returns:
        A report of loaded, missing and unused weights. Heads that are missing in the checkpoint,
        have another shape or were trained with another sentence objective keep their values; the
        report and the log name them.

    Raises:
        FileNotFoundError: the checkpoint does not exist.
        ValueError: variables of the encoder (`bert/…`) are missing, misshapen or unused, the
            sentence head was trained with another objective, or the checkpoint is damaged or of an
            unsupported family. The model is unchanged.
    """
    weights = open_weights(path)
    report, entries = _compare(model, weights, init_from_group0)
    report = _without_other_objective(model, report, allow_partial)
    if not report.loaded:
        raise ValueError(f"{report}\nNothing in this checkpoint fits the model.")
    if not (report.fits or allow_partial):
        is_other_sharing = any(re.search("/group_[1-9]", name) for name in report.missing)
        copies = ", --init_from_group0 (run_pretraining.py) to copy them from group 0"
        logging.debug("%s", report)
        raise ValueError(
            f"{report.prefix} does not contain this model's encoder: {report.reason}.\nCheck that "
            "albert_config.json is the one that came with it (--verbosity=1 lists all weights), or "
            f"pass --allow_partial_init to keep the random initialization of the others"
            f"{copies * is_other_sharing}."
        )
    values = _read_all(weights, {name: entries[name] for name in report.loaded})
    _log(report, releases.containing(values))
    _assign(model, values)
    return report


def _without_other_objective(model: Any, report: LoadReport, allow_partial: bool) -> LoadReport:
    """Returns the report without the sentence head if it was trained with another objective.

    The heads of all objectives have the same names in checkpoints, and often the same shapes.

    Raises:
        ValueError: the model's sentence head would be random, and that is not allowed.
    """
    recorded = run_record.read(finding.records_of(finding.folder_of(report.prefix)))
    theirs = recorded and recorded.identity.get(run_record.OBJECTIVE)
    ours = getattr(model, run_record.OBJECTIVE, theirs)
    if not theirs or theirs == ours:
        return report
    head = [name for name in report.loaded if name.startswith(SCOPE)]
    note = f"trained with sentence_objective={theirs}, here {ours}: no sentence head is loaded"
    report = dataclasses.replace(
        report,
        loaded=[name for name in report.loaded if name not in head],
        missing=sorted(report.missing + head),
        notes=[*report.notes, note],
    )
    if head and not allow_partial:
        raise ValueError(
            f"{report}\nThe checkpoint has no head for sentence_objective={ours}. Train on records "
            f"of {theirs}, or pass --allow_partial_init to start from a random sentence head."
        )
    return report


def _log(report: LoadReport, release: releases.Release | None) -> None:
    """Logs what was loaded in one line, with a table if something is unusual.

    The line names the release of these weights. It says which heads are new and which are loaded,
    so that these are not mixed up.
    """
    if not report.fits:
        logging.warning("Loading a part of the encoder because of allow_partial:\n%s", report)
    else:
        logging.debug("%s", report)
        shapes = (f"{n} has the shape {t}, here {o}" for n, (t, o) in report.misshapen.items())
        for note in (*report.notes, *shapes):
            logging.warning("%s: %s", report.prefix, note)
    heads = [name for name in report.loaded if not is_encoder(name)]
    new = [name for name in (*report.missing, *report.misshapen) if not is_encoder(name)]
    adapters = [name for name in new if name.startswith(ADAPTERS)]
    new = [name for name in new if name not in adapters]
    parts = [f"{report.prefix}: {report.title}, {len(report.loaded)} variables loaded"]
    if release:
        parts.append(f"They are those of {release}")
    if report.unused:
        parts.append(f"{len(report.unused)} not in the model are ignored")
    if heads:
        parts.append(f"Heads loaded from the checkpoint: {', '.join(heads)}")
    if new:
        parts.append(f"New heads with random weights: {', '.join(sorted(new))}")
    if adapters:
        parts.append(f"New adapters, which change nothing yet: {len(adapters)} variables")
    log = logging.warning if new else logging.info
    log("%s", ". ".join(parts))


def load_weights(model: Any, prefix: str) -> None:
    """Loads all weights of a trained model including its heads.

    Raises:
        FileNotFoundError: the checkpoint does not exist.
        ValueError: a weight is missing or has another shape. The model is unchanged.
    """
    weights = open_weights(prefix)
    report, entries = _compare(model, weights)
    if report.missing or report.misshapen:
        raise ValueError(
            f"{report}\nThe checkpoint does not contain all weights of this task and model. Pass "
            "the --albert_config_file that belongs to it, or train first."
        )
    _assign(model, _read_all(weights, entries))


def inspect_checkpoint(path: str, model: Any = None, init_from_group0: bool = False) -> LoadReport:
    """Reports what `load_checkpoint` would do, or without a model, the content of a checkpoint.

    Raises:
        FileNotFoundError: the checkpoint does not exist.
        ValueError: the checkpoint is damaged. Weights that do not fit are only reported.
    """
    return _compare(model, open_weights(path), init_from_group0)[0]


def read_weights(
    path: str, model: Any = None, init_from_group0: bool = False
) -> dict[str, np.ndarray]:
    """Returns all weights of a checkpoint, float32, with the names of this package.

    Args:
        path: as in `find_checkpoint`.
        model: the model whose layout the weights are converted to, if several are possible.
        init_from_group0: as in `load_checkpoint`.
    """
    weights = open_weights(path)
    entries = _compare(model, weights, init_from_group0)[1]
    return _read_all(weights, entries)


def _read_all(weights: WeightFile, entries: Mapping[str, families.Entry]) -> dict[str, np.ndarray]:
    return {name: _read(weights, entry) for name, entry in entries.items()}


def _read(weights: WeightFile, entry: families.Entry) -> np.ndarray:
    value = entry.compute(*(weights.read(source) for source in entry.sources))
    return np.asarray(value, np.float32)


def _assign(model: Any, values: Mapping[str, np.ndarray]) -> None:
    """Assigns the variables once all values were read, because the file may be damaged."""
    for variable in model.variables:
        if (name := variable_name(variable)) in values:
            variable.assign(values[name])


def _compare(
    model: Any, weights: WeightFile, init_from_group0: bool = False
) -> tuple[LoadReport, dict[str, families.Entry]]:
    """Returns a report of the weights that fit a model, and the entries that compute them."""
    recognized = families.recognize(weights.shapes)
    variables = [] if model is None else model.variables
    wanted = {variable_name(variable): tuple(variable.shape) for variable in variables}
    entries = families.fit(recognized.entries, wanted, init_from_group0)
    if model is not None:
        _drop_identity_projection(weights, entries, wanted)
    obstacles, notes = _remarks(recognized, entries, model)
    if model is not None and not init_from_group0:
        obstacles += _other_sharing(weights.path, getattr(model, "config", None))
    common = sorted(entries.keys() & wanted.keys())
    loaded = [name for name in common if entries[name].shape == wanted[name]]
    misshapen = {
        name: (list(entries[name].shape), list(wanted[name]))
        for name in common
        if entries[name].shape != wanted[name]
    }
    missing = sorted(wanted.keys() - entries.keys())
    unused = [] if model is None else sorted(entries.keys() - wanted.keys())
    # With `init_from_group0` the other groups are not needed. Otherwise unused weights of the
    # encoder mean that the checkpoint belongs to another model.
    surplus = [n for n in unused if not (init_from_group0 and re.search("/group_[1-9]", n))]
    misfits = any(is_encoder(name) for name in (*missing, *misshapen, *surplus))
    # New adapters change nothing, but a model is wrong without those that it was trained with.
    misfits |= any(name.startswith(ADAPTERS) for name in (*misshapen, *surplus))
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
    """Returns reasons besides shapes why a checkpoint does not fit a model, and other notes."""
    if recognized.kind.refusal:
        return [recognized.kind.refusal], []
    if model is None:
        return [], ["there is no config to compare the checkpoint with"]
    config = getattr(model, "config", None)
    if not isinstance(config, AlbertConfig):
        return [], []
    is_theirs = recognized.family == "hugging_face"
    obstacles = families.group_obstacles(config) if is_theirs else []
    notes = families.differences(recognized, entries, config) + families.contradictions(config)
    return obstacles, notes


def _other_sharing(path: str, config: Any) -> list[str]:
    """Returns how the sharing of a checkpoint differs from the model's, by the config beside it.

    Patterns such as (0, 0, 1, 1) and (0, 1, 0, 1) have the same weights, so only the config tells
    them apart.
    """
    try:
        theirs = AlbertConfig.from_json_file(finding.find_config(finding.folder_of(path)))
    except (OSError, ValueError):  # there is none, or it is not this checkpoint's
        return []
    if not isinstance(config, AlbertConfig) or theirs.share == config.share == GROUPS:
        return []
    is_same_depth = theirs.num_hidden_layers == config.num_hidden_layers
    if not is_same_depth or theirs.modules_of_layers() == config.modules_of_layers():
        return []
    return [
        f"share is {theirs.share!r} in the config beside the checkpoint (num_hidden_groups="
        f"{theirs.num_hidden_groups}), {config.share!r} in the model's "
        f"(num_hidden_groups={config.num_hidden_groups}): the layers would use other modules"
    ]


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
