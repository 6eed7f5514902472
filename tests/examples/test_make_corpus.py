"""The corpus of the demo: sentences of documentation, some packages held out."""

from __future__ import annotations

import random

import make_corpus
import pytest
from make_corpus import Document

WORDS = [first + second for first in "bcdfghklmn" for second in ("ame", "ill", "ore", "ust")]
MODULE = '''"""The mill grinds corn all day long."""


class Mill:
    """The stones of the mill are old."""

    def grind(self):
        """The corn becomes flour by and by."""


def stop():
    "no docstring to keep"
'''


def sentences(count, seed):
    """Returns sentences that do not resemble one another."""
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=9)).capitalize() + "." for _ in range(count)]


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


@pytest.fixture(scope="module")
def corpus(documents):
    return make_corpus.select(documents)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The sources of site-packages with two packages."""
    root = tmp_path_factory.mktemp("site-packages")
    package = root / "mill"
    (package / "tests").mkdir(parents=True)
    (package / "__init__.py").write_text(MODULE)
    (package / "broken.py").write_text('"""A docstring before what cannot be parsed."""\n%%%\n')
    (package / "README.md").write_text("The readme tells what the mill is for.\n")
    (package / "LICENSE.txt").write_text("Everybody may use the mill at their own risk.\n")
    (package / "tests" / "test_mill.py").write_text('"""The tests are no documentation at all."""')
    metadata = root / "mill-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: mill\n\nThe description tells how to grind corn.\n")
    (metadata / "RECORD").write_text("mill/__init__.py,,\n")
    (root / "single.py").write_text('"""One module is a package of its own."""')
    return make_corpus.find_sources([str(root)])


def test_packages_and_their_descriptions_are_found(sources):
    assert [(package, path.rsplit("/", 1)[1]) for package, path in sources] == [
        ("mill", "METADATA"),
        ("mill", "README.md"),
        ("mill", "__init__.py"),
        ("mill", "broken.py"),
        ("single", "single.py"),
    ]


def test_processes_read_what_each_file_documents(sources):
    assert make_corpus.read_all(sources, 2) == [
        Document("mill", ["The description tells how to grind corn."]),
        Document("mill", ["The readme tells what the mill is for."]),
        Document("mill", ["The mill grinds corn all day long."]),
        Document("mill", ["The stones of the mill are old."]),
        Document("mill", ["The corn becomes flour by and by."]),
        Document("single", ["One module is a package of its own."]),
    ]


@pytest.mark.ci
def test_the_running_interpreter_has_its_packages_and_library():
    found = make_corpus.find_sources(make_corpus.source_folders(make_corpus.PACKAGES))
    assert {"numpy", "json"} <= {package for package, _ in found}
    found = make_corpus.find_sources(make_corpus.source_folders(make_corpus.STANDARD_LIBRARY))
    assert {package for package, _ in found} & {"numpy", "json"} == {"json"}


def test_a_twentieth_is_held_out_in_whole_packages(corpus):
    train, held_out = ({one.package for one in part} for part in (corpus.train, corpus.held_out))
    assert "large" in train
    assert not train & held_out
    train, held_out = (
        sum(len(one.sentences) for one in part) for part in (corpus.train, corpus.held_out)
    )
    assert 0.03 < held_out / (train + held_out) < 0.08


def test_the_same_packages_are_held_out_whatever_the_order_of_the_files(corpus, documents):
    again = make_corpus.select(documents[::-1])
    assert {one.package for one in again.held_out} == {one.package for one in corpus.held_out}


def test_repeated_sentences_and_short_documents_are_left_out(corpus, documents):
    parts = [corpus.train, corpus.held_out]
    found = [sentence for part in parts for one in part for sentence in one.sentences]
    assert len(found) == len(set(found))
    first = sentences(4, seed=5001)
    numbered = ["The mill has 12 stones.", "The mill has 7 stones!"]
    some = [
        Document("a", [*first, numbered[0]]),
        Document("a", sentences(3, seed=5003)),
        Document("b", [first[2].upper(), numbered[1], *sentences(4, seed=5004)]),
    ]
    corpus = make_corpus.select([*documents, *some])
    own = [one for one in (*corpus.train, *corpus.held_out) if one.package in "ab"]
    assert sorted(own) == [("a", [*first, numbered[0]]), ("b", sentences(4, seed=5004))]


def test_too_little_documentation_is_refused():
    with pytest.raises(ValueError, match="1 documents of 1 packages: expected enough to hold out"):
        make_corpus.select([Document("only", sentences(5, seed=1))])


def test_documents_are_written_with_one_blank_line_between_them(corpus, tmp_path, capsys):
    make_corpus.write_corpus(corpus, str(tmp_path))
    assert f"train.txt: {len(corpus.train)} documents" in capsys.readouterr().out
    for name, documents in (("train", corpus.train), ("held_out", corpus.held_out)):
        text = (tmp_path / f"{name}.txt").read_text()
        blocks = [block.splitlines() for block in text.removesuffix("\n").split("\n\n")]
        assert blocks == [document.sentences for document in documents]


def test_the_task_has_the_same_packages_in_both_parts_and_no_sentence_twice(tmp_path):
    documents = [
        Document(package, sentences(200 - number, seed=number))
        for number, package in enumerate(WORDS[: make_corpus.TASK_PACKAGES + 2])
    ]
    make_corpus.write_task(str(tmp_path), documents)
    parts = []
    for name in ("train.tsv", "dev.tsv"):
        header, *rows = (tmp_path / name).read_text().splitlines()
        assert header == "sentence\tlabel"
        parts.append([row.split("\t") for row in rows])
    train, dev = parts
    packages = {label for _, label in train}
    assert packages == {label for _, label in dev} == set(WORDS[: make_corpus.TASK_PACKAGES])
    found = [sentence for sentence, _ in train + dev]
    assert len(found) == len(set(found))
    assert 0.15 < len(dev) / len(found) < 0.25


def test_the_share_of_the_dev_set_can_be_chosen():
    documents = [Document(package, sentences(500, seed=7)) for package in WORDS[:6]]
    for one_in in (2, 20):
        train, dev = make_corpus.collect_task(documents, one_in)
        assert len(train) + len(dev) == 3000
        assert 0.7 < one_in * len(dev) / 3000 < 1.3
