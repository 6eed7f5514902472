"""Creates an English corpus from documentation that is on this machine, without a download.

    python examples/make_corpus.py --corpus_dir=work/corpus
    python examples/make_corpus.py --source=packages --corpus_dir=work/corpus --task_dir=work/task

The first command reads the docstrings of Python's standard library, the second one the docstrings
and text files of all installed packages as well, or of those that --packages names. Code, tables
and signatures are left out, and so are repeated sentences.

Writes train.txt and held_out.txt in the format of create_pretraining_data.py, with one sentence per
line and a blank line between documents, and prints their sizes. Whole packages are held out, 5 % of
the text and always the same ones for the same installation. No held-out sentence is in the training
part.

With --task_dir, also writes a classification task made from the training part: which package does
this sentence document? train.tsv and dev.tsv have one sentence and its label per line. The classes
are --task_packages, or the packages with the most sentences, and all of them have equally many
sentences; a fifth of them is in dev.tsv, or one in --dev_one_in.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import inspect
import itertools
import os
import re
import site
import sysconfig
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import prose
from absl import app, flags

from albert_tf import files

FLAGS = flags.FLAGS

STANDARD_LIBRARY = "standard_library"
PACKAGES = "packages"
MIN_SENTENCES = 4  # a shorter document yields hardly a pair of segments
HELD_OUT_SHARE = 0.05
MAX_HELD_OUT_PACKAGE = 0.02  # share of the text; larger packages are for training
NUM_TASK_PACKAGES = 6
DEV_ONE_IN = 5

# Names of folders with tests, examples of input, other people's packages, and data.
_SKIPPED_FOLDERS = {
    *("__pycache__", "_vendor", "data", "licenses", "site-packages", "test", "testing", "tests"),
    *("ensurepip", "encodings", "idlelib", "lib2to3", "pydoc_data", "third_party", "turtledemo"),
}
_NO_PROSE = re.compile(r"licen[cs]e|copying|notice|authors|requirements|third.?party|changes", re.I)
_TEXT_FILES = (".rst", ".md", ".txt")
_MAX_TEXT_BYTES = 1 << 20  # a larger text file is data
_FILES_PER_CALL = 40  # that a process reads at a time
_WORD = re.compile(r"[a-z]+|\d+")
_QUOTES = re.compile("\"\"\"|'''")


class Document(NamedTuple):
    """Sentences that follow one another, and the package that they document."""

    package: str
    sentences: list[str]


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Documents to train on, and held-out ones of other packages without their sentences."""

    train: list[Document]
    held_out: list[Document]


def sources_of(source: str, packages: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Returns package and path of each file with documentation, sorted.

    Args:
        source: a value of --source.
        packages: the installed packages to read; empty for all.

    Raises:
        ValueError: one of the packages is not installed, or without documentation.
    """
    found = find_sources(site.getsitepackages()) if source == PACKAGES else []
    missing = set(packages) - {package for package, _ in found}
    if missing:
        raise ValueError(f"{', '.join(sorted(missing))}: expected packages that are installed here")
    chosen = [one for one in found if not packages or one[0] in packages]
    return sorted([*chosen, *find_sources([sysconfig.get_paths()["stdlib"]])])


def find_sources(folders: Sequence[str]) -> list[tuple[str, str]]:
    """Returns package and path of each file with documentation in some folders, sorted."""
    return sorted(source for folder in folders for source in _package_sources(folder))


def _package_sources(folder: str) -> Iterator[tuple[str, str]]:
    """Yields package and path of the files of the packages in a folder."""
    for parent, subfolders, names in os.walk(folder):
        subfolders[:] = [name for name in subfolders if name not in _SKIPPED_FOLDERS]
        for name in names:
            path = os.path.join(parent, name)
            package = os.path.relpath(path, folder).split(os.sep)[0].removesuffix(".py")
            # `numpy-2.4.6.dist-info` has the description of numpy.
            package = re.sub(r"-[^-]*\.dist-info$", "", package)
            is_text = name == "METADATA" or name.endswith(_TEXT_FILES)
            is_text = is_text and not _NO_PROSE.search(name)
            if name.endswith(".py") or (is_text and os.path.getsize(path) <= _MAX_TEXT_BYTES):
                yield package, path


def read_all(sources: Sequence[tuple[str, str]], num_workers: int | None = None) -> list[Document]:
    """Reads the sources with several processes; the result does not depend on their number."""
    with concurrent.futures.ProcessPoolExecutor(num_workers) as pool:
        documents = pool.map(read_source, sources, chunksize=_FILES_PER_CALL)
        return list(itertools.chain.from_iterable(documents))


def read_source(source: tuple[str, str]) -> list[Document]:
    """Returns the documents of a file; none, if it cannot be parsed."""
    package, path = source
    documents = [Document(package, prose.read_prose(text)) for text in _texts(path)]
    return [document for document in documents if document.sentences]


def _texts(path: str) -> Iterator[str]:
    """Yields the texts of a file: docstrings, a description of a package, or the whole text."""
    with open(path, "rb") as stream:
        text = stream.read().decode("utf-8", errors="replace")
    if path.endswith(".py"):
        yield from _docstrings(text)
        return
    is_metadata = os.path.basename(path) == "METADATA"
    yield text.partition("\n\n")[2] if is_metadata else text  # the description is after the fields


def _docstrings(code: str) -> Iterator[str]:
    """Yields the triple-quoted strings that begin a line of a module, which are its docstrings."""
    position = 0
    while quotes := _QUOTES.search(code, position):
        begin, end = quotes.end(), code.find(quotes[0], quotes.end())
        if end < 0:  # a template, or a file with deliberate errors
            return
        before = code[code.rfind("\n", 0, quotes.start()) + 1 : quotes.start()]
        if before.strip() in ("", "r"):
            yield inspect.cleandoc(code[begin:end])
        position = end + len(quotes[0])


def select(documents: Iterable[Document]) -> Corpus:
    """Returns the corpus without short documents and repeated sentences, divided by package.

    Raises:
        ValueError: nothing is left, or too few packages to hold one out.
    """
    documents = _without_short(documents)
    packages = choose_held_out(documents)
    # Training first, so that repeated sentences are removed from the held-out part.
    documents.sort(key=lambda document: document.package in packages)
    documents = _without_short(_without_repeated(documents))
    train = [document for document in documents if document.package not in packages]
    held_out = [document for document in documents if document.package in packages]
    if not train or not held_out:
        raise ValueError(
            f"{len(documents)} documents of {len({one.package for one in documents})} packages: "
            f"expected enough to hold out packages of at most {MAX_HELD_OUT_PACKAGE:.0%} of the "
            "text each. Use a Python with the source of its library."
        )
    return Corpus(train, held_out)


def choose_held_out(documents: Sequence[Document]) -> set[str]:
    """Returns the packages to hold out: HELD_OUT_SHARE of the text, always the same ones."""
    sizes: collections.Counter[str] = collections.Counter()
    for document in documents:
        sizes[document.package] += sum(map(len, document.sentences))
    chosen: set[str] = set()
    size = 0
    for package in sorted(sizes, key=lambda name: (zlib.crc32(name.encode()), name)):
        if size >= HELD_OUT_SHARE * sizes.total():
            break
        if sizes[package] <= MAX_HELD_OUT_PACKAGE * sizes.total():
            chosen.add(package)
            size += sizes[package]
    return chosen


def _without_short(documents: Iterable[Document]) -> list[Document]:
    """Returns the documents of at least MIN_SENTENCES sentences."""
    return [document for document in documents if len(document.sentences) >= MIN_SENTENCES]


def _without_repeated(documents: Iterable[Document]) -> Iterator[Document]:
    """Yields the documents without sentences that differ from an earlier one in numbers at most."""
    seen: set[str] = set()
    for document in documents:
        sentences = []
        for sentence in document.sentences:
            words = _WORD.findall(sentence.lower())
            key = " ".join("0" if word.isdigit() else word for word in words)
            if key not in seen:
                seen.add(key)
                sentences.append(sentence)
        yield document._replace(sentences=sentences)


def write_corpus(corpus: Corpus, corpus_dir: str) -> None:
    """Writes train.txt and held_out.txt."""
    files.ensure_directory(corpus_dir, "--corpus_dir")
    for name, documents in (("train", corpus.train), ("held_out", corpus.held_out)):
        path = os.path.join(corpus_dir, f"{name}.txt")
        with files.write_atomically(path) as stream:
            stream.write("\n\n".join("\n".join(one.sentences) for one in documents) + "\n")
        sentences = [sentence for document in documents for sentence in document.sentences]
        words = sum(len(sentence.split()) for sentence in sentences)
        print(f"{path}: {len(documents)} documents, {len(sentences)} sentences, {words} words")


def collect_task(
    documents: Iterable[Document], packages: Sequence[str] = (), dev_one_in: int = DEV_ONE_IN
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Returns (sentence, package that it documents) pairs, for training and for the dev set.

    A label that is rarer than others is hardly ever predicted by a model that is trained for
    minutes, so each package has as many sentences as the smallest one.

    Args:
        documents: those of the training part.
        packages: the labels; empty for the NUM_TASK_PACKAGES with the most sentences.
        dev_one_in: one in so many sentences of each package is for the dev set.

    Raises:
        ValueError: there is no sentence of one of the packages.
    """
    found: dict[str, list[str]] = {}
    for package, sentences in documents:
        found.setdefault(package, []).extend(sentences)
    if not packages:
        packages = sorted(found, key=lambda name: (-len(found[name]), name))[:NUM_TASK_PACKAGES]
    missing = set(packages) - set(found)
    if missing:
        raise ValueError(f"{', '.join(sorted(missing))}: expected packages with text to train on")
    size = min(len(found[package]) for package in packages)
    parts: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
    for package in sorted(packages):
        chosen = sorted(found[package], key=lambda sentence: zlib.crc32(sentence.encode()))[:size]
        for index, sentence in enumerate(chosen):
            parts[index % dev_one_in == 0].append((sentence, package))
    return parts


def write_task(
    task_dir: str,
    documents: Iterable[Document],
    packages: Sequence[str] = (),
    dev_one_in: int = DEV_ONE_IN,
) -> None:
    """Writes train.tsv and dev.tsv; for the arguments, see `collect_task`."""
    parts = collect_task(documents, packages, dev_one_in)
    files.ensure_directory(task_dir, "--task_dir")
    for name, rows in zip(("train", "dev"), parts, strict=True):
        path = os.path.join(task_dir, f"{name}.tsv")
        with files.write_atomically(path) as stream:
            stream.write("sentence\tlabel\n")
            stream.writelines(f"{sentence}\t{label}\n" for sentence, label in rows)
        labels = sorted({label for _, label in rows})
        print(f"{path}: {len(rows)} sentences of {', '.join(labels)}")


def main(argv: list[str]) -> None:
    """Writes the corpus and, with `--task_dir`, the task."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {' '.join(argv[1:])}")
    corpus = select(read_all(sources_of(FLAGS.source, FLAGS.packages)))
    write_corpus(corpus, FLAGS.corpus_dir)
    if FLAGS.task_dir:
        write_task(FLAGS.task_dir, corpus.train, FLAGS.task_packages, FLAGS.dev_one_in)


if __name__ == "__main__":
    flags.DEFINE_enum(
        "source", STANDARD_LIBRARY, (STANDARD_LIBRARY, PACKAGES), "Documentation to read."
    )
    flags.DEFINE_list(
        "packages", [], "With --source=packages: installed packages to read; default: all."
    )
    flags.DEFINE_string("corpus_dir", "demo/corpus", "Folder for train.txt and held_out.txt.")
    flags.DEFINE_string("task_dir", None, "Folder for a classification task; default: none.")
    flags.DEFINE_list(
        "task_packages", [], "The labels of the task; default: the packages with the most text."
    )
    flags.DEFINE_integer(
        "dev_one_in", DEV_ONE_IN, "One in so many sentences is for dev.tsv.", lower_bound=2
    )
    app.run(main)
