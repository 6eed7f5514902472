"""The imports that docs/reference/imports.md calls stable: pages and examples need no others."""

from __future__ import annotations

import ast
import importlib
import json
import re
import textwrap

import pytest

import albert_tf
from tests.conftest import ROOT, needs_text

PAGE = (ROOT / "docs" / "reference" / "imports.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(albert_tf[\w.]*)` \| (.*) \|$", PAGE, re.MULTILINE)
STABLE = {module: re.findall(r"`(\w+)`", names) for module, names in ROWS}
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]


def code_of(path):
    """The Python code of a page, a notebook or a program, in parts that can be parsed."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return [text]
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return map(textwrap.dedent, re.findall(r"^ *```python\n(.*?)^ *```$", text, re.M | re.S))


def imported(path):
    """The names of this package that a page or an example imports: (module, name)."""
    for part in code_of(path):
        for node in ast.walk(ast.parse(part)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("albert_tf"):
                yield from ((node.module, alias.name) for alias in node.names)


def is_stable(module, name):
    return name in STABLE.get(module, ()) or f"{module}.{name}" in STABLE


@needs_text
@pytest.mark.parametrize("module", STABLE)
def test_stable_names_are_there(module):
    found = importlib.import_module(module)
    assert STABLE[module] == sorted(STABLE[module])
    assert set(STABLE[module]) <= set(getattr(found, "__all__", STABLE[module]))
    for name in STABLE[module]:
        assert getattr(found, name) is not None


def test_all_names_of_the_package_are_stable():
    assert set(STABLE["albert_tf"]) == set(albert_tf.__all__)


def test_everything_in_the_reference_is_stable():
    documented = {
        name
        for path in (ROOT / "docs" / "reference").glob("*.md")
        # Most of that page are the classes of `Predictor.task`, which nobody imports.
        if path.stem != "prediction"
        for name in re.findall(r"^::: (\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(documented) > 30
    for module, _, name in (path.rpartition(".") for path in documented - STABLE.keys()):
        assert is_stable(module, name) or name in STABLE["albert_tf"], f"{module}.{name}"


@pytest.mark.parametrize(
    "path",
    [*PAGES, *(ROOT / "examples").glob("*.py"), *(ROOT / "examples").glob("*.ipynb")],
    ids=lambda path: path.name,
)
def test_pages_and_examples_import_stable_names_only(path):
    assert [names for names in imported(path) if not is_stable(*names)] == []
