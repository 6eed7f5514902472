"""The corpus of the demo: prose out of documentation with markup, some packages held out."""

from __future__ import annotations

import collections
import random

import make_corpus
import pytest
from make_corpus import Document

GOOGLE = """Opens the door of the old mill.

The door is opened slowly, e.g. by hand, and it stays open
until somebody closes it. Nobody has to wait.

Args:
  door: The door that is opened, which may be locked.
  **keys: Further keys that are tried one after the other.

Returns:
  A `Door` object which is open.
"""
GOOGLE_PROSE = [
    "Opens the door of the old mill.",
    "The door is opened slowly, e.g. by hand, and it stays open until somebody closes it.",
    "Nobody has to wait.",
    "The door that is opened, which may be locked.",
    "Further keys that are tried one after the other.",
    "A Door object which is open.",
]
MARKDOWN = """# The mill

Doors of [the old mill](https://example.org/mill) open and close by themselves.

```python
text = "Code between fences is not prose."
```
"""
MARKDOWN_PROSE = ["Doors of the old mill open and close by themselves."]


WORDS = [first + second for first in "bcdfghklmn" for second in ("ame", "ill", "ore", "ust")]
MODULE = f'''"""{GOOGLE}"""


class Mill:
    """The stones of the mill are old."""


def stop():
    "no docstring to keep"
'''


def sentences(count, seed):
    """Sentences that do not resemble one another."""
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=9)).capitalize() + "." for _ in range(count)]


def test_processes_read_the_sentences_of_what_the_files_of_packages_document(tmp_path):
    package = tmp_path / "mill"
    (package / "tests").mkdir(parents=True)
    (package / "__init__.py").write_text(MODULE)
    (package / "broken.py").write_text('%%%\n"""A string that does not end.\n')
    (package / "README.md").write_text(MARKDOWN)
    (package / "LICENSE.txt").write_text("Everybody may use the mill at their own risk.\n")
    (package / "tests" / "test_mill.py").write_text('"""The tests are no documentation at all."""')
    (tmp_path / "mill-1.2.dist-info").mkdir()
    (tmp_path / "mill-1.2.dist-info" / "METADATA").write_text(
        "Name: mill\n\nThe description tells how to grind corn.\n"
    )
    (tmp_path / "single.py").write_text('"""One module is a package of its own."""')
    assert make_corpus.read_all(make_corpus.find_sources([str(tmp_path)]), 2) == [
        Document("mill", ["The description tells how to grind corn."]),
        Document("mill", MARKDOWN_PROSE),
        Document("mill", GOOGLE_PROSE),
        Document("mill", ["The stones of the mill are old."]),
        Document("single", ["One module is a package of its own."]),
    ]


@pytest.fixture(scope="module")
def documents():
    """A large package and 60 small ones, which repeat sentences of the large one."""
    shared = sentences(8, seed=1000)
    large = [Document("large", sentences(6, seed=2000 + seed)) for seed in range(60)]
    small = [
        Document(f"small{index:02}", found)
        for index in range(60)
        for found in (sentences(5, index), [*shared, *sentences(4, 100 + index)])
    ]
    return [Document("large", shared), *large, *small]


def test_the_same_twentieth_is_held_out_in_whole_packages(documents, tmp_path):
    corpus = make_corpus.select(documents)
    train, held_out = ({one.package for one in part} for part in (corpus.train, corpus.held_out))
    assert "large" in train
    assert not train & held_out
    assert {one.package for one in make_corpus.select(documents[::-1]).held_out} == held_out
    make_corpus.write_corpus(corpus, str(tmp_path))
    parts = [(tmp_path / f"{name}.txt").read_text().split("\n\n") for name in ("train", "held_out")]
    assert [len(part) for part in parts] == [len(corpus.train), len(corpus.held_out)]
    lines = [[line for block in part for line in block.splitlines()] for part in parts]
    found = [*lines[0], *lines[1]]
    assert len(found) == len(set(found))
    assert 0.03 < len(lines[1]) / len(found) < 0.08


def test_the_labels_of_the_task_have_equally_many_sentences_in_each_part():
    sizes = {"large": 60, "middle": 40, "other": 90, "small": 23}
    documents = [
        Document(package, sentences(size, seed=index))
        for index, (package, size) in enumerate(sizes.items())
    ]
    named = ["small", "large"]
    parts = make_corpus.collect_task(documents, named, dev_one_in=4)
    counts = [collections.Counter(label for _, label in part) for part in parts]
    assert counts == [{"large": 17, "small": 17}, {"large": 6, "small": 6}]
    texts = [sentence for part in parts for sentence, _ in part]
    assert len(set(texts)) == 46
    # The same sentences in each part, whatever the order of the documents.
    again = make_corpus.collect_task(documents[::-1], named, dev_one_in=4)
    assert list(map(sorted, again)) == list(map(sorted, parts))
    largest = make_corpus.collect_task(documents, dev_one_in=4)
    assert {label for _, label in largest[0]} == set(sizes)
    with pytest.raises(ValueError, match="tiny: expected packages with text to train on"):
        make_corpus.collect_task(documents, ["small", "tiny"])


def test_only_the_named_packages_are_read_besides_the_standard_library(tmp_path, monkeypatch):
    for name in ("mill", "pond"):
        (tmp_path / f"{name}.py").write_text('"""A module."""')
    monkeypatch.setattr(make_corpus.site, "getsitepackages", lambda: [str(tmp_path)])
    found = {package for package, _ in make_corpus.sources_of("packages", ["pond"])}
    assert {"pond", "argparse"} < found
    assert "mill" not in found
    assert "mill" in {package for package, _ in make_corpus.sources_of("packages")}
    with pytest.raises(ValueError, match="lake: expected packages that are installed here"):
        make_corpus.sources_of("packages", ["lake", "pond"])
