"""Checksums of record files, stored beside them, so that large files need not be read for them.

The checksum of `folder/name` is `folder/records.index/name.sha256`, a JSON object with `sha256` of
all bytes, and `bytes` and `version` of the file. The data program computes it while it writes the
file. It is trusted only as long as size and version (the modification time in nanoseconds, or what
a remote store has instead) are those of the file; otherwise the file is read.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

from albert_tf import files
from albert_tf.data.record_index import FOLDER

SUFFIX = ".sha256"
FIELDS = {"sha256": str, "bytes": int}  # of an entry; `version` is a number or a text
_BYTES_AT_ONCE = 1 << 20


def path_of(path: str) -> str:
    """Returns the path of the file with the checksum of a record file."""
    folder, name = os.path.split(path)
    return os.path.join(folder, FOLDER, name + SUFFIX)


def describe(path: str, checksum: str) -> dict[str, Any]:
    """Returns an entry: the checksum of a file, and the size and the version that it is valid for.

    Args:
        path: the file.
        checksum: SHA-256 of its bytes, in hexadecimal.
    """
    return {"sha256": checksum, "bytes": files.file_size(path), "version": files.version(path)}


def write(path: str, checksum: str) -> None:
    """Stores the checksum of a complete record file; arguments as in `describe`."""
    entry = describe(path, checksum)
    files.ensure_directory(os.path.dirname(path_of(path)))
    files.write_json(path_of(path), entry)


def find(path: str) -> str | None:
    """Returns the stored checksum of a record file, or None if there is none for its content.

    Raises:
        ValueError: the file with the checksum is damaged.
    """
    if not files.exists(path_of(path)):
        return None
    return valid(path, files.read_json(path_of(path), FIELDS))


def valid(path: str, entry: dict[str, Any]) -> str | None:
    """Returns the checksum in an entry if the file has not changed since; otherwise None."""
    checksum = str(entry.get("sha256"))
    # A store that tells neither when nor what was written has the version "".
    is_same = bool(entry.get("version")) and describe(path, checksum) == entry
    return checksum if is_same else None


def compute(path: str) -> str:
    """Reads a file, and returns the SHA-256 of its bytes in hexadecimal."""
    content = hashlib.sha256()
    with files.open_binary(path) as stream:
        while block := stream.read(_BYTES_AT_ONCE):
            content.update(block)
    return content.hexdigest()
