"""Writes, verifies, lists and deletes the numbered checkpoints of a run.

A checkpoint `model.ckpt-<step>` is either complete or does not exist: TensorFlow writes its files
under temporary names and renames the index last, without which there is no checkpoint. For a remote
file system it is written locally and then uploaded, the index last.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from albert_tf import files
from albert_tf.checkpoints import containers
from albert_tf.checkpoints.run_folder import BEST as BEST
from albert_tf.checkpoints.run_folder import (
    CHECKPOINTS_FILE,
    DATA_SUFFIX,
    INTERRUPTED,
    RunFolder,
)
from albert_tf.checkpoints.tensor_memory import as_tensor

_SHARD = r"\.data-\d+-of-\d+"  # ending of a data file
# TensorFlow's errors if a file cannot be written.
_DISK_ERRORS = (
    tf.errors.ResourceExhaustedError,
    tf.errors.PermissionDeniedError,
    tf.errors.NotFoundError,
    tf.errors.UnknownError,
    tf.errors.OutOfRangeError,  # a file larger than the limit of the process
)


def save_checkpoint(prefix: str, tensors: Mapping[str, ArrayLike]) -> None:
    """Writes a checkpoint atomically.

    Args:
        prefix: the prefix of the files `<prefix>.data-00000-of-00001` and `<prefix>.index`.
        tensors: name → variable, tensor or array.

    Raises:
        OSError: the disk is full or cannot be written to. Older checkpoints are not affected.
    """
    names = sorted(tensors)
    values = [_to_tensor(tensors[name]) for name in names]
    with naming_disk_errors(prefix), _local_prefix(prefix) as local:
        _remove_index(prefix)
        with tf.device("cpu"):
            tf.raw_ops.SaveV2(
                prefix=local,
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=values,
            )
        for suffix in (DATA_SUFFIX, ".index"):
            if local == prefix:
                flush_to_disk(prefix + suffix)
            else:
                files.copy(local + suffix, prefix + suffix)


@contextlib.contextmanager
def _local_prefix(prefix: str) -> Iterator[str]:
    """Yields the prefix to write to; after an error, what was written is removed."""
    if files.is_remote(prefix):
        with tempfile.TemporaryDirectory() as folder:
            yield os.path.join(folder, os.path.basename(prefix))
        return
    try:
        yield prefix
    except BaseException:
        for suffix in _list_suffixes(prefix, rf"(\.index|{_SHARD})(\.tempstate\d+)?"):
            files.remove(prefix + suffix)
        raise


def _to_tensor(value: ArrayLike) -> tf.Tensor:
    return as_tensor(value) if isinstance(value, np.ndarray) else tf.convert_to_tensor(value)


def copy_checkpoint(source: str, target: str) -> None:
    """Atomically copies a checkpoint to another prefix.

    Raises:
        OSError: the disk is full or cannot be written to. An older target is not affected.
    """
    suffixes = (".index", *_list_suffixes(source, _SHARD))
    with naming_disk_errors(target), contextlib.ExitStack() as stack:
        for suffix in suffixes:  # the files get their names at the end, the index last
            new = stack.enter_context(files.write_atomically(target + suffix, "wb"))
            with files.open_binary(source + suffix) as content:
                shutil.copyfileobj(content, new)
            new.flush()
        _remove_index(target)


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


def _list_suffixes(prefix: str, pattern: str) -> list[str]:
    """Returns the rest of the name after `prefix` of the files where it matches a pattern."""
    directory, base = os.path.split(prefix)
    named = re.compile(f"{re.escape(base)}({pattern})")
    is_there = files.is_directory(directory or ".")
    matches = map(named.fullmatch, files.list_directory(directory) if is_there else ())
    return sorted(match[1] for match in matches if match)


def _disk_error(error: Exception) -> str:
    """Returns the reason why a file could not be written; "" for other errors."""
    if isinstance(error, _DISK_ERRORS):
        return str(error.message).split("[Op:")[0].rpartition(";")[2].strip().partition("\n")[0]
    return (error.strerror or "") if isinstance(error, OSError) else ""


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


def find_damage(prefix: str) -> str:
    """Returns what is wrong with a checkpoint written by this package; "" if nothing is.

    All of it is read: the index has checksums of itself and of every tensor.

    Raises:
        OSError: a file cannot be opened, so nothing is known about its content.
    """
    try:
        for suffix in (DATA_SUFFIX, ".index"):
            files.file_size(prefix + suffix)
        reader = containers.open_checkpoint(prefix)
        for name in reader.get_variable_to_shape_map():
            containers.read_tensor(reader, name, prefix)
    except (FileNotFoundError, ValueError) as error:
        return str(error)
    return ""


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
    """Raises ValueError if the run in a folder has saved another checkpoint of this step.

    Args:
        folder: the folder of the run.
        prefix: a numbered checkpoint in it, or one of an interruption.
        step: its step.
    """
    ours = folder.saved_digests(step)
    found = containers.digest(prefix)
    if ours and found not in ours:
        raise ValueError(
            f"{prefix} (digest {found}) is not the checkpoint of step {step} that was saved in "
            f"this folder (digest {ours[-1]}): another run wrote it in its place. Restore that "
            f"one, or move {CHECKPOINTS_FILE} away to continue with this one."
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
