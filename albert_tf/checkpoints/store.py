"""The numbered checkpoints of a run: writing, checking, listing and removing them.

A checkpoint `model.ckpt-<step>` is complete or absent. It is written under a hidden name, checked,
flushed to the disk and only then renamed, its index last: without the index it does not exist.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import containers
from albert_tf.checkpoints.finding import list_checkpoints as list_checkpoints
from albert_tf.checkpoints.names import BEST as BEST
from albert_tf.checkpoints.names import DATA_SUFFIX

# What TensorFlow raises where a file cannot be written.
_DISK_ERRORS = (
    tf.errors.ResourceExhaustedError,
    tf.errors.PermissionDeniedError,
    tf.errors.NotFoundError,
    tf.errors.UnknownError,
    # of remote file systems
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.UnauthenticatedError,
    tf.errors.UnavailableError,
)


def save_checkpoint(prefix: str, tensors: dict[str, Any]) -> None:
    """Writes a checkpoint, complete or not at all, and checks it before it gets its name.

    Args:
        prefix: where; `<prefix>.index` and `<prefix>.data-00000-of-00001` appear, the index last.
        tensors: name → variable, tensor or array.

    Raises:
        OSError: the disk is full or cannot be written to, or what was written is not what is on
            the disk. Older checkpoints are as they were.
    """
    names = sorted(tensors)
    values = [tf.convert_to_tensor(tensors[name]) for name in names]
    with _new_files(prefix) as temporary:
        with tf.device("cpu"):
            tf.raw_ops.SaveV2(
                prefix=temporary,
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=values,
            )
        shapes = {name: value.shape.as_list() for name, value in zip(names, values, strict=True)}
        if damage := find_damage(temporary, shapes):
            raise OSError(
                f"{prefix}: the checkpoint was not written as it should be ({damage}). Look at the "
                "disk, then run the same command again; older checkpoints are as they were."
            )
        _rename(temporary, prefix, [DATA_SUFFIX])


def copy_checkpoint(source: str, target: str) -> None:
    """Copies a checkpoint to another prefix of the same file system, complete or not at all.

    Raises:
        OSError: as `save_checkpoint`.
    """
    shards = _list_suffixes(source, ".data-")
    with _new_files(target) as temporary:
        for suffix in (*shards, ".index"):
            files.copy(source + suffix, temporary + suffix)
        _rename(temporary, target, shards)


@contextlib.contextmanager
def _new_files(prefix: str) -> Iterator[str]:
    """Yields a hidden prefix beside `prefix`; files that remain under it are removed at the end."""
    directory, base = os.path.split(prefix)
    temporary = os.path.join(directory, f".{base}-{uuid.uuid4().hex[:8]}")
    try:
        yield temporary
    except (tf.errors.OpError, OSError) as error:
        if not (reason := _disk_error(error)):
            raise
        raise OSError(
            f"{prefix}: the checkpoint cannot be written: {reason}. Make room there (or name "
            "another folder), then run the same command again. Older checkpoints are as they were."
        ) from None
    finally:
        for suffix in _list_suffixes(temporary, "."):
            files.remove(temporary + suffix)


def _list_suffixes(prefix: str, start: str) -> list[str]:
    """Returns what follows `prefix` in the names of all files that begin with prefix + start."""
    directory, base = os.path.split(prefix)
    if not files.is_directory(directory or "."):
        return []
    names = files.list_directory(directory)
    return [name.removeprefix(base) for name in names if name.startswith(base + start)]


def _disk_error(error: Exception) -> str:
    """Returns why a file could not be written; "" for other kinds of errors."""
    if isinstance(error, _DISK_ERRORS):
        return error.message.split("[Op:")[0].rpartition(";")[2].strip()
    return (error.strerror or "") if isinstance(error, OSError) else ""


def _rename(temporary: str, prefix: str, shards: list[str]) -> None:
    """Gives finished files their names, the index last."""
    suffixes = (*shards, ".index")
    if not files.is_remote(prefix):
        for suffix in suffixes:
            _flush_to_disk(temporary + suffix)
    # If it replaces another checkpoint, a killed process must not leave the data of one beside the
    # index of the other.
    if files.exists(prefix + ".index"):
        files.remove(prefix + ".index")
    for suffix in suffixes:
        files.rename(temporary + suffix, prefix + suffix)


def _flush_to_disk(path: str) -> None:
    """Flushes a file to the disk: else it may be empty under its final name after a power cut."""
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())


def find_damage(prefix: str, shapes: dict[str, list[int]] | None = None) -> str:
    """Returns what is wrong with a checkpoint of this program; "" if nothing is.

    The index, which holds checksums of itself and of every tensor, is always read.

    Args:
        prefix: the checkpoint.
        shapes: name → shape of what it must hold. With it, the size of the data is compared with
            these shapes; without it, every tensor is read, which verifies its checksum.

    Raises:
        OSError: a file cannot be opened, which says nothing about its content.
    """
    try:
        size = files.file_size(prefix + DATA_SUFFIX)
        files.file_size(prefix + ".index")
    except FileNotFoundError as error:
        return str(error)
    try:
        reader = containers.open_reader(prefix)
        stored = reader.get_variable_to_shape_map()
        if shapes is None:
            for name in stored:
                reader.get_tensor(name)
            return ""
        types = reader.get_variable_to_dtype_map()
    except containers.DAMAGE as error:
        return " ".join(str(error).split())
    if stored != shapes:
        differing = sorted(set(stored) ^ set(shapes)) or sorted(shapes)
        return f"its index does not list what was saved, such as {differing[0]}"
    expected = sum(types[name].size * int(np.prod(shape)) for name, shape in shapes.items())
    return "" if size == expected else f"its data has {size} bytes, expected {expected}"


def newest_usable(directory: str) -> tuple[int, str] | None:
    """Returns the newest numbered checkpoint that can be read completely.

    Damaged checkpoints that are newer are set aside, as by `set_aside_damaged`.

    Returns:
        step and prefix; None if there is no checkpoint.

    Raises:
        ValueError: there are checkpoints, and all of them are damaged.
        OSError: one cannot be opened.
    """
    damages: dict[str, str] = {}
    for step, prefix in reversed(list_checkpoints(directory).items()):
        damage = find_damage(prefix)
        if not damage:
            for damaged, reason in damages.items():
                logging.warning("%s is damaged (%s); going back to %s", damaged, reason, prefix)
                set_aside(damaged)
            return step, prefix
        damages[prefix] = damage
    if damages:
        raise _all_damaged(damages)
    return None


def set_aside_damaged(prefixes: Iterable[str], has_others: bool) -> list[str]:
    """Reads checkpoints completely, and sets the damaged ones aside with a warning.

    Args:
        prefixes: the checkpoints, of one directory.
        has_others: whether others in this directory can be read.

    Returns:
        those that are not damaged.

    Raises:
        ValueError: all of them are damaged, and there are no others; nothing has been renamed.
        OSError: one cannot be opened.
    """
    damages = {prefix: find_damage(prefix) for prefix in prefixes}
    usable = [prefix for prefix, damage in damages.items() if not damage]
    if damages and not usable and not has_others:
        raise _all_damaged(damages)
    for prefix, damage in damages.items():
        if damage:
            logging.warning("%s is damaged (%s) and set aside", prefix, damage)
            set_aside(prefix)
    return usable


def _all_damaged(damages: Mapping[str, str]) -> ValueError:
    directory = os.path.dirname(next(iter(damages)))
    listed = "\n".join(f"  {prefix}: {damage}" for prefix, damage in damages.items())
    return ValueError(
        f"{directory}: no checkpoint can be read:\n{listed}\nBring one back from a copy, or move "
        "these files away to start anew."
    )


def set_aside(prefix: str) -> None:
    """Renames the files of a checkpoint to `<prefix>.damaged.*`, as far as they exist.

    Then neither evaluation nor the removal of old checkpoints takes it for a checkpoint.
    """
    for suffix in (".index", DATA_SUFFIX):  # without its index it is no checkpoint any more
        try:
            files.rename(prefix + suffix, f"{prefix}.damaged{suffix}")
        except FileNotFoundError:  # missing, or another worker has done it
            continue
        except OSError as error:
            logging.warning("%s%s stays where it is (%s)", prefix, suffix, error.strerror)


def correct_name(prefix: str, step: int) -> None:
    """Renames a numbered checkpoint whose name is not that of its step, with a warning.

    Where there is a checkpoint of the right name already, it becomes `<prefix>.misnamed.*`.

    Args:
        prefix: the checkpoint.
        step: its `global_step`.

    Raises:
        OSError: the disk is full, or cannot be written to.
    """
    target = os.path.join(os.path.dirname(prefix), f"model.ckpt-{step}")
    if files.exists(target + ".index"):
        target = f"{prefix}.misnamed"
    logging.warning("%s is of step %d by its global_step: renamed to %s", prefix, step, target)
    copy_checkpoint(prefix, target)  # a kill between two renames would leave a half of each
    for suffix in (".index", DATA_SUFFIX):
        with contextlib.suppress(FileNotFoundError):  # another worker has done it
            files.remove(prefix + suffix)


def remove_old_checkpoints(directory: str, keep: int) -> None:
    """Removes all but the `keep` newest of this program's numbered checkpoints; 0 keeps all."""
    prefixes = list(list_checkpoints(directory).values())
    for prefix in prefixes[:-keep] if keep > 0 else []:
        for suffix in (".index", DATA_SUFFIX, ".meta"):
            if files.exists(prefix + suffix):
                files.remove(prefix + suffix)
