"""Creates an English corpus from documentation that is on this machine, without a download.

    python examples/make_corpus.py --corpus_dir=demo/corpus --task_dir=demo/task
    python examples/make_corpus.py --source=packages --corpus_dir=work/corpus

The first command reads the docstrings of Python's standard library, which every machine has
(1.5 MB). With --source=packages, the text consists of the docstrings and text files of all
installed packages and of the system's manual pages (without these: --nomanual_pages). How much
that is depends on the machine: 11 MB of packages after `make setup`, and here 12 MB of 20,000
pages. --source=manual_pages reads the manual pages only. Code, tables and signatures are removed,
and so are repeated sentences; report.md says what the corpus consists of, and what was left out.

Writes train.txt and held_out.txt in the format of create_pretraining_data.py, with one sentence per
line and a blank line between documents, and prints their sizes. Whole packages are held out, always
the same ones for the same installation: about one in ten of the standard library, or 5 % of the
text of all packages. No held-out sentence is in the training part.

With --task_dir, also writes a classification task made from the training part: which package does
this sentence document? train.tsv and dev.tsv have one sentence and its label per line. The classes
are the packages with the most sentences; a fifth of the sentences of each is in dev.tsv, or one in
--dev_one_in.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import sysconfig
import zlib
from collections.abc import Iterable, Iterator, Sequence

import corpus_report
import installed_documentation
import package_corpus
from absl import app, flags

from albert_tf import files

FLAGS = flags.FLAGS

STANDARD_LIBRARY = "standard_library"
PACKAGES = "packages"
MANUAL_PAGES = "manual_pages"

# Tests, an editor, vendored wheels, tables of character sets, installed packages.
SKIPPED_PACKAGES = {
    "__phello__",
    "ensurepip",
    "encodings",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
    "turtledemo",
}
HELD_OUT_ONE_IN = 10
TASK_PACKAGES = 6
DEV_ONE_IN = 5
MIN_WORDS = 4
MIN_LETTER_SHARE = 0.7

# A sentence ends at . ! or ? before a space and a character that can begin a sentence, but not
# after common abbreviations.
SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bvs\.)\s+(?=[\"'(A-Z])")
BULLET = re.compile(r"^\s*(?:[-*+o•]|\(?\d+[.)])\s+")


def _module_files() -> list[tuple[str, str]]:
    """Returns name and path of each module of the standard library with source code, sorted."""
    root = sysconfig.get_paths()["stdlib"]
    paths = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in SKIPPED_PACKAGES]
        for name in names:
            path = os.path.join(folder, name)
            module = os.path.relpath(path, root).removesuffix(".py").replace(os.sep, ".")
            top = module.split(".")[0]
            if name.endswith(".py") and top in sys.stdlib_module_names - SKIPPED_PACKAGES:
                paths.append((module.removesuffix(".__init__"), path))
    return sorted(paths)


def _docstrings(path: str) -> Iterator[str]:
    """Yields the docstrings of a source file, from top to bottom."""
    try:
        with open(path, "rb") as stream:
            tree = ast.parse(stream.read())
    except (SyntaxError, ValueError):  # a few files of the library contain deliberate errors
        return
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, documented)]
    for node in sorted(nodes, key=lambda node: getattr(node, "lineno", 0)):
        text = ast.get_docstring(node)
        if text:
            yield text


def _paragraphs(docstring: str) -> Iterator[str]:
    """Yields the paragraphs of prose of a docstring, without examples and code."""
    for block in re.split(r"\n\s*\n", docstring.expandtabs()):
        lines = block.splitlines()
        indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        # Indented blocks are code or lists of arguments, not prose.
        if indent or any(line.lstrip().startswith((">>>", "...", "$")) for line in lines):
            continue
        item: list[str] = []
        for line in lines:
            if BULLET.match(line) and item:
                yield " ".join(item)
                item = []
            item.append(BULLET.sub("", line).strip())
        yield " ".join(item)


def is_sentence(text: str) -> bool:
    """Returns whether `text` looks like English prose rather than code, a table or a heading."""
    letters = sum(character.isalpha() or character.isspace() for character in text)
    return (
        len(text.split()) >= MIN_WORDS
        and letters >= MIN_LETTER_SHARE * len(text)
        and text[-1] in ".!?:"
        and text.isascii()
    )


def sentences_of(docstring: str) -> list[str]:
    """Returns the sentences of a docstring."""
    pieces: list[str] = []
    for paragraph in _paragraphs(docstring):
        text = re.sub(r"\s+", " ", paragraph).strip().replace("``", "`")
        pieces.extend(piece.strip() for piece in SENTENCE_END.split(text))
    return [piece for piece in pieces if is_sentence(piece)]


def is_held_out(module: str) -> bool:
    """Returns whether a module is held out; either all modules of a package are, or none."""
    return zlib.crc32(module.split(".")[0].encode()) % HELD_OUT_ONE_IN == 0


def _documents() -> Iterator[tuple[str, list[str]]]:
    """Yields name and sentences of each module, without duplicate sentences."""
    seen: set[str] = set()
    # Training first, so that duplicates are removed from the held-out part.
    for module, path in sorted(_module_files(), key=lambda item: (is_held_out(item[0]), item)):
        document: list[str] = []
        for docstring in _docstrings(path):
            fresh = [text for text in sentences_of(docstring) if text not in seen]
            seen.update(fresh)
            document.extend(dict.fromkeys(fresh))
        yield module, document


def collect_documents() -> tuple[list[list[str]], list[list[str]]]:
    """Returns the sentences of every module without duplicates, for training and held out.

    Raises:
        ValueError: this Python was installed without the source of its library.
    """
    parts: tuple[list[list[str]], list[list[str]]] = ([], [])
    for module, document in _documents():
        if len(document) > 1:
            parts[is_held_out(module)].append(document)
    if not all(parts):
        raise ValueError(
            f"{sysconfig.get_paths()['stdlib']} contains no source files with documentation. "
            "Use a Python that was installed with the source of its library."
        )
    return parts


def write_corpus(corpus_dir: str) -> tuple[str, str]:
    """Writes the corpus of the standard library and returns the paths of its two files."""
    return _write_parts(corpus_dir, collect_documents(), "modules")


def write_package_corpus(
    corpus_dir: str, manual_pages: bool = True, packages: bool = True
) -> list[package_corpus.Document]:
    """Writes the corpus of all packages and its report, and returns the training documents.

    Args:
        corpus_dir: folder to write to.
        manual_pages: read the system's manual pages.
        packages: read the documentation of the installed packages.

    Raises:
        ValueError: there is too little documentation.
    """
    files.make_directory(corpus_dir, "--corpus_dir")
    pages = installed_documentation.MANUAL_PAGES if manual_pages else ""
    sources = installed_documentation.find_sources(manual_folder=pages)
    if not packages:
        kind = installed_documentation.MANUAL_PAGE
        sources = [source for source in sources if source.kind == kind]
    kinds = {source.kind for source in sources}
    if packages and manual_pages and installed_documentation.MANUAL_PAGE not in kinds:
        print(f"{pages}: no manual pages here; the corpus is made of packages only")
    corpus = package_corpus.select(installed_documentation.read_all(sources))
    parts = [[document.sentences for document in part] for part in (corpus.train, corpus.held_out)]
    _write_parts(corpus_dir, parts, "documents")
    print(f"{corpus_report.write(corpus, corpus_dir)}: what it is made of, and what was left out")
    return corpus.train


def _write_parts(
    corpus_dir: str, parts: Sequence[Sequence[Sequence[str]]], name: str
) -> tuple[str, str]:
    """Writes train.txt and held_out.txt and returns their paths."""
    files.make_directory(corpus_dir, "--corpus_dir")
    paths = (os.path.join(corpus_dir, "train.txt"), os.path.join(corpus_dir, "held_out.txt"))
    for path, documents in zip(paths, parts, strict=True):
        with files.write_atomically(path) as stream:
            stream.write("\n\n".join("\n".join(document) for document in documents) + "\n")
        sentences = [sentence for document in documents for sentence in document]
        words = sum(len(sentence.split()) for sentence in sentences)
        print(f"{path}: {len(documents)} {name}, {len(sentences)} sentences, {words} words")
    return paths


def collect_task(
    documents: Iterable[tuple[str, Sequence[str]]], dev_one_in: int = DEV_ONE_IN
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Returns (sentence, package that it documents) pairs, for training and for the dev set.

    Args:
        documents: package and sentences of each document of the training part.
        dev_one_in: one in so many sentences is for the dev set.
    """
    packages: dict[str, list[str]] = {}
    for package, sentences in documents:
        packages.setdefault(package, []).extend(sentences)
    largest = sorted(packages, key=lambda name: (-len(packages[name]), name))[:TASK_PACKAGES]
    parts: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
    for package in sorted(largest):
        for sentence in packages[package]:
            is_dev = zlib.crc32(sentence.encode()) % dev_one_in == 0
            parts[is_dev].append((sentence, package))
    return parts


def _library_task_documents() -> Iterator[tuple[str, list[str]]]:
    """Yields package and sentences of each module of the standard library to train on."""
    for module, document in _documents():
        if not is_held_out(module):
            yield module.split(".")[0].lstrip("_"), document


def write_task(
    task_dir: str,
    documents: Iterable[tuple[str, Sequence[str]]] | None = None,
    dev_one_in: int = DEV_ONE_IN,
) -> tuple[str, str]:
    """Writes train.tsv and dev.tsv and returns their paths.

    Args:
        task_dir: folder to write to.
        documents: package and sentences of each document; by default, the standard library's.
        dev_one_in: as in `collect_task`.
    """
    files.make_directory(task_dir, "--task_dir")
    paths = (os.path.join(task_dir, "train.tsv"), os.path.join(task_dir, "dev.tsv"))
    rows_of_parts = collect_task(documents or _library_task_documents(), dev_one_in)
    for path, rows in zip(paths, rows_of_parts, strict=True):
        with files.write_atomically(path) as stream:
            stream.write("sentence\tlabel\n")
            stream.writelines(f"{sentence}\t{label}\n" for sentence, label in rows)
        packages = sorted({label for _, label in rows})
        print(f"{path}: {len(rows)} sentences of {', '.join(packages)}")
    return paths


def main(argv: list[str]) -> None:
    """Writes the corpus and, with `--task_dir`, the task."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {' '.join(argv[1:])}")
    documents = None
    if FLAGS.source == STANDARD_LIBRARY:
        write_corpus(FLAGS.corpus_dir)
    else:
        packages = FLAGS.source == PACKAGES
        pages = FLAGS.manual_pages or not packages
        train = write_package_corpus(FLAGS.corpus_dir, pages, packages)
        documents = [(document.package, document.sentences) for document in train]
    if FLAGS.task_dir:
        write_task(FLAGS.task_dir, documents, FLAGS.dev_one_in)


if __name__ == "__main__":
    flags.DEFINE_enum(
        "source",
        STANDARD_LIBRARY,
        (STANDARD_LIBRARY, PACKAGES, MANUAL_PAGES),
        "Documentation to read.",
    )
    flags.DEFINE_bool("manual_pages", True, "With --source=packages, read manual pages as well.")
    flags.DEFINE_string("corpus_dir", "demo/corpus", "Folder for train.txt and held_out.txt.")
    flags.DEFINE_string("task_dir", None, "Folder for a classification task; default: none.")
    flags.DEFINE_integer(
        "dev_one_in", DEV_ONE_IN, "One in so many sentences is for dev.tsv.", lower_bound=2
    )
    app.run(main)
