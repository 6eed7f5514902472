"""Hooks of the documentation site: pages from outside of docs/, links, and settings.

The notebooks of examples/ are pages with their stored outputs; mkdocs-jupyter renders them.

The pages are written for reading in the repository, where links such as
`../albert_tf/model/modeling.py` work. The site has no such files, so links to them become plain
text. A comment such as `<!-- settings of albert_tf.finetuning.race:Settings -->` becomes a table of
the fields.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path, PurePosixPath
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

from albert_tf.settings import FieldInfo, fields_of

ROOT = Path(__file__).resolve().parent.parent
# Page of the site → file of the repository.
PAGES = {
    "index.md": "README.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
}
NOTEBOOKS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("examples/*.ipynb"))
LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)]*)?\)")
TEXT = re.compile(r"(?<=>)[^<>]+(?=<)")  # between two tags
FLAG = re.compile(r"(?<!\S)--[\w=.,/]{1,40}")  # browsers may end a line after its hyphens
IN_ONE_LINE = r'<span class="flag">\g<0></span>'
NOTEBOOK_LINK = re.compile(r'href="([^"/]+\.ipynb)"')
SETTINGS = re.compile(r"^<!-- settings of (\S+?)(?: beyond (\S+))? -->$", re.MULTILINE)


@event_priority(50)  # before mkdocs-jupyter, which looks for notebooks in the files
def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are at the root of the repository, and the notebooks."""
    for page, source in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    for path in NOTEBOOKS:
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


class DoctestsAsCode(Extension):
    """Markdown extension that shows the `>>>` examples of docstrings as code, not as quotes."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """Registers the preprocessor, which comes before that of fenced code."""
        md.preprocessors.register(_DoctestPreprocessor(md), "doctests_as_code", 30)


class _DoctestPreprocessor(Preprocessor):
    """Puts each example, up to the next blank line, into a fenced block."""

    def run(self, lines: list[str]) -> list[str]:
        found, is_fenced, is_example = [], False, False
        for line in [*lines, ""]:
            is_fenced ^= line.lstrip().startswith("```")
            if not is_fenced and not is_example and line.startswith(">>> "):
                found.append("```pycon")
                is_example = True
            if is_example and not line.strip():
                found.append("```")
                is_example = False
            found.append(line.partition("  # doctest: ")[0] if is_example else line)
        return found


def on_config(config: Any) -> Any:
    """Adds the Markdown extension of this file."""
    config.markdown_extensions.append(DoctestsAsCode())
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrites the relative links of a page for the site."""
    name = page.file.src_uri
    source = PurePosixPath(PAGES[name]) if name in PAGES else PurePosixPath("docs") / name
    pages = {source: page for page, source in PAGES.items()} | {path: path for path in NOTEBOOKS}

    def rewrite(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        path = (ROOT / source.parent / target).resolve().relative_to(ROOT).as_posix()
        uri = pages.get(path) or path.removeprefix("docs/")
        if files.get_file_from_path(uri) is None or (uri == path and path not in pages):
            return text
        depth = len(PurePosixPath(name).parts) - 1
        return f"[{text}]({'../' * depth}{uri}{anchor})"

    markdown = SETTINGS.sub(lambda found: settings_table(found[1], found[2]), markdown)
    return LINK.sub(rewrite, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Keeps flags in one line, and rewrites the links between notebooks for the site."""

    def rewrite(link: re.Match[str]) -> str:
        target = files.get_file_from_path(f"examples/{link[1]}")
        if target is None:
            raise FileNotFoundError(f"{page.file.src_uri}: there is no notebook {link[1]}")
        return f'href="{target.url_relative_to(page.file)}"'

    if page.file.src_uri in NOTEBOOKS:
        return NOTEBOOK_LINK.sub(rewrite, html)
    return TEXT.sub(lambda text: FLAG.sub(IN_ONE_LINE, text[0]), html)


def settings_table(name: str, base: str | None) -> str:
    """Returns a Markdown table of the fields of a settings class, with a heading row per group.

    Args:
        name: `module:class`.
        base: another class, whose fields are left out if they are the same; None for none.
    """
    known = {(field.name, repr(field)) for field in (_fields(base) if base else ())}
    fields = [field for field in _fields(name) if (field.name, repr(field)) not in known]
    rows = ["| setting | default | |", "|---|---|---|"]
    for group in dict.fromkeys(field.group for field in fields):
        rows.append(f"| **{group}** | | |")
        rows += [_row(field) for field in fields if field.group == group]
    return "\n".join(rows)


def _fields(name: str) -> list[FieldInfo]:
    module, _, settings = name.partition(":")
    return fields_of(getattr(importlib.import_module(module), settings))


def _row(field: FieldInfo) -> str:
    default = "required" if field.is_required else f"`{field.default!r}`"
    choices = f" One of {', '.join(field.choices)}." if field.choices else ""
    text = f"{field.help}{choices}".replace("|", "\\|").replace("<", "&lt;")
    return f"| `{field.name}` | {default} | {text} |"
