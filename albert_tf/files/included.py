"""Finds files that are included in this package: configs and recipes.

In a checkout, they are in `configs/`, beside the package; an installed package contains a copy of
this folder.
"""

from __future__ import annotations

import os

from albert_tf.files.paths import exists

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def find_included(path: str, kind: str, folder: str, ending: str) -> str:
    """Returns the path of a file, given a path or the name of a file of this package.

    Args:
        path: a file, or a name. An existing file takes precedence.
        kind: what the file is, for the message.
        folder: the folder of a checkout that has such files.
        ending: what the name lacks.

    Raises:
        FileNotFoundError: a name without a dot or slash is neither a file nor one of this package.
            The message lists the names.
    """
    is_name = path and not {".", "/", "\\"} & set(path)
    if not is_name or exists(path):
        return path
    folder = _included(folder)
    candidate = os.path.join(folder, path + ending)
    if os.path.isfile(candidate):
        return candidate
    names = sorted(
        name.removesuffix(ending) for name in os.listdir(folder) if name.endswith(ending)
    )
    raise FileNotFoundError(
        f"{path}: neither a file nor a {kind} of albert_tf, which has {', '.join(names)}"
    )


def _included(path: str) -> str:
    """Returns where a file or folder of a checkout is, which an installed package contains."""
    installed = os.path.join(_PACKAGE, path)
    return installed if os.path.exists(installed) else os.path.join(os.path.dirname(_PACKAGE), path)
