"""The modules that the file of a user's task imports."""

from __future__ import annotations

import importlib
import sys

import pytest

from albert_tf.finetuning.imported_modules import find_imported

SOURCES = {
    "own_task.py": """
import json, numpy as np
import own_losses
from own_parts import reading, NOT_A_MODULE
from albert_tf.finetuning import registry

def make():
    import own_late
""",
    "own_losses.py": "import own_task\nimport own_scores\n",
    "own_scores.py": "",
    "own_late.py": "this is Python 2: print 'x'",
    "own_unused.py": "",
    "own_parts/__init__.py": "from . import shapes\nNOT_A_MODULE = 1\n",
    "own_parts/shapes.py": "",
    "own_parts/reading.py": "from .shapes import *\n",
}


@pytest.fixture(name="folder")
def make_folder(tmp_path, monkeypatch):
    for name, text in SOURCES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


def test_the_users_modules_are_found_and_those_that_they_import(folder):
    importlib.import_module("own_task")
    found = find_imported("own_task", str(folder / "own_task.py"))
    expected = {
        "own_losses": "own_losses.py",
        "own_scores": "own_scores.py",
        "own_late": "own_late.py",
        "own_parts": "own_parts/__init__.py",
        "own_parts.reading": "own_parts/reading.py",
        "own_parts.shapes": "own_parts/shapes.py",
    }
    assert found == {name: str(folder / path) for name, path in expected.items()}
