"""Checks the paths of flags and arguments before any work, and names them in its errors."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import PurePath

from albert_tf.files.paths import (
    check_path,
    exists,
    file_system,
    is_directory,
    is_remote,
    looked_from,
    real_path,
)
from albert_tf.files.reading import require_file

Paths = str | Iterable[str] | None


def check_file(path: str, what: str) -> None:
    """Raises FileNotFoundError, naming the flag or argument `what`, if `path` is not a file."""
    require_file(path, f"{what}: ")


def check_directory(path: str, what: str) -> None:
    """Raises FileNotFoundError, naming the flag or argument `what`, if there is no directory."""
    if not is_directory(path):
        check_path(path, what)
        raise FileNotFoundError(
            f"{what}: {path}: no such directory{looked_from(path, 'directory')}"
        )


def check_writable(path: str, what: str) -> None:
    """Checks that a local directory can be created and written to, and leaves everything as it is.

    Raises:
        ValueError: the directory cannot be created or written to, or `check_path` refuses it.
    """
    check_path(path, what)
    folder = os.path.abspath(path)
    while not os.path.exists(folder):
        _check_link(folder, what)
        folder = os.path.dirname(folder)
    if not is_remote(path) and not _is_writable(folder):
        raise ValueError(f"{what}: cannot write to {path!r}: {folder} is not a writable folder")


def _is_writable(folder: str) -> bool:
    """Returns whether a folder can be made in another; of some systems, permissions do not tell."""
    if not os.access(os.path.join(folder, "."), os.W_OK):
        return False
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".", dir=folder))
    except OSError:
        return False
    return True


def ensure_directory(path: str, what: str = "") -> None:
    """Creates a directory and its parents unless they exist, and checks that it is writable.

    On object stores, this does nothing, because they have no directories.

    Args:
        path: the directory. Only a local one is checked.
        what: the flag or argument with the path, for the message.

    Raises:
        ValueError: the directory cannot be created or written to; without `what`, an OSError.
    """
    check_path(path, what)
    try:
        if not path.startswith(("gs://", "s3://")):  # fsspec would only create the bucket
            system, name = file_system(path)
            system.makedirs(name, exist_ok=True)
        if not is_remote(path):
            # This file has no name, so that no kill leaves it.
            tempfile.TemporaryFile(dir=path or ".").close()
    except OSError as error:
        _check_link(path.rstrip(os.sep), what)
        if not what:
            raise
        raise ValueError(f"{what}: cannot write to {path!r}: {error.strerror}") from None


def _check_link(path: str, what: str) -> None:
    """Raises ValueError if a path is a link to a folder that does not exist."""
    if os.path.islink(path) and not os.path.exists(path):
        raise ValueError(
            f"{what and what + ': '}{path} is a link to {os.readlink(path)}, which does not exist. "
            "Create that folder, or remove the link"
        )


def check_replaceable(path: str) -> None:
    """Raises ValueError if `path` is a directory, a pipe or a device, which no file may replace."""
    check_path(path)
    if not is_remote(path) and os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"{path}: cannot write a file here, this is a directory, pipe or device")


def check_outputs(outputs: Mapping[str, Paths], inputs: Mapping[str, Paths]) -> None:
    """Checks that no output file is one of the input files, also under another path.

    Args:
        outputs: flag → file or files to write.
        inputs: flag → file or files to read, or folders, all of whose files count.

    Raises:
        ValueError: a file to write is an input, or it is a directory, a pipe or a device. The
            message names both flags.
    """
    read = {real_path(path): flag for flag, paths in inputs.items() for path in _listed(paths)}
    for flag, path in ((flag, path) for flag, paths in outputs.items() for path in _listed(paths)):
        check_replaceable(path)
        place = PurePath(real_path(path))
        other = next((read[str(p)] for p in (place, *place.parents) if str(p) in read), None)
        if other and exists(path):
            raise ValueError(f"{flag}: {path} is an input, {other}, and would be replaced")


def _listed(paths: Paths) -> Iterable[str]:
    return [paths] if paths and isinstance(paths, str) else paths or ()
