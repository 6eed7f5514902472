"""Writes, verifies, lists and deletes the numbered checkpoints of a run.

A checkpoint `model.ckpt-<step>` is either complete or does not exist: it is written under a hidden
name, verified, flushed to disk and only then renamed. The index file is renamed last, because a
checkpoint without an index does not exist for TensorFlow. On a remote file system it is written and
verified locally and then uploaded, the index file last.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import ArrayLike

from albert_tf import files
from albert_tf.checkpoints import containers
from albert_tf.checkpoints.arrays import as_tensor
from albert_tf.checkpoints.run_folder import BEST as BEST
from albert_tf.checkpoints.run_folder import (
    CHECKPOINTS_FILE,
    DATA_SUFFIX,
    INTERRUPTED,
    RunFolder,
)

# TensorFlow's errors if a file cannot be written.
_DISK_ERRORS = (
    tf.errors.ResourceExhaustedError,
    tf.errors.PermissionDeniedError,
    tf.errors.NotFoundError,
    tf.errors.UnknownError,
    tf.errors.OutOfRangeError,  # a file larger than the limit of the process
)


def save_checkpoint(
    prefix: str,
    tensors: Mapping[str, ArrayLike],
    announce: Callable[[str], None] = lambda digest: None,
) -> None:
    """Writes a checkpoint atomically after verifying it.

    Args:
        prefix: the prefix of the files `<prefix>.data-00000-of-00001` and `<prefix>.index`.
        tensors: name → variable, tensor or array.
        announce: is called with the digest of the checkpoint before it gets its name.

    Raises:
        OSError: the disk is full or cannot be written to, or the verification failed. Older
            checkpoints are not affected.
    """
    names = sorted(tensors)
    values = [_to_tensor(tensors[name]) for name in names]
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
                f"{prefix}: the checkpoint was not written correctly ({damage}). Check the disk "
                "and run the same command again. Older checkpoints are not affected."
            )
        announce(containers.digest(temporary))
        _publish(temporary, prefix, [DATA_SUFFIX])


def _to_tensor(value: ArrayLike) -> tf.Tensor:
    return as_tensor(value) if isinstance(value, np.ndarray) else tf.convert_to_tensor(value)


def copy_checkpoint(source: str, target: str) -> None:
    """Atomically copies a checkpoint to another prefix in the same file system.

    Raises:
        OSError: the disk is full or cannot be written to.
    """
    shards = _list_suffixes(source, ".data-")
    if files.is_remote(target):  # each copy is atomic, and the store copies without a download
        with naming_disk_errors(target):
            _remove_index(target)
            for suffix in (*shards, ".index"):
                files.copy(source + suffix, target + suffix)
        return
    with _new_files(target) as temporary:
        for suffix in (*shards, ".index"):
            files.copy(source + suffix, temporary + suffix)
        _publish(temporary, target, shards)


@contextlib.contextmanager
def _new_files(prefix: str) -> Iterator[str]:
    """Yields a hidden local prefix, and removes remaining files with it at the end.

    It is next to `prefix`, unless that is remote.
    """
    directory, base = os.path.split(prefix)
    if files.is_remote(prefix):
        with tempfile.TemporaryDirectory() as folder, naming_disk_errors(prefix):
            yield os.path.join(folder, base)
        return
    temporary = os.path.join(directory, f".{base}-{uuid.uuid4().hex[:8]}")
    try:
        with naming_disk_errors(prefix):
            yield temporary
    finally:
        for suffix in _list_suffixes(temporary, "."):
            files.remove(temporary + suffix)


@contextlib.contextmanager
def naming_disk_errors(path: str, what: str = "the checkpoint") -> Iterator[None]:
    """Converts errors about full and unwritable disks, also TensorFlow's, to one that names a file.

    Args:
        path: the file or folder that is written.
        what: what it contains, for the message.
    """
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        if not (reason := _disk_error(error)):
            raise
        raise OSError(
            f"{path}: {what} cannot be written: {reason}. Free some space or choose another "
            "folder, then run the same command again. Older files are not affected."
        ) from None


def _list_suffixes(prefix: str, start: str) -> list[str]:
    """Returns the rest of the name after `prefix` for all files that start with prefix + start."""
    directory, base = os.path.split(prefix)
    if not files.is_directory(directory or "."):
        return []
    names = files.list_directory(directory)
    return [name.removeprefix(base) for name in names if name.startswith(base + start)]


def _disk_error(error: Exception) -> str:
    """Returns the reason why a file could not be written; "" for other errors."""
    if isinstance(error, _DISK_ERRORS):
        return str(error.message).split("[Op:")[0].rpartition(";")[2].strip().partition("\n")[0]
    return (error.strerror or "") if isinstance(error, OSError) else ""


def _publish(temporary: str, prefix: str, shards: list[str]) -> None:
    """Renames or uploads complete files to their final names, the index last."""
    suffixes = (*shards, ".index")
    if files.is_remote(prefix):
        move = files.copy
    else:
        move = files.rename
        for suffix in suffixes:
            flush_to_disk(temporary + suffix)
    _remove_index(prefix)
    for suffix in suffixes:
        move(temporary + suffix, prefix + suffix)


def _remove_index(prefix: str) -> None:
    """Removes the index of the checkpoint that is about to be replaced.

    A kill must never leave the data of one checkpoint with the index of the other.
    """
    if files.exists(prefix + ".index"):
        files.remove(prefix + ".index")


def flush_to_disk(path: str) -> None:
    """Flushes a file to disk, or it might be empty under its final name after a power failure."""
    with open(path, "rb+") as stream:  # Windows only flushes what is open for writing
        os.fsync(stream.fileno())


def find_damage(prefix: str, shapes: dict[str, list[int]] | None = None) -> str:
    """Returns what is wrong with a checkpoint written by this package; "" if nothing is.

    The index, which contains checksums of itself and of every tensor, is always read.

    Args:
        prefix: the checkpoint.
        shapes: name → expected shape. If given, only the size of the data is compared with the
            shapes; otherwise every tensor is read, which verifies its checksum.

    Raises:
        OSError: a file cannot be opened, so nothing is known about its content.
    """
    try:
        size = files.file_size(prefix + DATA_SUFFIX)
        files.file_size(prefix + ".index")
    except FileNotFoundError as error:
        return str(error)
    try:
        reader = containers.open_checkpoint(prefix)
        stored = reader.get_variable_to_shape_map()
        for name in stored if shapes is None else ():
            containers.read_tensor(reader, name, prefix)
    except ValueError as error:
        return str(error)
    if shapes is None:
        return ""
    if stored != shapes:
        differing = sorted(set(stored) ^ set(shapes)) or sorted(shapes)
        return f"its index does not match what was saved, for example {differing[0]}"
    types = reader.get_variable_to_dtype_map()
    expected = sum(types[name].size * int(np.prod(shape)) for name, shape in shapes.items())
    return "" if size == expected else f"its data has {size} bytes, expected {expected}"


def newest(folder: RunFolder) -> str | None:
    """Returns the prefix of the newest checkpoint to resume from; None if there is none.

    Raises:
        ValueError: it is damaged; see `check_readable`.
        OSError: a checkpoint cannot be opened.
    """
    prefixes = list(folder.resumable().values())
    if not prefixes:
        return None
    check_readable(prefixes[-1], prefixes)
    return prefixes[-1]


def check_readable(prefix: str, others: Iterable[str]) -> None:
    """Reads a checkpoint completely.

    Args:
        prefix: the checkpoint.
        others: those of its folder, ordered by step.

    Raises:
        ValueError: it is damaged. The message names the newest of the others that is not.
        OSError: a checkpoint cannot be opened.
    """
    if damage := find_damage(prefix):
        older = (other for other in reversed([*others]) if other != prefix)
        good = next((other for other in older if not find_damage(other)), "(none)")
        raise ValueError(
            f"{damage}. The last good checkpoint is {good}. Restore {prefix} from a backup, or "
            "move its files away to continue without it."
        )


def check_name(prefix: str, step: int) -> None:
    """Raises ValueError if a checkpoint is named after another step than its `global_step`."""
    named = re.search("[0-9]+$", prefix)
    if named and int(named[0]) != step:
        raise ValueError(
            f"{prefix} has the global_step {step}: it was renamed, or copied from elsewhere. "
            f"Rename its files to model.ckpt-{step}, or move them away."
        )


def check_is_ours(folder: RunFolder, prefix: str, step: int) -> None:
    """Checks that the run in a folder has saved a checkpoint, as far as that is recorded.

    It is logged if nothing is recorded of a run of this package. Steps before the first recorded
    one are those of the run that the folder had before.

    Args:
        folder: the folder of the run.
        prefix: a numbered checkpoint in it, or one of an interruption.
        step: its step.

    Raises:
        ValueError: the run has not saved it, but maybe another one of this step.
    """
    saved = folder.saved_digests()
    if not saved and folder.record.start:
        text = "%s does not say what this run has saved: %s is taken for one of its checkpoints"
        logging.warning(text, folder.file(CHECKPOINTS_FILE), prefix)
    if not saved or step < min(saved):
        return
    found = containers.digest(prefix)
    ours = saved.get(step)
    if ours and found not in ours:
        raise ValueError(
            f"{prefix} (digest {found}) is not the checkpoint of step {step} that was saved in "
            f"this folder (digest {ours[-1]}): another run wrote it in its place. Restore that "
            f"one, or move {CHECKPOINTS_FILE} away to continue with this one."
        )
    if not ours:
        raise ValueError(
            f"{prefix} (digest {found}) is none of the checkpoints that were saved in this folder, "
            f"those of the steps {files.quote_all(sorted(saved))}: another run wrote it. Move it "
            f"away, or {CHECKPOINTS_FILE} to continue with it."
        )


def remove_old_checkpoints(folder: RunFolder, keep: int, written: str = "") -> None:
    """Deletes all numbered checkpoints but the `keep` newest, and those of earlier interruptions.

    Args:
        folder: the folder of the run.
        keep: number of numbered checkpoints to keep; 0 keeps all.
        written: the checkpoint that has just been written, which stays; "" if there is none.
    """
    numbered = list(folder.checkpoints().values())
    interrupted = folder.checkpoints(INTERRUPTED).values()
    for prefix in (*(numbered[:-keep] if keep > 0 else ()), *interrupted):
        for suffix in (".index", DATA_SUFFIX, ".meta") if prefix != written else ():
            if files.exists(prefix + suffix):
                files.remove(prefix + suffix)
