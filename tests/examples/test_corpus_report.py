"""The report of a corpus."""

from __future__ import annotations

import json

import corpus_report
from package_corpus import REPEATED, Corpus, Document, Dropped


def a_corpus():
    dropped = Dropped()
    dropped.add(REPEATED, "The mill grinds corn.\n" * 20)
    train = [
        Document("mill", "Python modules", ["The mill grinds corn.", "It is old."]),
        Document("river", "text files", ["The river is wide and deep, and it is cold."]),
    ]
    held_out = [Document("door", "Python modules", ["The door is open."])]
    return Corpus(train, held_out, dropped, {"Python modules": 7, "text files": 2})


def test_the_report_counts_documents_sentences_and_bytes():
    report = corpus_report.summarize(a_corpus())
    assert report["parts"]["train"] == {"documents": 2, "sentences": 3, "bytes": 77}
    assert list(report["packages"]["train"]) == ["river", "mill"]
    assert report["kinds"]["Python modules"]["sentences"] == 3
    assert report["dropped"][REPEATED]["count"] == 1


def test_the_page_shows_the_same_and_shortens_examples(tmp_path):
    path = corpus_report.write(a_corpus(), str(tmp_path))
    report = json.loads((tmp_path / "report.json").read_text())
    with open(path, encoding="utf-8") as stream:
        page = stream.read()
    assert page == corpus_report.page(report)
    assert "Files read: 7 Python modules, 2 text files." in page
    assert "| part | documents | sentences | MB |\n|---|---|---|---|\n| train | 2 | 3 |" in page
    assert "### 1 times: sentences that occurred before" in page
    assert max(map(len, page.splitlines())) < 250
