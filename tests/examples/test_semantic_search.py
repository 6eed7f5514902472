"""The most similar lines of a file."""

from __future__ import annotations

import semantic_search

from tests.inference.conftest import TEXTS


def test_the_same_text_is_found_first(pretrained_dir, tmp_path):
    texts, queries = tmp_path / "texts.txt", tmp_path / "queries.txt"
    texts.write_text("\n".join(TEXTS))
    queries.write_text(f"{TEXTS[3].upper()}\n{TEXTS[1]}\n")
    settings = semantic_search.Settings(str(pretrained_dir), str(texts), str(queries), 2)
    lines = semantic_search.run(settings).split("\n")
    assert len(lines) == 2 * (1 + 2)
    assert lines[0] == TEXTS[3].upper()
    assert lines[1] == f"  1.0000  {TEXTS[3]}"
    assert lines[4] == f"  1.0000  {TEXTS[1]}"
