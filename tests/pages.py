"""The pages of the documentation site."""

from __future__ import annotations

import re

from tests.conftest import ROOT

# Pages that are elsewhere in the repository; see docs/hooks.py.
_ELSEWHERE = {"index.md": "README.md"} | {
    name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md")
}


def pages_in_the_navigation():
    """The paths of the Markdown files, in the order of the navigation."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:")[1]
    names = re.findall(r"(\S+\.md)$", navigation, re.MULTILINE)
    return [ROOT / _ELSEWHERE.get(name, f"docs/{name}") for name in names]
