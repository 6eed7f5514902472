"""The guides: their links lead somewhere, and every block of code in them runs.

The blocks of a page run in their order, in one copy of a user's folder (see test_pasted_commands).
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import re
import shlex
import subprocess
import sys

import pytest

from albert_tf.cli import describe as cli_describe
from albert_tf.config import AlbertConfig
from albert_tf.settings import fields_of
from tests.conftest import ROOT
from tests.test_pasted_commands import lines_of, make_home, run_here  # noqa: F401

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
HAS_SITE = all(importlib.util.find_spec(name) for name in ("mkdocs", "mkdocs_jupyter"))
GUIDES = [*sorted((DOCS / "guides").glob("*.md")), DOCS / "how_albert_works.md"]
# What a guide leaves behind.
EXPECTED = {
    "first_hour": ["messages_model/dev_predictions.tsv", "messages_export"],
    "keras": ["sentiment/run.json", "sentiment_frozen/run.json", "sentiment_export"],
    "choosing": [],
    "your_text": [
        "continued/eval_results.txt",
        "other_text/eval_results.txt",
        "task_model/run.json",
    ],
    "pretrain": ["pretrained/eval_results.txt", "dynamic/eval_results.txt"],
    "lcqmc": ["lcqmc_tiny/test_results.tsv", "lcqmc_sweep/sweep_results.txt", "export"],
    "squad": ["squad/predictions.json", "squad2/null_odds.json"],
    "race": ["race/eval_results.txt", "choice_model/eval_results.txt"],
    "custom_task": [
        *("reviews_model/eval_results.txt", "remarks_model/eval_results.txt"),
        "entities_model/eval_results.txt",
    ],
    "faq": [],
    "how_albert_works": [],
}


def name_of(page):
    return page.relative_to(DOCS).as_posix()


def blocks_of(page):
    """(language, body) of the blocks of a page that can be run."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    return [(language, body) for language, body in found if language in ("bash", "python")]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert not [link for link in local if not (page.parent / link).exists()]


def test_every_page_is_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    listed = set(re.findall(r": (\S+\.md)$", nav, re.M))
    assert {name_of(page) for page in PAGES if page.parent.name != "notebook"} <= listed


def test_every_guide_is_expected_and_has_something_to_run():
    assert {page.stem for page in GUIDES} == set(EXPECTED)
    assert all(blocks_of(page) for page in GUIDES)


def test_the_reference_lists_the_settings_of_every_program_with_functions():
    text = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")
    named = re.findall(r"^<!-- settings of (\S+):(\S+)(?: beyond \S+)? -->$", text, re.M)
    assert text.count("<!--") == len(named)
    classes = {getattr(importlib.import_module(module), name) for module, name in named}
    programs = "data pretraining classification squad race token_classification inference"
    for program in programs.split():
        assert importlib.import_module(f"albert_tf.{program}").Settings in classes
    assert all(fields_of(settings) for settings in classes)


def test_how_albert_works_shows_what_albert_describe_prints():
    text = (DOCS / "how_albert_works.md").read_text(encoding="utf-8")
    shown = text.split("$ albert describe albert_base\n")[1].split("\n```")[0]
    assert cli_describe.run(cli_describe.Settings(model="albert_base")).startswith(shown)
    rows = re.findall(r"\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|", text)
    assert len(rows) == 4
    base = AlbertConfig.from_json_file("albert_base")
    for share, *millions in rows:
        for size, shown in zip((768, 128), millions, strict=True):
            config = dataclasses.replace(base, share=share, embedding_size=size)
            assert shown == f"{config.num_weights / 1e6:.1f}"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_the_blocks_of_a_guide_run(page, run):
    blocks = blocks_of(page)
    assert not any("..." in body for _, body in blocks)
    commands = [line for language, body in blocks if language == "bash" for line in lines_of(body)]
    python = "".join(body for language, body in blocks if language == "python")
    commands.append(f"python -c {shlex.quote(python)}")
    folder, output = run(commands)
    missing = [name for name in EXPECTED[page.stem] if not (folder / name).exists()]
    assert not missing, output[-5000:]


@pytest.mark.slow
@pytest.mark.skipif(not HAS_SITE, reason="the extra docs is not installed")
def test_the_site_builds_without_a_warning(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "guides" / "faq" / "index.html").is_file()

    def read(page):
        return (tmp_path / "site" / page / "index.html").read_text(encoding="utf-8")

    assert "<blockquote>" not in read("reference/optimization"), "an example is shown as a quote"
    notebook = read("examples/quick_start")
    assert 'href="../fine_tune_and_look_at_mistakes/"' in notebook
    assert re.search(r"accuracy 0\.\d+ on sentences", notebook), "the outputs are not shown"
