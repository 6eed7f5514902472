"""Finds the configs and recipes that are included in this package.

In a checkout, they are in `configs/`, beside the package; an installed package contains a copy of
this folder.
"""

from __future__ import annotations

import os

from albert_tf import files

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
CONFIG_ENDING = ".json"
RECIPE_ENDING = ".flags"


def config_file(path: str) -> str:
    """Returns the path of a config, given a path or the name of a config of this package.

    >>> os.path.basename(config_file("albert_base"))
    'albert_base.json'
    >>> config_file("my_model/albert_config.json")
    'my_model/albert_config.json'

    Args:
        path: a file, or a name such as `albert_base`. An existing file takes precedence.

    Raises:
        FileNotFoundError: a name without a dot or slash is neither a file nor a config of this
            package. The message lists the names.
    """
    return _find(path, "config", _included("configs"), CONFIG_ENDING)


def recipe_file(path: str) -> str:
    """Returns the path of a flag file, given a path or the name of a recipe of this package.

    Args:
        path: a file, or a name such as `glue_mrpc`. An existing file takes precedence.

    Raises:
        FileNotFoundError: see `config_file`.
    """
    return _find(path, "recipe", _included("configs/recipes"), RECIPE_ENDING)


def _included(path: str) -> str:
    """Returns where a file or folder of a checkout is, which an installed package contains."""
    installed = os.path.join(_PACKAGE, path)
    return installed if os.path.exists(installed) else os.path.join(os.path.dirname(_PACKAGE), path)


def _find(path: str, kind: str, folder: str, ending: str) -> str:
    is_name = path and not {".", "/"} & set(path)
    if not is_name or files.exists(path):
        return path
    candidate = os.path.join(folder, path + ending)
    if os.path.isfile(candidate):
        return candidate
    names = sorted(
        name.removesuffix(ending) for name in os.listdir(folder) if name.endswith(ending)
    )
    raise FileNotFoundError(
        f"{path}: neither a file nor a {kind} of albert_tf, which has {', '.join(names)}"
    )
