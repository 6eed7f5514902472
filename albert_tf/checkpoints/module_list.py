"""The list of modules in a folder of sentence-transformers, and which of them is the model."""

from __future__ import annotations

import os
from collections.abc import Mapping

from albert_tf import files

MODULES_FILE = "modules.json"


def list_modules(folder: str) -> list[files.JsonObject] | None:
    """Returns the modules of a folder, in the order in which they are applied.

    Returns:
        Their objects in `modules.json`, with the class as `type` and the subfolder as `path`; None
        if the folder has no such file.

    Raises:
        ValueError: the file is damaged.
    """
    path = os.path.join(folder, MODULES_FILE)
    if not files.is_file(path):
        return None
    modules = files.load_json(files.read_text(path), path)
    if not isinstance(modules, list) or not all(isinstance(x, dict) for x in modules):
        raise ValueError(f"{path}: expected a list of modules")
    for module in modules:
        files.check_fields(module, path, {"type": str, "path": str})
    return list(modules)


def transformer_folder(folder: str) -> str:
    """Returns the folder of the first module, which may be the folder itself.

    Any other folder than one of sentence-transformers is returned unchanged.
    """
    modules = list_modules(folder)
    return folder_of_module(folder, modules[0]) if modules else folder


def folder_of_module(folder: str, module: Mapping[str, files.Json]) -> str:
    """Returns the subfolder with the files of a module, which may be the folder itself.

    Args:
        folder: the folder with `modules.json`.
        module: one of `list_modules`.

    Raises:
        ValueError: it is not in the folder.
    """
    return files.inside(folder, module["path"], os.path.join(folder, MODULES_FILE))
