"""Checks the layers, sizes, flags and names of the source code, which is parsed with `ast`."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import re
import subprocess
import sys
from collections import defaultdict

import pytest

from albert_tf.settings import SettingsGroup, fields_of
from tests.conftest import ROOT

FLOOR = {"files", "included", "settings", "tasks", "workers"}  # all modules may import these
# What `data/` knows of ALBERT.
WITHOUT_TENSORFLOW = {"config", "huggingface_tokenizer", "sentence_objectives", "tokenization"}

PACKAGE = sorted((ROOT / "albert_tf").rglob("*.py"))
LIBRARY = [path for path in PACKAGE if path.parent.name != "cli"]
MODULES = [path for path in PACKAGE if path.name != "__init__.py"]
ROOT_SCRIPTS = sorted(ROOT.glob("*.py"))
PROGRAMS = [
    path
    for folder in ("compat", "examples", "benchmarks", "experiments")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
SOURCES = PACKAGE + ROOT_SCRIPTS + PROGRAMS
TESTS = sorted((ROOT / "tests").rglob("*.py"))

MAX_FUNCTION_LINES = 60
TWIN_STATEMENTS = 6


def name_of(path):
    return str(path.relative_to(ROOT))


@functools.cache
def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@functools.cache
def imports(path):
    """Returns all modules that a file imports, at any depth, except for type checking only."""
    found = []
    waiting = [parse(path)]
    while waiting:
        node = waiting.pop()
        if not (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")):
            waiting.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: relative import"
            found.append(node.module)
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def module_of(path):
    """Returns the dotted name of a file of the package, without `albert_tf.`."""
    return ".".join(path.relative_to(ROOT / "albert_tf").with_suffix("").parts)


HOUSE = {module_of(path): path for path in MODULES}


@functools.cache
def lines_of(path):
    return path.read_text(encoding="utf-8").splitlines()


def test_the_library_imports_no_script():
    scripts = {path.stem for path in ROOT_SCRIPTS + PROGRAMS}
    scripts |= {path.parent.name for path in PROGRAMS}
    for path in PACKAGE:
        assert not {name.split(".")[0] for name in imports(path)} & scripts, name_of(path)


def test_private_names_of_other_modules_are_not_used():
    for path in PACKAGE:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes = [n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom))]
        known = {(n.asname or n.name).split(".")[0] for node in nodes for n in node.names}
        used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        private = {name for name in used if re.match(r"\w+\._[a-z]", name)} - {"os._exit"}
        assert not {name for name in private if name.split(".")[0] in known}, name_of(path)


def test_the_library_draws_nothing():
    for path in LIBRARY:
        drawing = [name for name in imports(path) if name.split(".")[0] == "matplotlib"]
        assert not drawing, f"{name_of(path)}: plots are drawn by cli/plot_results.py"


def test_floor_and_data_start_without_tensorflow():
    modules = [
        module
        for module in HOUSE
        if module in FLOOR | WITHOUT_TENSORFLOW or module.startswith("data.")
        if module != "data.beam"  # it needs an extra
    ]
    code = (
        f"import sys, albert_tf, {', '.join(f'albert_tf.{module}' for module in modules)}\n"
        "heavy = {'tensorflow', 'tf_keras', 'keras', 'tensorflow_text', 'official'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"they import {done.stderr.strip()}"


def test_only_the_command_line_knows_flags():
    for path in PACKAGE:
        used = [name for name in imports(path) if name.startswith("absl.flags")]
        named = re.search(r"\bFLAGS\b", path.read_text(encoding="utf-8"))
        assert path.parent.name == "cli" or not (used or named), f"{name_of(path)} reads flags"


@functools.cache
def settings_classes():
    """The classes of all `settings.py`; a command that has settings of its own shares none."""
    for module in HOUSE:
        if module.split(".")[-1] == "settings":
            importlib.import_module(f"albert_tf.{module}")
    found, waiting = [], [SettingsGroup]
    while waiting:
        settings_class = waiting.pop()
        found.append(settings_class)
        waiting += [
            c for c in settings_class.__subclasses__() if c.__module__.endswith(".settings")
        ]
    return found


def test_every_setting_is_defined_once_and_otherwise_redefined():
    definitions, redefinitions = defaultdict(set), []
    for settings_class in settings_classes():
        fields = {field.name: field for field in dataclasses.fields(settings_class)}
        for name in set(vars(settings_class).get("__annotations__", {})) & set(fields):
            origin = fields[name].metadata.get("redefines")
            if origin is None:
                definitions[name].add(settings_class.__qualname__)
            else:
                redefinitions.append((name, origin, settings_class))
    # Guards against a vacuous test: these are settings of several programs.
    for name in ("spm_model_file", "vocab_file", "do_lower_case", "optimizer", "max_seq_length"):
        assert name in definitions
    twice = {name: classes for name, classes in definitions.items() if len(classes) > 1}
    assert not twice, "define a name by `setting` in one class, by `redefined` in all others"
    for name, origin, settings_class in redefinitions:
        assert name in definitions, f"{settings_class} redefines {name}, which no class defines"
        assert name in {field.name for field in dataclasses.fields(origin)}


# What a default that is no value of its own has to be explained by.
MEANING_OF_NOTHING = re.compile(
    r"if (not given|empty|only|there is no)|required|instead|used only|only if|if it"
)


def test_every_flag_is_explained_in_one_sentence_that_says_what_0_and_nothing_mean():
    for module in HOUSE:
        if module.startswith("cli."):
            importlib.import_module(f"albert_tf.{module}")
    for field in [field for c in settings_classes() for field in fields_of(c)]:
        text = field.help
        assert text.endswith("."), f"{field.name}: {text}"
        assert not re.search(r"[.?!] [A-Z]", text), f"{field.name}: more than one sentence"
        if field.type in (int, float) and field.minimum == 0 and field.default == 0:
            assert re.search(r"\b0\b", text), f"{field.name}: what does 0 mean?"
        if field.type is not bool and field.default in (None, "", ()) and not field.is_required:
            assert MEANING_OF_NOTHING.search(text), f"{field.name}: what if it is not given?"


def test_flags_are_made_of_settings_alone():
    for path in [*PACKAGE, *ROOT_SCRIPTS]:
        places = [
            f"{name_of(path)}:{node.lineno}"
            for node in ast.walk(parse(path))
            if isinstance(node, ast.Attribute) and node.attr.startswith("DEFINE")
        ]
        assert not places or name_of(path) == "albert_tf/cli/flags.py", places


def test_nothing_is_called_utils():
    homeless = re.compile(r"(^|_)(utils?|common|helpers?|misc)(_|$)")
    assert not [name_of(path) for path in SOURCES if homeless.search(path.stem)]


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_functions_stay_short(path):
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(parse(path)):
        if isinstance(node, functions):
            length = node.end_lineno - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{name_of(path)}:{node.lineno} {node.name}"


def statements(path):
    """Returns the statements and block heads of a file; no imports, docstrings or comments."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:] or [ast.Pass()]
    lines = [line.strip() for line in ast.unparse(tree).splitlines()]
    return [line for line in lines if line and not line.startswith(("import ", "from "))]


def test_no_piece_of_code_occurs_twice():
    places = defaultdict(set)
    for path in SOURCES:
        lines = statements(path)
        for start in range(len(lines) - TWIN_STATEMENTS + 1):
            piece = tuple(lines[start : start + TWIN_STATEMENTS])
            places[piece].add((name_of(path), start))
    twice = {piece: sorted(found) for piece, found in places.items() if len(found) > 1}
    assert not twice


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        (r"\bBertConfig\b", "another model's class: residue of a copy"),
        (r"\b1810\.04805\b", "BERT's paper: residue of a copy (ALBERT's is 1909.11942)"),
        (r"\btf\.keras\b", "Keras 3 in this release of TensorFlow: import tf_keras"),
        (r"\b(TODO|FIXME|XXX)\b", "finish it or leave it out"),
        (r"\bNotImplementedError\b", "no stubs"),
    ],
)
def test_forbidden_words_stay_out(word, reason):
    found = [
        f"{name_of(path)}:{number}"
        for path in SOURCES
        for number, line in enumerate(lines_of(path), 1)
        # The paper on BERT may be named only to explain a difference from BERT.
        if re.search(word, line) and not re.search(r"[Uu]nlike|differ|compar", line)
    ]
    assert not found, reason


def test_the_library_does_not_print_or_assert():
    for path in PACKAGE:
        for node in ast.walk(parse(path)):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            place = f"{name_of(path)}:{getattr(node, 'lineno', 0)}"
            prints = called and node.func.id == "print" and path in LIBRARY
            assert not prints, f"{place}: use absl.logging"
            assert not isinstance(node, ast.Assert), f"{place}: raise ValueError, say what to do"


def test_only_tests_and_benchmarks_look_outside_the_repository():
    for path in [path for path in SOURCES if path.parent.name != "benchmarks"]:
        assert "../shared" not in path.read_text(encoding="utf-8"), name_of(path)


def test_the_public_names_are_found_on_first_use():
    import albert_tf

    assert set(dir(albert_tf)) == set(albert_tf.__all__)
    for name in albert_tf.__all__:
        assert getattr(albert_tf, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'AlbertModl'"):
        albert_tf.AlbertModl  # noqa: B018
