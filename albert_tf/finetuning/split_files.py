"""Finds the file of a split in the folder of a dataset."""

from __future__ import annotations

import os
from collections.abc import Sequence

from albert_tf import files


def find_file(data_dir: str, split: str, extensions: Sequence[str]) -> str:
    """Returns the path of the file of a split, which has one of some extensions.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: there are several.
    """
    names = [split + extension for extension in extensions]
    existing = [name for name in names if files.is_file(os.path.join(data_dir, name))]
    if not existing:
        raise FileNotFoundError(f"{data_dir}: contains no {' or '.join(names)}")
    if len(existing) > 1:
        raise ValueError(f"{data_dir} contains {' and '.join(existing)}: keep only one of them")
    return os.path.join(data_dir, existing[0])
