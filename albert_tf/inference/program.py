"""Implements `albert predict`: predicts from texts or a file, given the settings."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from absl import logging
from tqdm import tqdm

from albert_tf import files
from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.finetuning.json_values import as_json
from albert_tf.finetuning.text_task import Result
from albert_tf.inference.embeddings import similarities
from albert_tf.inference.inputs import Block
from albert_tf.inference.predictor import Predictor
from albert_tf.inference.settings import Settings
from albert_tf.training import interruption
from albert_tf.training.devices import Devices, open_devices
from albert_tf.training.settings import DeviceSettings

if TYPE_CHECKING:
    pass


def run(
    settings: Settings, source: ModelSource, task: str, blocks: list[Block]
) -> Iterator[Result]:
    """Yields the result of each input, in input order; for a file, results include `line`.

    Args:
        settings: the settings.
        source: the model.
        task: name of the task.
        blocks: the inputs, as `inputs.read_inputs` returns them.

    Raises:
        ValueError, OSError: the model cannot be used, or a file cannot be written; the message says
            which.
    """
    with use_devices(settings, source):
        predictor = Predictor(source, task, settings)
        shown = _with_progress(settings, blocks)
        if settings.is_search:
            yield from search(predictor, settings.texts[0], shown, settings.top_k)
        elif settings.similarity:
            for block in shown:
                yield from compare(predictor, block)
        elif settings.embeddings_file:
            with interruption.ending_by_exception():
                _write(settings.embeddings_file, predictor, shown)
        else:
            yield from _predict(predictor, shown)
        if predictor.num_truncated:
            logging.warning(
                "%d texts are longer than max_seq_length=%d: only a part of each was read",
                predictor.num_truncated,
                predictor.max_seq_length,
            )


def use_devices(
    settings: Settings, source: ModelSource
) -> contextlib.AbstractContextManager[Devices]:
    """Returns `open_devices`; precision auto is float32 if the model was trained in it."""
    trained_in = source.run.record.settings.get(run_record.PRECISION)
    is_as_trained = settings.precision == "auto" and trained_in == "float32"
    devices = DeviceSettings(
        distribution="one_device",
        precision="float32" if is_as_trained else settings.precision,
        threads=settings.threads,
    )
    return open_devices(devices, "the model was trained in it" if is_as_trained else None)


def _with_progress(settings: Settings, blocks: list[Block]) -> Iterator[Block]:
    """Yields the blocks; shows a progress bar for a file if only stderr is a terminal."""
    total = sum(map(len, blocks))
    hidden = settings.input_file is None or sys.stdout.isatty() or not sys.stderr.isatty()
    with tqdm(total=total, desc="predicting", unit="row", disable=hidden) as bar:
        for block in blocks:
            yield block
            bar.update(len(block))


def _predict(predictor: Predictor, blocks: Iterator[Block]) -> Iterator[Result]:
    for block in blocks:
        results = predictor.predict([row for _, row in block])
        for (line, _), result in zip(block, results, strict=True):
            yield {"line": line, **result} if line else result


def compare(embed: Predictor, block: Block) -> Iterator[Result]:
    """Yields the similarity of each pair of texts, with its line number if it has one."""
    first, second = (embed([pair[place] for _, pair in block]) for place in (0, 1))
    for (line, _), score in zip(block, as_json(similarities(first, second)), strict=True):
        yield {"line": line, "similarity": score} if line else {"similarity": score}


def search(embed: Predictor, text: str, blocks: Iterable[Block], top_k: int) -> list[Result]:
    """Returns the `top_k` rows most similar to `text`, in descending order of similarity."""
    query = embed(text)
    best: list[Result] = []
    for block in blocks:
        scores = similarities(query, embed([text for _, (text, _) in block]))
        best += [
            {"line": line, "similarity": score, "text": text}
            for (line, (text, _)), score in zip(block, as_json(scores), strict=True)
        ]
        best = sorted(best, key=lambda row: -row["similarity"])[:top_k]
    return best


def _write(path: str, embed: Predictor, blocks: Iterator[Block]) -> None:
    """Writes embeddings as an array."""
    files.ensure_directory(os.path.dirname(path) or ".", "--embeddings_file")
    rows = [embed([pair for _, pair in block]) for block in blocks]
    with files.write_atomically(path, "wb") as stream:
        np.save(stream, np.concatenate(rows))
    logging.info("%s: %d embeddings", path, sum(map(len, rows)))
