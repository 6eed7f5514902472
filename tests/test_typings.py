"""The stubs in typings/ describe absl, TensorFlow and Keras as they are installed."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT

STUBS = sorted((ROOT / "typings").rglob("*.pyi"))


def module_of(path):
    name = ".".join(path.relative_to(ROOT / "typings").with_suffix("").parts)
    return importlib.import_module(name.removesuffix(".__init__"))


def definitions(tree: ast.Module) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    for node in tree.body:
        # `__getattr__` stands for all names that are not listed; other names with "_" are a stub's.
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
            yield node


def arguments(node: ast.FunctionDef) -> set[str]:
    return {argument.arg for argument in node.args.args + node.args.kwonlyargs}


def check_function(node, real):
    real = inspect.unwrap(getattr(real, "fget", None) or real)
    parameters = inspect.signature(real).parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    assert takes_any or arguments(node) <= set(parameters), node.name


@pytest.mark.parametrize("path", STUBS, ids=lambda path: str(path.relative_to(ROOT / "typings")))
def test_a_stub_has_names_and_arguments_of_the_library(path):
    module = module_of(path)
    for node in definitions(ast.parse(path.read_text(encoding="utf-8"))):
        real = getattr(module, node.name)
        if isinstance(node, ast.FunctionDef):
            check_function(node, real)
            continue
        bases = [base for base in real.__mro__ if base.__module__ != "builtins"]
        # From Python 3.13 on, the source of a class is not found if a decorator has made it.
        source = "".join(inspect.getsource(sys.modules[base.__module__]) for base in bases)
        for member in node.body:
            if isinstance(member, ast.FunctionDef):
                check_function(member, getattr(real, member.name))
            elif isinstance(member, ast.AnnAssign):  # an attribute of instances
                assert f"self.{member.target.id}" in source or hasattr(real, member.target.id)
