"""Selects from the installed documentation what the corpus consists of, and divides it.

Short documents, sentences that occurred before and sentences that nearly repeat an earlier one are
left out. Whole packages are held out, so that what the model is evaluated on is about things that
it has not read about.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import zlib
from collections.abc import Iterable, Sequence

import duplicates
import installed_documentation

# A document of fewer sentences yields hardly a pair of segments.
MIN_SENTENCES = 4
HELD_OUT_SHARE = 0.05
MAX_HELD_OUT_PACKAGE = 0.02  # share of the text; larger packages are for training
EXAMPLES = 5  # of what was dropped, for each reason

SHORT = f"documents of fewer than {MIN_SENTENCES} sentences"
REPEATED = "sentences that occurred before"
NEAR_REPEATED = "sentences that nearly repeat an earlier one"


@dataclasses.dataclass(frozen=True)
class Document:
    """Sentences that follow one another.

    Attributes:
        package: the package that they document; see `installed_documentation.Source`.
        kind: kind of the file that they are from.
        sentences: at least one.
    """

    package: str
    kind: str
    sentences: list[str]

    @property
    def size(self) -> int:
        """Number of bytes, one after each sentence included."""
        return sum(len(sentence) + 1 for sentence in self.sentences)


class Dropped:
    """Counts what is left out and keeps a few examples, whatever the order of the calls."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self._examples: dict[str, list[tuple[int, str]]] = {}

    def add(self, reason: str, text: str) -> None:
        """Counts a part left out; the examples are those with the largest checksums."""
        self.counts[reason] += 1
        heap = self._examples.setdefault(reason, [])
        entry = (zlib.crc32(text.encode()), text)
        if entry in heap:
            return
        if len(heap) < EXAMPLES:
            heapq.heappush(heap, entry)
        elif entry > heap[0]:
            heapq.heapreplace(heap, entry)

    def examples(self, reason: str) -> list[str]:
        """Returns the examples for a reason, in a fixed order."""
        return [text for _, text in sorted(self._examples.get(reason, []))]


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The corpus.

    Attributes:
        train: documents to train on.
        held_out: documents of other packages, without sentences of the training part.
        dropped: what was left out.
        sources: number of files read, by their kind.
    """

    train: list[Document]
    held_out: list[Document]
    dropped: Dropped
    sources: dict[str, int]


def select(readings: Iterable[installed_documentation.Reading]) -> Corpus:
    """Returns the corpus made of what was read.

    Raises:
        ValueError: nothing is left, or too few packages to hold one out.
    """
    dropped = Dropped()
    sources: collections.Counter[str] = collections.Counter()
    documents: list[Document] = []
    for reading in readings:
        sources[reading.source.kind] += 1
        for reason, text in reading.dropped:
            dropped.add(reason, text)
        for sentences in reading.documents:
            documents.append(Document(reading.source.package, reading.source.kind, sentences))
    documents = _without_short(documents, dropped)
    held_out_packages = choose_held_out(documents)
    # Training first, so that repeated sentences are removed from the held-out part.
    documents.sort(key=lambda document: document.package in held_out_packages)
    documents = _without_short(_without_repeated(documents, dropped), dropped)
    held_out = [one for one in documents if one.package in held_out_packages]
    train = [one for one in documents if one.package not in held_out_packages]
    if not train or not held_out:
        packages = len({document.package for document in documents})
        raise ValueError(
            f"{len(documents)} documents of {packages} packages: expected enough of them to hold "
            f"out packages of at most {MAX_HELD_OUT_PACKAGE:.0%} of the text each. Install the "
            "package with all extras (make setup), or use --source=standard_library."
        )
    return Corpus(train, held_out, dropped, dict(sources))


def choose_held_out(documents: Sequence[Document]) -> set[str]:
    """Returns the packages to hold out: HELD_OUT_SHARE of the text, always the same ones.

    Repeated sentences are counted once, because they are removed later: some programs have
    thousands of pages with the same sentences.
    """
    sizes: collections.Counter[str] = collections.Counter()
    seen: set[str] = set()
    for document in documents:
        fresh = set(document.sentences) - seen
        seen |= fresh
        sizes[document.package] += sum(map(len, fresh))
    chosen: set[str] = set()
    size = 0
    for package in sorted(sizes, key=lambda name: (zlib.crc32(name.encode()), name)):
        if size >= HELD_OUT_SHARE * sizes.total():
            break
        if sizes[package] <= MAX_HELD_OUT_PACKAGE * sizes.total():
            chosen.add(package)
            size += sizes[package]
    return chosen


def _without_short(documents: Iterable[Document], dropped: Dropped) -> list[Document]:
    """Returns the documents of at least MIN_SENTENCES sentences."""
    kept = []
    for document in documents:
        if len(document.sentences) >= MIN_SENTENCES:
            kept.append(document)
        elif document.sentences:
            dropped.add(SHORT, " ".join(document.sentences))
    return kept


def _without_repeated(documents: Sequence[Document], dropped: Dropped) -> list[Document]:
    """Returns the documents without sentences that repeat an earlier one."""
    seen: set[str] = set()
    fresh: list[tuple[int, str]] = []  # (index of the document, sentence)
    for index, document in enumerate(documents):
        for sentence in document.sentences:
            key = duplicates.normalized(sentence)
            if key in seen:
                dropped.add(REPEATED, sentence)
            else:
                seen.add(key)
                fresh.append((index, sentence))
    originals = duplicates.near_duplicates([sentence for _, sentence in fresh])
    kept: list[list[str]] = [[] for _ in documents]
    for (index, sentence), original in zip(fresh, originals, strict=True):
        if original < 0:
            kept[index].append(sentence)
        else:
            dropped.add(NEAR_REPEATED, f"{sentence} = {fresh[original][1]}")
    return [
        dataclasses.replace(document, sentences=sentences)
        for document, sentences in zip(documents, kept, strict=True)
    ]
