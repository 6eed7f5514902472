"""Checkpoints in TensorFlow 1's name-based form, as Google's and albert_zh's programs use.

A checkpoint is a dictionary from variable name to array, on disk as `<prefix>.index` and
`<prefix>.data-00000-of-00001`. Ours carry Google's names, the optimizer's moments as
`<variable>/adam_m` and `<variable>/adam_v`, and `global_step`, so that Google's code reads them.
"""

from __future__ import annotations

import dataclasses
import os
import re
import uuid
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

GLOBAL_STEP = "global_step"
DATA_SUFFIX = ".data-00000-of-00001"
BEST = "model.ckpt-best"
_NUMBERED = re.compile(r"model\.ckpt-(\d+)\.index$")
# What optimizers leave in a checkpoint beside the weights.
_BOOKKEEPING = re.compile(
    r"(^|/)(adam_m|adam_v|lamb_m|lamb_v)$|(^|/)(AdamWeightDecayOptimizer|LAMBOptimizer)"
    rf"|^{GLOBAL_STEP}$"
)


def variable_name(variable: tf.Variable) -> str:
    """The checkpoint name of a variable: its own without the ":0"."""
    return variable.name.split(":")[0]


def is_bookkeeping(name: str) -> bool:
    """Whether a checkpoint name belongs to an optimizer or step counter, not to the model."""
    return bool(_BOOKKEEPING.search(name))


def list_checkpoints(directory: str) -> dict[int, str]:
    """The numbered checkpoints `model.ckpt-<step>` of a directory: step → prefix, ascending.

    They are found by their `.index` files. The text file `checkpoint` is not trusted: in released
    archives it names a path on another machine.
    """
    if not tf.io.gfile.isdir(directory):
        return {}
    found = (_NUMBERED.match(name) for name in tf.io.gfile.listdir(directory))
    steps = sorted(int(match[1]) for match in found if match)
    return {step: os.path.join(directory, f"model.ckpt-{step}") for step in steps}


def find_checkpoint(path: str) -> str:
    """The prefix that `path` means: itself, one of its files, or a directory's only checkpoint.

    Raises:
        FileNotFoundError: there is none, or its data is missing.
        ValueError: a directory holds several; the text lists them.
    """
    if tf.io.gfile.isdir(path):
        names = sorted(
            n[: -len(".index")] for n in tf.io.gfile.listdir(path) if n.endswith(".index")
        )
        if not names:
            raise FileNotFoundError(f"{path}: this folder holds no checkpoint (no *.index file)")
        if len(names) > 1:
            raise ValueError(f"{path} holds several checkpoints, name one: {', '.join(names)}")
        path = os.path.join(path, names[0])
    prefix = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    if not tf.io.gfile.exists(prefix + ".index"):
        raise FileNotFoundError(
            f"{path}: no such checkpoint. A prefix was expected, such that <prefix>.index exists"
        )
    if not tf.io.gfile.glob(prefix + ".data-*"):
        raise FileNotFoundError(f"{prefix}.index has no data: {prefix}{DATA_SUFFIX} is missing")
    return prefix


def open_checkpoint(prefix: str) -> tf.train.CheckpointReader:
    """A reader of the checkpoint, whose data files are there in full.

    Raises:
        FileNotFoundError: as `find_checkpoint`.
        ValueError: the index cannot be read.
    """
    prefix = find_checkpoint(prefix)
    try:
        return tf.train.load_checkpoint(prefix)
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise ValueError(f"{prefix}: damaged or no TensorFlow checkpoint ({error})") from None


def read_tensor(reader: tf.train.CheckpointReader, name: str, prefix: str) -> np.ndarray:
    """One array of a checkpoint.

    Raises:
        ValueError: the data file is cut short or damaged.
    """
    try:
        return reader.get_tensor(name)
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise ValueError(f"{prefix}: cannot read {name!r}, the data is damaged ({error})") from None


def read_step(prefix: str) -> int:
    """The `global_step` of a checkpoint, 0 where it has none."""
    reader = open_checkpoint(prefix)
    return int(reader.get_tensor(GLOBAL_STEP)) if reader.has_tensor(GLOBAL_STEP) else 0


def save_checkpoint(prefix: str, tensors: dict[str, Any]) -> None:
    """Writes a checkpoint, complete or not at all.

    Args:
        prefix: where; `<prefix>.index` and `<prefix>.data-00000-of-00001` appear, the index last.
        tensors: name → variable, tensor or array.
    """
    directory, base = os.path.split(prefix)
    temporary = os.path.join(directory, f".{base}-{uuid.uuid4().hex[:8]}")
    names = sorted(tensors)
    try:
        with tf.device("cpu"):
            tf.raw_ops.SaveV2(
                prefix=temporary,
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=[tf.convert_to_tensor(tensors[name]) for name in names],
            )
        for suffix in (DATA_SUFFIX, ".index"):
            tf.io.gfile.rename(temporary + suffix, prefix + suffix, overwrite=True)
    finally:
        for leftover in tf.io.gfile.glob(temporary + ".*"):
            tf.io.gfile.remove(leftover)


def copy_checkpoint(source: str, target: str) -> None:
    """Copies a checkpoint to another prefix of the same file system, complete or not at all."""
    temporary = f"{target}-{uuid.uuid4().hex[:8]}.tmp"
    for suffix in (DATA_SUFFIX, ".index"):
        tf.io.gfile.copy(source + suffix, temporary + suffix, overwrite=True)
    for suffix in (DATA_SUFFIX, ".index"):
        tf.io.gfile.rename(temporary + suffix, target + suffix, overwrite=True)


def remove_old_checkpoints(directory: str, keep: int) -> None:
    """Removes all but the `keep` newest of this program's numbered checkpoints; 0 keeps all."""
    prefixes = list(list_checkpoints(directory).values())
    for prefix in prefixes[:-keep] if keep > 0 else []:
        for suffix in (".index", DATA_SUFFIX, ".meta"):
            if tf.io.gfile.exists(prefix + suffix):
                tf.io.gfile.remove(prefix + suffix)


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What loading a checkpoint did, by variable name.

    Attributes:
        prefix: the checkpoint.
        loaded: variables that took their value from it.
        missing: variables of the model that it lacks.
        misshapen: variable → (shape in the checkpoint, shape in the model).
        unused: its variables that the model has not, moments and step counter aside.
    """

    prefix: str
    loaded: list[str]
    missing: list[str]
    misshapen: dict[str, tuple[list[int], list[int]]]
    unused: list[str]

    def __str__(self) -> str:
        lines = [f"{self.prefix}: {len(self.loaded)} variables loaded"]
        for name in self.missing:
            lines.append(f"  missing    {name}")
        for name, (theirs, ours) in self.misshapen.items():
            lines.append(f"  misshapen  {name}: {theirs} in the checkpoint, {ours} in the model")
        for name in self.unused:
            lines.append(f"  unused     {name}")
        return "\n".join(lines)


def load_checkpoint(
    model: Any, path: str, allow_partial: bool = False, init_from_group0: bool = False
) -> LoadReport:
    """Loads the weights of `model` from a checkpoint with Google's names.

    Args:
        model: anything with `.variables`, such as `AlbertForPretraining`.
        path: as `find_checkpoint` takes it.
        allow_partial: go on, with a warning, where encoder variables are missing or misshapen.
        init_from_group0: take the weights of every hidden group from the checkpoint's group 0.

    Returns:
        what was loaded, missing and unused. Missing heads are named there and in the log only.

    Raises:
        FileNotFoundError: no such checkpoint.
        ValueError: variables of the encoder (`bert/…`) are missing or any is misshapen; the text
            lists them. Nothing has been changed then.
    """
    prefix = find_checkpoint(path)
    reader = open_checkpoint(prefix)
    # TF-Hub's TF1 modules put everything below `module/`.
    stored = {re.sub("^module/", "", name): name for name in reader.get_variable_to_shape_map()}
    shapes = reader.get_variable_to_shape_map()
    loaded, missing, misshapen, taken = {}, [], {}, set()
    for variable in model.variables:
        name = variable_name(variable)
        source = re.sub(r"/group_\d+/", "/group_0/", name) if init_from_group0 else name
        if source not in stored:
            missing.append(name)
            continue
        taken.add(source)
        if shapes[stored[source]] == variable.shape.as_list():
            loaded[name] = (variable, stored[source])
        else:
            misshapen[name] = (shapes[stored[source]], variable.shape.as_list())
    unused = sorted(name for name in stored if name not in taken and not is_bookkeeping(name))
    report = LoadReport(prefix, sorted(loaded), sorted(missing), misshapen, unused)
    if misshapen or any(name.startswith("bert/") for name in missing):
        if not allow_partial:
            raise ValueError(
                f"{report}\nThe checkpoint does not hold this model's encoder. Check that "
                "albert_config.json is the one that came with it, or pass --allow_partial_init to "
                "leave these variables at their random start."
            )
        logging.warning("Loading in part, as asked:\n%s", report)
    elif missing:
        logging.warning("These variables stay as they are:\n%s", report)
    else:
        logging.info("%s", report)
    values = [read_tensor(reader, source, prefix) for _, source in loaded.values()]
    for (variable, _), value in zip(loaded.values(), values, strict=True):
        variable.assign(value)
    return report
