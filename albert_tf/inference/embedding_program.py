"""What `albert predict` does with embeddings: compares them, searches in them, or writes them.

Shapes: N texts, H hidden size.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from absl import logging
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.tasks import EMBEDDINGS
from albert_tf.finetuning.task import Result, as_json
from albert_tf.inference.embeddings import similarities
from albert_tf.inference.inputs import Block, Inputs
from albert_tf.inference.program import open_predictor, with_progress
from albert_tf.inference.settings import Settings
from albert_tf.training import interruption

TextPair = tuple[str, str]


class Embed(Protocol):
    """A predictor of embeddings."""

    def __call__(self, texts: str | Sequence[str] | Sequence[TextPair]) -> NDArray[np.float32]:
        """Returns the embeddings, float32 [N, H], or [H] of a single text."""


def run(settings: Settings, source: ModelSource, inputs: Inputs[TextPair]) -> Iterator[Result]:
    """Yields similarities, with the origins of inputs; or nothing, and writes `embeddings_file`.

    Args:
        settings: the settings.
        source: the model.
        inputs: the pairs of texts, as `read_inputs` returns them.

    Raises:
        ValueError, OSError: the model cannot be used, or a file cannot be written; the message says
            which.
    """
    with open_predictor(settings, source, EMBEDDINGS) as embed:
        shown = with_progress(settings, inputs)
        if settings.is_search:
            yield from search(embed, settings.texts[0], shown, settings.top_k)
        elif settings.similarity:
            for block in shown:
                yield from compare(embed, block)
        elif settings.embeddings_file:
            with interruption.ending_by_exception():
                _write(settings.embeddings_file, embed, shown, inputs.total)


def compare(embed: Embed, block: Block[TextPair]) -> Iterator[Result]:
    """Yields the similarity of each pair of texts, with where it is from."""
    first, second = (embed([pair[place] for _, pair in block]) for place in (0, 1))
    for (origin, _), score in zip(block, as_json(similarities(first, second)), strict=True):
        yield {**origin, "similarity": score}


def search(embed: Embed, text: str, blocks: Iterable[Block[TextPair]], top_k: int) -> list[Result]:
    """Returns the `top_k` rows most similar to `text`, in descending order of similarity."""
    query = embed(text)  # [H]
    best: list[Result] = []
    for block in blocks:
        scores = similarities(query, embed([text for _, (text, _) in block]))  # [N]
        best += [
            {**origin, "similarity": score, "text": text}
            for (origin, (text, _)), score in zip(block, as_json(scores), strict=True)
        ]
        best = sorted(best, key=lambda row: -row["similarity"])[:top_k]
    return best


def _write(path: str, embed: Embed, blocks: Iterator[Block[TextPair]], total: int) -> None:
    """Writes embeddings as an array, a block at a time.

    Args:
        path: the file.
        embed: computes embeddings.
        blocks: the texts or pairs.
        total: their number.
    """
    files.ensure_directory(os.path.dirname(path) or ".", "--embeddings_file")
    with files.write_atomically(path, "wb") as stream:
        for number, block in enumerate(blocks):
            rows = np.ascontiguousarray(embed([pair for _, pair in block]))  # [N, H]
            if not number:
                header = np.lib.format.header_data_from_array_1_0(rows)
                header["shape"] = (total, *rows.shape[1:])
                np.lib.format.write_array_header_1_0(stream, header)
            stream.write(rows.tobytes())
    logging.info("%s: %d embeddings", path, total)
