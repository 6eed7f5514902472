"""Finds and reads the documentation that is installed on this machine.

That is: the docstrings and text files of the Python packages beside this project, the docstrings of
Python's standard library, and the manual pages of the system. Which packages and pages there are
differs from machine to machine.
"""

from __future__ import annotations

import ast
import concurrent.futures
import dataclasses
import gc
import gzip
import os
import re
import site
import sysconfig
from collections.abc import Iterator, Sequence

import manual_pages
import prose

DOCSTRINGS = "Python modules"
TEXT = "text files"
MANUAL_PAGE = "manual pages"
MANUAL_PAGES = "/usr/share/man"
# Names of folders with tests, examples of input, other people's packages, and data.
_SKIPPED_FOLDERS = {
    *("__pycache__", "_vendor", "data", "licenses", "site-packages", "test", "testing", "tests"),
    *("ensurepip", "encodings", "idlelib", "lib2to3", "pydoc_data", "third_party", "turtledemo"),
}
_NO_PROSE = re.compile(r"licen[cs]e|copying|notice|authors|requirements|third.?party|changes", re.I)
_TEXT_FILES = (".rst", ".md", ".txt")
_MAX_TEXT_BYTES = 1 << 20  # a larger text file is data
_FILES_PER_CALL = 40  # that a process reads at a time


@dataclasses.dataclass(frozen=True, order=True)
class Source:
    """A file with documentation.

    Attributes:
        package: what it documents: the name of a package, or `man:` and the first word of a page's
            name. Sources of a package stay together when the corpus is split.
        path: the file.
        kind: DOCSTRINGS, TEXT or MANUAL_PAGE.
    """

    package: str
    path: str
    kind: str


@dataclasses.dataclass(frozen=True)
class Reading:
    """What was read from a source.

    Attributes:
        source: the file.
        documents: the sentences of each document: a docstring, a text file or a manual page.
        dropped: (reason, text) of each part left out.
    """

    source: Source
    documents: list[list[str]]
    dropped: list[tuple[str, str]]


def find_sources(folders: Sequence[str] = (), manual_folder: str = MANUAL_PAGES) -> list[Source]:
    """Returns all files with documentation, sorted.

    Args:
        folders: folders with packages; by default, those of the running interpreter and its
            standard library.
        manual_folder: folder with man1, man2 and so on; may be absent, and empty for none.
    """
    folders = folders or [*site.getsitepackages(), sysconfig.get_paths()["stdlib"]]
    sources = {source for folder in folders for source in _package_sources(folder)}
    return sorted(sources.union(_manual_sources(manual_folder)))


def _package_sources(folder: str) -> Iterator[Source]:
    """Yields the files of the packages in a folder."""
    for parent, subfolders, names in os.walk(folder):
        subfolders[:] = [name for name in subfolders if name not in _SKIPPED_FOLDERS]
        for name in names:
            path = os.path.join(parent, name)
            package = os.path.relpath(path, folder).split(os.sep)[0].removesuffix(".py")
            # `numpy-2.4.6.dist-info` has the description of numpy.
            package = re.sub(r"-[^-]*\.dist-info$", "", package)
            if name.endswith(".py"):
                yield Source(package, path, DOCSTRINGS)
            elif _is_text(name) and os.path.getsize(path) <= _MAX_TEXT_BYTES:
                yield Source(package, path, TEXT)


def _is_text(name: str) -> bool:
    """Returns whether a file may contain prose about a package, by its name."""
    is_text = name == "METADATA" or name.endswith(_TEXT_FILES)
    return is_text and not _NO_PROSE.search(name)


def _manual_sources(folder: str) -> Iterator[Source]:
    """Yields the manual pages in a folder, without the links among them."""
    for section in range(1, 9):
        section_folder = os.path.join(folder, f"man{section}")
        has_pages = bool(folder) and os.path.isdir(section_folder)
        names = os.listdir(section_folder) if has_pages else []
        for name in names:
            path = os.path.join(section_folder, name)
            if not os.path.islink(path):
                program = re.split(r"[-_.:]", name)[0] or name
                yield Source(f"man:{program}", path, MANUAL_PAGE)


def read_all(sources: Sequence[Source], num_workers: int | None = None) -> list[Reading]:
    """Reads the sources with several processes; the result does not depend on their number."""
    # Syntax trees are many small objects, which the garbage collector would visit again and again.
    with concurrent.futures.ProcessPoolExecutor(num_workers, initializer=gc.disable) as pool:
        return list(pool.map(read_source, sources, chunksize=_FILES_PER_CALL))


def read_source(source: Source) -> Reading:
    """Returns the prose of a source; nothing, if it cannot be parsed."""
    documents = []
    dropped = []
    for text in _texts(source):
        sentences, left_out = prose.read_prose(text)
        documents.append(sentences)
        dropped.extend(left_out)
    return Reading(source, [document for document in documents if document], dropped)


def _texts(source: Source) -> Iterator[str]:
    """Yields the texts of a source."""
    with open(source.path, "rb") as stream:
        content = stream.read()
    if source.kind == DOCSTRINGS:
        yield from _docstrings(content)
        return
    if source.path.endswith(".gz"):
        content = gzip.decompress(content)
    text = content.decode("utf-8", errors="replace")
    if source.kind == MANUAL_PAGE:
        yield manual_pages.read_manual_page(text)
    elif os.path.basename(source.path) == "METADATA":
        yield text.partition("\n\n")[2]  # the description, after the fields
    else:
        yield text


def _docstrings(content: bytes) -> Iterator[str]:
    """Yields the docstrings of a module, from top to bottom."""
    if b'"""' not in content and b"'''" not in content:
        return
    try:
        nodes: list[ast.AST] = [ast.parse(content)]
    except (SyntaxError, ValueError):  # templates, and files with deliberate errors
        return
    while nodes:
        node = nodes.pop()
        text = ast.get_docstring(node)  # type: ignore[arg-type]
        if text:
            yield text
        documented = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        inner = [child for child in node.body if isinstance(child, documented)]  # type: ignore[attr-defined]
        nodes.extend(reversed(inner))
