"""What the README says is there is there, and its commands are ones that the programs accept."""

from __future__ import annotations

import fnmatch
import re
import shlex
import subprocess
import sys

import pytest

import albert_tf
from tests.conftest import ROOT, TINY_SHAPE
from tests.test_docstrings import train_vocabulary, write_model

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MOST_LINES = 150
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
TREE_HEADING = "## Where things are"


def commands():
    """Every command of the shell blocks, continued lines joined, comments dropped."""
    for language, body in BLOCKS:
        if language == "bash":
            for line in body.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if words:
                    yield words


PYTHON = [body for language, body in BLOCKS if language == "python"]
COMMANDS = list(commands())
PROGRAMS = [
    ["-m", "albert_tf", *words[1:]] if words[0] == "albert" else words[1:]
    for words in COMMANDS
    if words[0] == "albert" or (words[0] == "python" and words[1].endswith(".py"))
]


def ignored_by_git():
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    return [line.strip("/") for line in lines]


def files_on_disk():
    """Every file that belongs to the repository, as `folder/name`; hidden ones left out."""
    patterns = [*ignored_by_git(), ".*"]

    def walk(folder):
        for path in sorted(folder.iterdir()):
            name = str(path.relative_to(ROOT))
            if any(fnmatch.fnmatch(name, p) or fnmatch.fnmatch(path.name, p) for p in patterns):
                continue
            if path.is_dir():
                yield from walk(path)
            else:
                yield name

    return list(walk(ROOT))


def tree_entries():
    """Paths of the tree block; a folder ends in `/`, and an indented line is inside of it."""
    block = CONTRIBUTING.split(TREE_HEADING)[1].split("```")[1]
    folder = ""
    for line in block.splitlines()[1:]:
        # Two spaces or more divide the names from what they are; several names may share a line.
        indent = len(line) - len(line.lstrip())
        names = re.split(r"\s{2,}", line.strip())[0].split()
        folder = folder if indent else ""
        for name in names:
            yield folder + name
        if not indent and names[0].endswith("/"):
            folder = names[0]


def test_the_tree_is_the_real_tree():
    entries = list(tree_entries())
    assert len(entries) == len(set(entries))
    opened = {entry.split("/")[0] + "/" for entry in entries if not entry.endswith("/")}
    folders = [entry for entry in entries if entry.endswith("/") and entry not in opened]
    listed = {entry for entry in entries if not entry.endswith("/")}
    disk = files_on_disk()
    real = {name for name in disk if not name.startswith(tuple(folders))}
    assert sorted(listed - real) == [], "in the tree, but not on the disk"
    assert sorted(real - listed) == [], "on the disk, but not in the tree"
    for folder in folders:
        assert any(name.startswith(folder) for name in disk), f"{folder} is empty or missing"


def test_every_relative_link_leads_somewhere():
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", TEXT)
    local = [link for link in links if "://" not in link]
    assert local
    assert not [link for link in local if not (ROOT / link).exists()]


def test_every_path_in_the_text_exists():
    prose = re.sub(r"^```.*?^```$", "", TEXT + CONTRIBUTING, flags=re.MULTILINE | re.DOTALL)
    quoted = re.findall(r"`([\w./-]+)`", prose)
    folders = tuple(f"{path.name}/" for path in ROOT.iterdir() if path.is_dir())
    paths = [word for word in quoted if word.startswith(folders) and not word.startswith("demo/")]
    assert paths
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_commands_are_complete():
    for _, body in BLOCKS:
        assert "..." not in body
        assert "…" not in body
    assert PROGRAMS


def test_every_make_target_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    used = {words[1] for words in COMMANDS if words[0] == "make" and len(words) > 1}
    used |= set(re.findall(r"`make ([a-z-]+)`", TEXT))
    assert used
    assert used <= targets


def test_every_shell_script_exists():
    used = [words[1] for words in COMMANDS if words[0] in ("bash", "sh")]
    used += [words[0] for words in COMMANDS if words[0].endswith(".sh")]
    assert not [script for script in used if not (ROOT / script).is_file()]


@pytest.mark.ci
@pytest.mark.parametrize(
    "words", PROGRAMS, ids=lambda words: words[words.index("-m") + 2 if "-m" in words else 0]
)
def test_every_command_has_flags_that_its_program_accepts(words):
    # absl parses and checks the flags, and goes no further.
    done = subprocess.run(
        [sys.executable, *words, "--only_check_args"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stderr}"


@pytest.fixture(scope="module")
def readme_folder(tmp_path_factory):
    """A folder with the models and the data that the Python examples name; all of them toys."""
    from albert_tf import AlbertConfig

    folder = tmp_path_factory.mktemp("readme")
    train_vocabulary(folder / "30k-clean.model")
    shape = TINY_SHAPE | {"vocab_size": 128, "max_position_embeddings": 512, "type_vocab_size": 2}
    config = AlbertConfig(**shape | {"num_hidden_layers": 2})
    write_model(folder / "albert_base_v2", config, folder / "30k-clean.model")
    return folder


@pytest.mark.ci
@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_python_examples_run(number, readme_folder, monkeypatch):
    monkeypatch.chdir(readme_folder)
    names: dict[str, object] = {}
    exec(compile(PYTHON[number], "README.md", "exec"), names)
    (result, _) = albert_tf.load_predictor("paraphrases")(names["pairs"])
    assert result["label"] in ("different", "same")


def test_it_can_be_read_in_three_minutes():
    assert len(TEXT.splitlines()) <= MOST_LINES


def test_every_result_stands_where_its_row_says():
    table = TEXT.split("## Results")[1].split("##")[0]
    rows = [line for line in table.splitlines() if "](" in line]
    assert rows
    for row in rows:
        (source,) = re.findall(r"\]\((\S+)\)", row)
        text = (ROOT / source).read_text(encoding="utf-8")
        for figure in re.findall(r"\d+\.\d[\de-]*", row):
            assert re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", text), (row, figure)
