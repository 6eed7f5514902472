"""Hooks of the documentation site: pages from the root of the repository, and links out of docs/.

The pages are written for reading in the repository, where links such as `../albert_tf/modeling.py`
work. The site has no such files, so links to them become plain text.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
# Page of the site → file of the repository.
PAGES = {
    "index.md": "README.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
}
LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are at the root of the repository."""
    for page, source in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrites the relative links of a page for the site."""
    name = page.file.src_uri
    source = PurePosixPath(PAGES[name]) if name in PAGES else PurePosixPath("docs") / name
    pages = {source: page for page, source in PAGES.items()}

    def rewrite(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        path = (ROOT / source.parent / target).resolve().relative_to(ROOT).as_posix()
        uri = pages.get(path) or path.removeprefix("docs/")
        if files.get_file_from_path(uri) is None or (uri == path and path not in pages):
            return text
        depth = len(PurePosixPath(name).parts) - 1
        return f"[{text}]({'../' * depth}{uri}{anchor})"

    return LINK.sub(rewrite, markdown)
