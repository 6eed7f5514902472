"""The corpus of the demo: sentences of documentation, some modules held out."""

from __future__ import annotations

import itertools

import installed_documentation
import make_corpus
import pytest

pytestmark = pytest.mark.ci

DOCSTRING = """Opens the door of the old mill.

A wrapped sentence goes on
in the next line, e.g. Here it does. Is this one its own sentence?

- The first item of a list reads well.
- The second item of it does too.

    code = indented("and left out.")

>>> an_example("that is left out.")

Short one.
x = [(1, 2), (3, 4), (5, 6), (7, 8)] and so on.
"""


def test_running_text_becomes_sentences():
    assert make_corpus.sentences_of(DOCSTRING) == [
        "Opens the door of the old mill.",
        "A wrapped sentence goes on in the next line, e.g. Here it does.",
        "Is this one its own sentence?",
        "The first item of a list reads well.",
        "The second item of it does too.",
    ]


def test_an_empty_docstring_has_no_sentence():
    assert make_corpus.sentences_of("\n  \n\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "Too short.",
        "no end of a sentence is here",
        "a = b[c] + (d * {e}) != f().",
        "Ein Ding für euch.",
    ],
)
def test_what_is_no_english_prose_is_left_out(text):
    assert not make_corpus.is_sentence(text)


def test_the_modules_of_a_package_stay_together():
    for package in ("json", "email", "asyncio", "xml"):
        inside = {make_corpus.is_held_out(f"{package}.{part}") for part in ("", "a", "b.c")}
        assert inside == {make_corpus.is_held_out(package)}


@pytest.fixture(scope="module", name="_documents")
def read_documents_once():
    """The standard library is read once for the corpus and the task."""
    found = list(make_corpus._documents())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_corpus, "_documents", lambda: iter(found))
        yield


@pytest.fixture(scope="module")
def corpus(_documents, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    paths = make_corpus.write_corpus(str(folder))
    texts = []
    for path in paths:
        with open(path, encoding="utf-8") as stream:
            texts.append(stream.read())
    return texts


def test_documents_are_parted_by_one_blank_line(corpus):
    for text in corpus:
        documents = text.removesuffix("\n").split("\n\n")
        assert len(documents) > 10
        assert all(len(document.splitlines()) > 1 for document in documents)
        assert all(line == line.strip() != "" for doc in documents for line in doc.splitlines())


def test_no_sentence_occurs_twice_and_nothing_held_out_was_seen(corpus):
    lines = [line for text in corpus for line in text.splitlines() if line]
    assert len(lines) == len(set(lines))


def test_a_small_part_is_held_out(corpus):
    train, held_out = (len(text) for text in corpus)
    assert 0.02 < held_out / (train + held_out) < 0.25
    assert train > 500_000


@pytest.mark.usefixtures("_documents")
def test_the_task_has_the_same_packages_in_both_parts_and_no_sentence_twice(tmp_path):
    paths = make_corpus.write_task(str(tmp_path / "task"))
    parts = []
    for path in paths:
        with open(path, encoding="utf-8") as stream:
            header, *rows = [line.rstrip("\n").split("\t") for line in stream]
        assert header == ["sentence", "label"]
        assert all(len(row) == 2 for row in rows)
        parts.append(rows)
    train, dev = parts
    packages = {label for _, label in train}
    assert packages == {label for _, label in dev}
    assert len(packages) == make_corpus.TASK_PACKAGES
    assert not any(make_corpus.is_held_out(package) for package in packages)
    sentences = [sentence for sentence, _ in train + dev]
    assert len(sentences) == len(set(sentences))
    assert 0.15 < len(dev) / len(sentences) < 0.25


def test_the_share_of_the_dev_set_can_be_chosen():
    documents = [
        (package, [f"Sentence {number} is about {package}." for number in range(500)])
        for package in WORDS[: make_corpus.TASK_PACKAGES]
    ]
    for one_in in (2, 20):
        train, dev = make_corpus.collect_task(documents, one_in)
        assert len(train) + len(dev) == 3000
        assert 0.8 < one_in * len(dev) / 3000 < 1.2


@pytest.fixture
def _two_packages(tmp_path, monkeypatch):
    """Two packages are installed on this machine, of which one is held out, and a manual page."""
    for name, verb, count in (("mill", "grinds", 200), ("door", "opens", 4)):
        text = " ".join(f"The {name} {verb} {word} slowly." for word in WORDS[:count])
        (tmp_path / "packages").mkdir(exist_ok=True)
        (tmp_path / "packages" / f"{name}.py").write_text(f'"""{text}"""')
    (tmp_path / "man" / "man1").mkdir(parents=True)
    page = "\n".join(f"This page {word} describes a mill." for word in WORDS[:200])
    (tmp_path / "man" / "man1" / "mill.1").write_text(page)
    find = installed_documentation.find_sources
    folders = [str(tmp_path / "packages")]
    monkeypatch.setattr(
        installed_documentation, "find_sources", lambda manual_folder: find(folders, manual_folder)
    )
    monkeypatch.setattr(installed_documentation, "MANUAL_PAGES", str(tmp_path / "man"))


WORDS = ["".join(letters) for letters in itertools.product("bdfgkl", "aeiou", "mnprst", "aei")]


@pytest.mark.usefixtures("_two_packages")
@pytest.mark.parametrize("manual_pages", [True, False])
def test_the_corpus_of_packages_has_manual_pages_if_wanted(tmp_path, capsys, manual_pages):
    folder = tmp_path / "corpus"
    train = make_corpus.write_package_corpus(str(folder), manual_pages)
    packages = {document.package for document in train}
    assert packages == ({"mill", "man:mill"} if manual_pages else {"mill"})
    assert "door opens" in (folder / "held_out.txt").read_text()
    assert (folder / "report.md").is_file()
    assert "no manual pages" not in capsys.readouterr().out


@pytest.mark.usefixtures("_two_packages")
def test_a_machine_without_manual_pages_is_told_so(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(installed_documentation, "MANUAL_PAGES", str(tmp_path / "none"))
    make_corpus.write_package_corpus(str(tmp_path / "corpus"))
    assert "none: no manual pages here; the corpus is made of packages only" in (
        capsys.readouterr().out
    )


@pytest.mark.usefixtures("_two_packages")
def test_a_corpus_of_manual_pages_has_no_packages(tmp_path):
    with pytest.raises(ValueError, match="of 1 packages: expected enough of them"):
        make_corpus.write_package_corpus(str(tmp_path / "corpus"), packages=False)
