"""The modules of a user that the file of a task imports, whose code its results depend on too."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator

from albert_tf import files

_PACKAGE = __name__.partition(".")[0]
_FOLDERS_OF_PACKAGES = ("site-packages", "dist-packages")


def find_imported(module: str, path: str) -> dict[str, str]:
    """Returns name → path of the modules that a module imports, and that these import in turn.

    Modules of this package, of Python and of installed packages are left out: their releases are
    recorded, where they matter.

    Args:
        module: name of the module.
        path: its file.
    """
    found: dict[str, str] = {}
    waiting = [(module, path)]
    while waiting:
        for name in _imported_names(*waiting.pop()):
            source = None if name in found or name == module else _source_of(name)
            if source and source != path:
                found[name] = source
                waiting.append((name, source))
    return found


def _imported_names(module: str, path: str) -> Iterator[str]:
    """Yields the names that the import statements of a module may mean."""
    is_package = os.path.basename(path) == "__init__.py"
    package = module if is_package else module.rpartition(".")[0]
    try:
        tree = ast.parse(files.read_text(path), path)
    except SyntaxError:  # it has not been imported so far
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            start = ".".join(parents) if node.level else ""
            base = ".".join(filter(None, (start, node.module)))
            yield from _with_parents(base)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _with_parents(name: str) -> Iterator[str]:
    """Yields a, a.b and a.b.c of a.b.c, all of which are executed."""
    parts = name.split(".")
    yield from (".".join(parts[: end + 1]) for end in range(len(parts)))


def _source_of(name: str) -> str | None:
    """Returns the file of a module, if it is a user's; None for other modules and names."""
    top = name.partition(".")[0]
    if not top or top == _PACKAGE or top in sys.stdlib_module_names:
        return None
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if spec is None and name == top:  # to find another, its package would be imported
        spec = _find_spec(name)
    origin = str(spec.origin) if spec is not None and spec.has_location else ""
    return origin if origin.endswith(".py") and not _is_installed(origin) else None


def _find_spec(name: str) -> importlib.machinery.ModuleSpec | None:
    """Returns where a module would be imported from, if it can be found."""
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):  # made by hand, or without a spec
        return None


def _is_installed(path: str) -> bool:
    """Returns whether a file belongs to Python or to an installed package."""
    folders = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    real = os.path.realpath(path)
    is_pythons = any(real.startswith(os.path.realpath(folder) + os.sep) for folder in folders)
    return is_pythons or not {*_FOLDERS_OF_PACKAGES}.isdisjoint(path.split(os.sep))
