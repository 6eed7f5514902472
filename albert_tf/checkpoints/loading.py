"""Loads checkpoints of any family into a model, and reports what was and was not loaded.

This package writes checkpoints in the name-based format of TensorFlow 1, a mapping from variable
names to arrays stored as `<prefix>.index` and `<prefix>.data-00000-of-00001`. Google's code can
read them: they have Google's variable names, the optimizer's moments as `<variable>/adam_m` and
`<variable>/adam_v` (`lamb_m` and `lamb_v` with albert_zh's LAMB), and `global_step`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import releases, run_record
from albert_tf.checkpoints.arrays import LazyArrays, as_tensor
from albert_tf.checkpoints.containers import open_checkpoint, open_weights, read_tensor
from albert_tf.checkpoints.load_report import LoadReport, WithVariables, config_of
from albert_tf.checkpoints.model_folder import ModelPath
from albert_tf.checkpoints.weight_names import (
    ADAPTERS,
    GLOBAL_STEP,
    POOLER,
    by_name,
    is_encoder,
)
from albert_tf.model.config import AlbertConfig

if TYPE_CHECKING:
    from albert_tf.model.modeling import AlbertEncoder, AlbertModel

_UNSEEN = ("num_attention_heads", "hidden_act", "num_hidden_layers", "ln_type")


def read_step(prefix: str) -> int:
    """Returns the `global_step` of a checkpoint; 0 if it has none or another format.

    Raises:
        ValueError: the checkpoint is damaged.
    """
    if not files.exists(prefix + ".index"):
        return 0
    reader = open_checkpoint(prefix)
    if not reader.has_tensor(GLOBAL_STEP):
        return 0
    return int(read_tensor(reader, GLOBAL_STEP, prefix))


def load_checkpoint(
    model: WithVariables,
    path: files.PathLike,
    allow_partial: bool = False,
    init_from_group0: bool = False,
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
        allow_partial: whether to only warn if weights of the encoder do not fit.
        init_from_group0: whether to initialize all hidden groups from group 0 of the checkpoint, so
            that a model with num_hidden_groups = num_hidden_layers starts from shared weights.

    Returns:
        A report of loaded, missing and unused weights. Heads that are missing in the checkpoint or
        have another shape keep their values, and so does a missing pooler; the report names them,
        and the log if an output depends on them.

    Raises:
        FileNotFoundError: the checkpoint does not exist.
        ValueError: variables of the encoder (`bert/…`) are missing, misshapen or unused, or the
            checkpoint is damaged or of an unsupported family, or has other weights in its encoder,
            such as relative positions or an unmerged LoRA. The model is unchanged.
    """
    place = ModelPath.of(path)
    report = inspect_checkpoint(place, model, init_from_group0)
    if not report.loaded:
        raise ValueError(f"{report.prefix} has nothing that fits the model: {report.reason}")
    if not (report.fits or allow_partial):
        advice = "pass --allow_partial_init to keep the random initialization of the others"
        if any(re.search("/group_[1-9]", name) for name in report.missing):
            advice += ", --init_from_group0 (run_pretraining.py) to copy them from group 0"
        logging.debug("%s", report)
        raise ValueError(
            f"{report.prefix} does not contain this model's encoder: {report.reason}.\nCheck that "
            "albert_config.json is the one that came with it (--verbosity=1 lists all weights), or "
            f"{advice}."
        )
    values = report.read(report.loaded)
    release = releases.containing(values)
    _log(report, release, _new(report, model))
    if release is not None and release.config:
        expected = AlbertConfig.from_json_file(release.config)
        _warn_of_config(model, expected, f"{release} (--albert_config_file={release.config})")
    elif not init_from_group0:
        _warn_of_config(model, _config_beside(place), "the config next to the checkpoint")
    _warn_of_objective(model, place)
    _assign(model, values)
    return report


def _warn_of_objective(model: WithVariables, place: ModelPath) -> None:
    """Warns if the sentence head was trained with another objective, whose head may fit as well."""
    ours: str | None = getattr(model, "sentence_objective", None)
    if ours is None:
        return
    theirs = place.folder_of_checkpoint.records.record.settings.get(run_record.OBJECTIVE)
    if theirs and theirs != ours:
        logging.warning(
            "%s was trained with sentence_objective=%s, and this model has %s",
            *(place.checkpoint, theirs, ours),
        )


def _warn_of_config(model: WithVariables, expected: AlbertConfig | None, source: str) -> None:
    """Warns of what differs from the config of the weights, and does not show in their shapes.

    This is no error, because a released config may be wrong, and the one that is given right: that
    in the archive of Google's Chinese tiny has one layer.
    """
    config = config_of(model)
    if expected is None or config is None:
        return
    for key in _UNSEEN:
        theirs, ours = getattr(expected, key), getattr(config, key)
        if theirs != ours:
            logging.warning(
                "%s is %r in %s, %r in the model's config: the outputs are not those that it was "
                "trained for",
                *(key, theirs, source, ours),
            )


def _config_beside(place: ModelPath) -> AlbertConfig | None:
    """Returns the config beside a checkpoint; None if there is none, or several, or a bad one."""
    try:
        return AlbertConfig.from_json_file(place.folder_of_checkpoint.config_file)
    except (OSError, ValueError):
        return None


def _new(report: LoadReport, model: WithVariables) -> list[str]:
    """Returns the variables that keep their values, but a pooler that no output depends on."""
    needs_pooler: bool = getattr(model, "uses_pooler", True)
    unneeded = () if needs_pooler else (POOLER,)
    new = [*report.missing, *report.misshapen]
    return sorted(name for name in new if not name.startswith(unneeded))


def _log(report: LoadReport, release: releases.Release | None, new: Sequence[str]) -> None:
    """Logs what was loaded in one line, with a table if something is unusual.

    The line names the release of these weights. It says which heads are new and which are loaded,
    so that these are not mixed up.
    """
    if not report.fits:
        logging.warning("Loading a part of the encoder because of allow_partial:\n%s", report)
        new = []  # the table has them
    for text in report.other_shapes if report.fits else ():
        logging.warning("%s: %s", report.prefix, text)
    random = [name for name in new if not name.startswith(ADAPTERS)]  # adapters change nothing yet
    loaded_heads = [name for name in report.loaded if not is_encoder(name)]
    parts = [f"{report.prefix}: {report.title}, {len(report.loaded)} variables loaded"]
    if release:
        parts.append(f"They are those of {release}")
    if loaded_heads:
        parts.append(f"Heads loaded from the checkpoint: {', '.join(loaded_heads)}")
    if random:
        parts.append(f"New, with random weights: {', '.join(random)}")
    log = logging.warning if random else logging.info
    log("%s", ". ".join(parts))


def load_weights(model: WithVariables, path: str | ModelPath) -> None:
    """Loads all weights of a trained model including its heads, and the pooler if it is used.

    Args:
        model: the model.
        path: as in `find_checkpoint`, or where that leads.

    Raises:
        FileNotFoundError: the checkpoint does not exist.
        ValueError: a weight is missing or has another shape, or the checkpoint's encoder has
            others. The model is unchanged.
    """
    place = ModelPath.of(path)
    report = inspect_checkpoint(place, model)
    if not report.fits or _new(report, model):
        logging.debug("%s", report)
        raise ValueError(
            f"{report.prefix} does not contain the weights of this task and model: "
            f"{report.reason}.\nPass the --albert_config_file that belongs to it, or train first "
            "(--verbosity=1 lists all weights)."
        )
    _warn_of_config(model, _config_beside(place), "the config next to the checkpoint")
    _assign(model, report.read(report.loaded))


def leave_out_pooler(model: AlbertEncoder | AlbertModel) -> None:
    """Removes the pooler from a model, for a checkpoint that has none.

    The model's outputs must not depend on it: its encoder has no `pooled_output` afterwards.
    """
    encoder = encoder_of(model)
    encoder.pooler, encoder.add_pooling_layer = None, False


def encoder_of(model: AlbertEncoder | AlbertModel) -> AlbertEncoder:
    """Returns the encoder of a model, which may be one."""
    return model.encoder if hasattr(model, "encoder") else model


def inspect_checkpoint(
    path: str | ModelPath, model: WithVariables | None = None, init_from_group0: bool = False
) -> LoadReport:
    """Reports what `load_checkpoint` would do, or without a model, the content of a checkpoint.

    Raises:
        FileNotFoundError: the checkpoint does not exist.
        ValueError: the checkpoint is damaged. Weights that do not fit are only reported.
    """
    return LoadReport(open_weights(path), model, init_from_group0)


def lazy_weights(
    path: str, model: WithVariables | None = None, init_from_group0: bool = False
) -> LazyArrays:
    """Returns all weights of a checkpoint, float32, with the names of this package.

    Each is read when it is asked for, which raises ValueError if it is damaged.

    Args:
        path: as in `find_checkpoint`.
        model: the model whose layout the weights are converted to, if several are possible.
        init_from_group0: as in `load_checkpoint`.
    """
    report = inspect_checkpoint(path, model, init_from_group0)
    return report.lazily(report.entries)


def read_weights(path: str, model: WithVariables | None = None) -> dict[str, np.ndarray]:
    """Returns all weights of a checkpoint; see `lazy_weights`."""
    return dict(lazy_weights(path, model))


def _assign(model: WithVariables, values: dict[str, np.ndarray]) -> None:
    """Assigns the variables once all values were read, because the file may be damaged."""
    from albert_tf.model.initialization import set_value

    variables = by_name(model.variables)
    for name in list(values):
        set_value(variables[name], as_tensor(values.pop(name)))
