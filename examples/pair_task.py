"""Creates a classification task from a corpus: does the second sentence follow the first?

    python examples/pair_task.py --corpus_dir=work/pretrain_small/corpus \
        --task_dir=work/pretrain_small/pair_task

Reads train.txt and held_out.txt as examples/make_corpus.py writes them, and writes train.tsv and
dev.tsv for run_classifier.py --task_name=tsv. In half of the pairs the second sentence is the next
one of the document, in the other half a sentence of a document nearby in the file, which is often
about the same package. The dev set consists of held-out documents only.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Iterator

from albert_tf import files
from albert_tf.cli import program
from albert_tf.settings import REQUIRED, SettingsGroup, setting

FOLLOWS = "follows"
OTHER = "other"
NEIGHBORS = 20  # documents before and after that the other sentence may be from
PARTS = {"train.txt": "train.tsv", "held_out.txt": "dev.tsv"}
SEED = 7

Pair = tuple[str, str, str]


@dataclasses.dataclass(frozen=True)
class Settings(SettingsGroup):
    """The corpus and the folder of the task."""

    corpus_dir: str = setting(REQUIRED, "Folder with train.txt and held_out.txt.")
    task_dir: str = setting(REQUIRED, "Folder to write train.tsv and dev.tsv to.")


def read_documents(path: str) -> list[list[str]]:
    """Returns the sentences of each document of a text, which blank lines separate."""
    blocks = files.read_text(path).split("\n\n")
    return [block.splitlines() for block in blocks if block.strip()]


def pairs_of(documents: list[list[str]]) -> Iterator[Pair]:
    """Yields first sentence, second sentence and label of pairs; no sentence is first twice.

    Args:
        documents: the sentences of at least two documents.
    """
    rng = random.Random(SEED)
    for number, sentences in enumerate(documents):
        for first, second in zip(sentences[::2], sentences[1::2], strict=False):
            if rng.random() < 0.5:
                yield first, second, FOLLOWS
                continue
            low = max(0, number - NEIGHBORS)
            high = min(len(documents) - 1, number + NEIGHBORS)
            other = rng.choice([index for index in range(low, high + 1) if index != number])
            yield first, rng.choice(documents[other]), OTHER


def run(settings: Settings) -> str:
    """Writes the task and returns its sizes.

    Raises:
        OSError: a file of the corpus is missing.
        ValueError: a part of the corpus has fewer than two documents.
    """
    files.make_directory(settings.task_dir, "--task_dir")
    lines = []
    for source, target in PARTS.items():
        source = os.path.join(settings.corpus_dir, source)
        target = os.path.join(settings.task_dir, target)
        documents = read_documents(source)
        if len(documents) < 2:
            raise ValueError(
                f"{source}: expected two documents or more, separated by blank lines, got "
                f"{len(documents)}"
            )
        rows = ["\t".join(pair) for pair in pairs_of(documents)]
        with files.write_atomically(target) as stream:
            stream.write("\n".join(("sentence1\tsentence2\tlabel", *rows)) + "\n")
        lines.append(f"{target}: {len(rows)} pairs of {len(documents)} documents")
    return "\n".join(lines)


if __name__ == "__main__":
    program.start(Settings, run, __doc__)
