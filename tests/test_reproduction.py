"""What docs/reproduction.md says can be shown: commands, and figures of tests/golden."""

from __future__ import annotations

import re

from benchmarks import parity
from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")


def test_what_the_commands_run_is_in_the_repository():
    paths = re.findall(r"[\w/]+\.(?:py|sh)\b", TEXT)
    assert len(paths) >= 4
    assert [path for path in paths if not (ROOT / path).is_file()] == []


def test_parity_is_shown_with_what_is_in_the_repository():
    references = list(parity.references(parity.GOLDEN))
    assert len(references) == len(parity.MODELS)
    for row in map(parity.compare, references):
        assert row["layers"] < 1e-5
        assert row["loss"] < 1e-5
        assert (row["gradients_relative"] or 0) < 1e-4
