"""Finds the file of a split in the folder of a dataset."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from albert_tf import files


def find_file(data_dir: str, split: str, extensions: Sequence[str]) -> str:
    """Returns the path of the file of a split, which has one of some extensions.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: there are several.
    """
    names = [split + extension for extension in extensions]
    name = find_name(data_dir, names)
    if name is None:
        raise FileNotFoundError(f"{data_dir}: contains no {' or '.join(names)}")
    return os.path.join(data_dir, name)


def find_name(data_dir: str, names: Collection[str], takes_first: bool = False) -> str | None:
    """Returns which of some files exists; None if there is none.

    Args:
        data_dir: the folder.
        names: the files, relative to the folder.
        takes_first: whether, of several files, the first one is meant.

    Raises:
        ValueError: there are several files, and the first one is not meant.
    """
    existing = [name for name in names if files.is_file(os.path.join(data_dir, name))]
    if len(existing) > 1 and not takes_first:
        raise ValueError(f"{data_dir} contains {' and '.join(existing)}: keep only one of them")
    return existing[0] if existing else None
