"""What README and guides say is so: commands, links, examples and figures."""

from __future__ import annotations

import ast
import dataclasses
import re
import shlex

import pytest

from albert_tf import AlbertConfig
from albert_tf.checkpoints import releases
from albert_tf.cli import describe, programs
from albert_tf.cli.flags import define, parse
from tests.conftest import ROOT
from tests.pages import pages_in_the_navigation

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
CODE = ("albert_tf", "benchmarks", "compat", "docs", "examples", "experiments", "tests")


def module_of(name):
    """The module of `run_classifier.py`, `albert classifier` and so on; None for other programs."""
    verb = name.removesuffix(".py").replace("_", "-")
    program = programs.PROGRAMS.get(verb) or programs.PROGRAMS.get(f"run-{verb}")
    return program and program.load()


def commands():
    """The module and the flags of every command of the README that starts a program."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
        command, *flags = shlex.split(line, comments=True) or [""]
        if command in ("python", "albert") and not flags[0].startswith("examples/"):
            yield module_of(flags[0]), flags[1:]


def code_of(page):
    """The lines of shell blocks and of indented code, and inline commands with a value."""
    text = page.read_text(encoding="utf-8")
    fenced = re.findall(r"^```(?:bash|sh)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^ {4,}((?:.*\\\n)*.*)$", prose, re.MULTILINE)
    inline = re.findall(r"`([^`]+=[^`]*)`", prose)
    return "\n".join([*fenced, *indented, *inline]).replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_relative_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [x for x in links if "://" not in x and not (page.parent / x).exists()] == []


@pytest.mark.parametrize(
    # The notebook names what there was at its time.
    "page",
    [page for page in PAGES if page.parent.name != "notebook"],
    ids=lambda page: page.stem,
)
def test_files_that_pages_name_exist(page):
    """Relative to the repository or the package, or anywhere in them if no folder is named."""
    named = re.findall(r"`([\w<>/.-]+\.py)`", page.read_text(encoding="utf-8"))
    patterns = {re.sub(r"<\w+>", "*", name) for name in named} - {"NAME.py"}
    places = [ROOT, ROOT / "albert_tf"]
    anywhere = {path.name for folder in CODE for path in (ROOT / folder).rglob("*.py")}
    assert [
        pattern
        for pattern in sorted(patterns - anywhere)
        if not any(list(place.glob(pattern)) for place in places)
    ] == []


def test_the_drawing_of_the_architecture_has_every_folder():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = set(re.findall(r"│ (\w+)/ ", text.split("```")[1]))
    folders = {path.parent.name for path in (ROOT / "albert_tf").glob("*/__init__.py")}
    foot = text.split("```")[1].splitlines()[-3:]
    files = {path.name for path in (ROOT / "albert_tf").glob("[a-z]*.py")} - {"version.py"}
    assert {f"{name}/" for name in folders - drawn} | files == set(
        re.findall(r"\w+\.py|\w+/", "\n".join(foot))
    )
    named = re.findall(r"`((?:\w+/)+)`", text)
    assert [name for name in named if not (ROOT / "albert_tf" / name).is_dir()] == []


def test_the_architecture_lists_every_file_with_the_first_line_of_its_docstring():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = text.split("## Every file")[1].split("```")[1].strip().splitlines()
    expected = []
    for folder in sorted({path.parent for path in (ROOT / "albert_tf").rglob("*.py")}):
        expected.append(f"{folder.relative_to(ROOT).as_posix()}/")
        for path in sorted(folder.glob("*.py")):
            summary = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            expected.append(f"  {path.name:26} {summary.splitlines()[0]}")
    assert listed == expected


def test_programs_accept_the_flags_of_the_readme():
    found = list(commands())
    assert len(found) == 7
    for module, flags in found:
        parse(module.Settings, flags)


@pytest.mark.parametrize(
    # docs/commands.md has commands of other projects, which tests/test_pasted_commands.py runs.
    "page",
    [page for page in PAGES if page.parent.name != "notebook" and page.name != "commands.md"],
    ids=lambda page: page.stem,
)
def test_programs_know_the_flags_of_every_page(page):
    for line in code_of(page):
        command = re.match(r"\s*(?:albert|python) ([\w-]+(?:\.py)?)( [^|>;&]*)?", line)
        module = module_of(command[1]) if command else None
        if module is not None:
            flags = shlex.split(command[2] or "", comments=True)
            values = define(module.Settings)
            values.set_gnu_getopt()
            # tests/test_recipes.py reads the recipes
            values(["program", *(flag for flag in flags if not flag.startswith("--flagfile="))])


# What opens a model by its name, and the name.
OPENED = re.compile(
    r"""(?:--(?:init_checkpoint|model_dir|input)=|(?:from_pretrained|load_predictor)\(\\?")"""
    r"""(albert_\w+)(?=[\s"'\\`,)])"""
)


@pytest.mark.parametrize(
    "path",
    [
        *[page for page in PAGES if page.parent.name != "notebook" and page.name != "commands.md"],
        *(ROOT / "albert_tf").rglob("*.py"),
        *(ROOT / "examples").iterdir(),
    ],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_models_that_are_opened_by_name_can_be_downloaded(path):
    """`albert_base` is the name of a config, and of no release."""
    if path.is_file():
        names = set(OPENED.findall(path.read_text(encoding="utf-8")))
        assert [name for name in names if releases.named(name) is None] == []


def test_the_readme_and_the_pages_in_the_navigation_have_at_most_25_000_words():
    """Without reference and notebook, changelog and contributing guide."""
    left_out = {ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"}
    words = {
        page.relative_to(ROOT).as_posix(): len(page.read_text("utf-8").split())
        for page in pages_in_the_navigation()
        if page.parent.name not in ("reference", "notebook") and page not in left_out
    }
    assert len(words) > 25
    assert sum(words.values()) <= 25_000, sorted(words.items(), key=lambda item: -item[1])


@pytest.mark.parametrize(
    # Notebook and commands.md have commands of other days and projects as they were.
    "page",
    [page for page in PAGES if page.parent.name != "notebook" and page.name != "commands.md"],
    ids=lambda page: page.stem,
)
def test_code_fits_into_the_column_of_the_site(page):
    """docs/wide.css makes room for 100 characters."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:bash|sh|python|json)\n(.*?)^```$", text, re.M | re.S)
    assert [line for line in "".join(blocks).splitlines() if len(line) > 100] == []


def docstrings_of(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def test_no_page_of_the_reference_loses_a_name_in_angle_brackets():
    """Outside of code, a browser takes `model.ckpt-<step>` for an unknown element."""
    text = "\n\n".join(
        docstring
        for path in (ROOT / "albert_tf").rglob("*.py")
        for docstring in docstrings_of(path)
    )
    prose = re.sub(r'`[^`]*`|"[^"\n]*"|^ {4}.* \\\n.*', "", text, flags=re.MULTILINE)
    assert re.findall(r"\S*<\w+>\S*", prose) == []


def test_how_albert_works_shows_what_albert_describe_prints():
    text = (ROOT / "docs" / "how_albert_works.md").read_text(encoding="utf-8")
    shown = text.split("$ albert describe albert_base\n")[1].split("\n```")[0]
    assert describe.run(describe.Settings(model="albert_base")).startswith(shown)
    rows = re.findall(r"\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|", text)
    assert len(rows) == 4
    base = AlbertConfig.from_json_file("albert_base")
    for share, *millions in rows:
        for size, shown in zip((768, 128), millions, strict=True):
            config = dataclasses.replace(base, share=share, embedding_size=size)
            assert shown == f"{config.num_weights / 1e6:.1f}"
