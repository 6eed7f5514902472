"""Blocks of the pages in the language `sh`, which tests do not run: what can be said without it.

They install packages, download, ask a server, or need a TPU or Docker. So each command is read:
its flags by the program, its files, packages, targets and data by what the repository has.
tests/test_pasted_commands.py runs the blocks in Bash and Python.
"""

from __future__ import annotations

import ast
import json
import re
import shlex

import pytest

from albert_tf.cli import programs
from albert_tf.cli.flags import parse
from tests.conftest import ROOT
from tests.pages import pages_in_the_navigation

PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")


def values_of(words, flag):
    """The values of a flag, given as `flag value` or `flag=value`."""
    joined = re.sub(rf"(?<!\S){flag}[ =]", f"{flag}\0", " ".join(words))
    return re.findall(rf"{flag}\0(\S+)", joined)


def read_program(name, *flags):
    """One of ours: the program takes the flags."""
    verb = name.removesuffix(".py").replace("_", "-")
    program = programs.PROGRAMS.get(verb) or programs.PROGRAMS[f"run-{verb}"]
    parse(program.load().Settings, flags)


def read_python(script, *words):
    """A script of a checkout, a module, or code in the command."""
    if script == "-m":
        module, *rest = words
        assert module in ("build", "venv", "pip", "pytest")
        if module == "pip":
            read_pip(*rest)
    elif script == "-c":
        ast.parse(words[0])
    elif "/" not in script:
        read_program(script, *words)
    else:
        code = "".join(path.read_text("utf-8") for path in (ROOT / script).parent.glob("*.py"))
        assert (ROOT / script).is_file()
        names = [word[2:].partition("=")[0] for word in words if word.startswith("--")]
        assert [name for name in names if f'"{name}"' not in code and f"--{name}" not in code] == []


def read_pip(verb, *words):
    """Files of requirements exist, and so do the extras of this package."""
    assert verb in ("install", "uninstall")
    folders = (ROOT, ROOT / "compat" / "google")  # docs/commands.md changes to the second
    for name in values_of(words, "-r"):
        assert any((folder / name).is_file() for folder in folders)
    for word in words:
        ours = re.fullmatch(r"(?:\.|albert-tf2|dist/albert_tf2-.*\.whl)\[(.*)\]", word)
        extras = ours[1].split(",") if ours else []
        assert [extra for extra in extras if f"\n{extra} = [" not in PROJECT] == []


def read_make(target, *variables):
    """A target, and variables, of the Makefile."""
    assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)
    names = [variable.partition("=")[0] for variable in variables]
    assert [name for name in names if f"$({name})" not in MAKEFILE] == []


def read_uvicorn(*words):
    """An application of a module in a folder."""
    (folder,) = values_of(words, "--app-dir")
    module, _, name = next(word for word in words if not word.startswith("-")).partition(":")
    code = (ROOT / folder / f"{module}.py").read_text(encoding="utf-8")
    assert re.search(rf"^{name} = ", code, re.MULTILINE)


def read_curl(*words):
    """The data are JSON."""
    (data,) = (words[words.index(flag) + 1] for flag in ("--json", "--data") if flag in words)
    json.loads(data)


def read_docker(verb, *words):
    """A stage of a Dockerfile; what an image of others does with its flags cannot be said."""
    assert verb in ("build", "run")
    for name in values_of(words, "--file"):
        assert (ROOT / name).is_file()
    for stage in values_of(words, "--target"):
        assert f" AS {stage}\n" in DOCKERFILE


def read_cd(folder):
    """A folder of the repository."""
    assert (ROOT / folder).is_dir()


# First word of a command, and what reads the others.
READERS = {
    "albert": read_program,
    "cd": read_cd,
    "curl": read_curl,
    "docker": read_docker,
    "make": read_make,
    "pip": read_pip,
    "python": read_python,
    "uvicorn": read_uvicorn,
    ".": lambda path: None,  # the environment that `make demo` makes
    "tee": lambda path: None,
}


def commands_of(page):
    """The words of each command of the blocks, without redirections and variables before it."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        without_comments = re.sub(r"(?<!\S)#.*", "", block.replace("\\\n", " "))
        lexer = shlex.shlex(without_comments, posix=True, punctuation_chars=";&|\n")
        lexer.whitespace, lexer.whitespace_split = " \t", True
        words = []
        for word in [*lexer, "\n"]:
            if not set(word) <= set(";&|\n"):
                words.append(word)
            elif words:
                while re.fullmatch(r"[A-Z_]+=.*", words[0], re.DOTALL):
                    del words[0]
                yield words
                words = []


COMMANDS = [
    pytest.param(words, id=f"{page.stem}: {' '.join(words)[:50]}")
    for page in pages_in_the_navigation()
    for words in commands_of(page)
]


@pytest.mark.parametrize("words", COMMANDS)
def test_the_commands_of_blocks_that_do_not_run_are_read(words):
    name, *rest = words
    name = name.removeprefix("peers/bin/")
    assert name in READERS
    READERS[name](*rest)


def test_every_kind_of_command_is_on_a_page():
    found = {parameter.values[0][0].removeprefix("peers/bin/") for parameter in COMMANDS}
    assert found == set(READERS)


@pytest.mark.parametrize(
    "words",
    [
        ["albert", "download", "--nmae=albert_base_v2"],
        ["python", "run_pretraining.py", "--albert_config=albert_base"],
        ["python", "benchmarks/bench_train_step.py", "--roundz=2"],
        ["pip", "install", ".[tf220,gsc]"],
        ["pip", "install", "-r", "docker/serve.txt"],
        ["make", "demos"],
        ["docker", "build", "--file", "docker/Dockerfile", "--target", "serve", "."],
        ["curl", "localhost:8080/predict", "--json", "[{'text': 'He is old.'}]"],
        ["uvicorn", "--app-dir=examples", "server:application"],
    ],
)
def test_a_mistake_is_found(words):
    with pytest.raises(Exception, match=r".*"):
        READERS[words[0]](*words[1:])
