"""The console commands of programs outside of the package, such as those of `tools/`.

They are written on top of the library, which does not import them. An installed package contains
copies of them; see `force-include` in `pyproject.toml`.
"""

from __future__ import annotations

import importlib
import os
import sys

from albert_tf import included


def check_device() -> None:
    """Runs `benchmarks/check_device.py`."""
    _run("benchmarks/check_device.py")


def edit_vocabulary() -> None:
    """Runs `tools/edit_vocabulary.py`."""
    _run("tools/edit_vocabulary.py")


def _run(path: str) -> None:
    """Runs a program, given its path in a checkout, as `python path` does."""
    folder, name = os.path.split(included.program_file(path))
    sys.path.insert(0, folder)
    importlib.import_module(name.removesuffix(".py")).main()
