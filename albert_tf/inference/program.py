"""Implements `albert predict`: predicts from a text or a file, given the settings."""

from __future__ import annotations

import collections
import contextlib
import io
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from absl import logging
from tqdm import tqdm

from albert_tf import files
from albert_tf.checkpoints import run_record
from albert_tf.finetuning import registry, rows
from albert_tf.finetuning.results import as_json
from albert_tf.finetuning.rows import (
    COMMAS,
    TABS,
    TEXT_A,
    BadRowError,
    NumberedRow,
    Row,
    RowReports,
    parse_pair,
)
from albert_tf.finetuning.task import Result
from albert_tf.inference import STANDARD_INPUT, Settings
from albert_tf.inference.fill_mask import similarities
from albert_tf.inference.predictor import Options, Predictor
from albert_tf.inference.pretrained import ModelFolder
from albert_tf.training import interruption
from albert_tf.training.devices import Devices, open_devices
from albert_tf.training.settings import DeviceSettings

Block = list[tuple[int, Any]]  # (line, input) pairs
NPY = ".npy"


def parse_two(row: Row) -> tuple[str, str]:
    """Returns the two texts to compare."""
    pair = parse_pair(row)
    if not pair[1]:
        raise BadRowError("expected two texts to compare, got one")
    return pair


def run(settings: Settings) -> Iterator[Result]:
    """Yields the result of each input, in input order; for a file, results include `line`.

    Raises:
        ValueError, OSError: settings, model or input are invalid or inconsistent; the message says
            which.
    """
    model_folder = ModelFolder(settings.model_dir)
    task = model_folder.find_task(settings.wanted_task)
    if settings.embeddings_file:
        _prepare(settings.embeddings_file, settings, model_folder)
    is_search = settings.input_file is not None and settings.text is not None
    compares_pairs = settings.similarity and not is_search
    parse = parse_two if compares_pairs else registry.resolve(registry.get(task).task).parse_row
    blocks = read_inputs(settings, parse)
    with use_devices(settings, model_folder):
        predictor = load(settings, model_folder, task)
        shown = _with_progress(settings, blocks)
        if settings.similarity:
            if is_search:
                yield from search(predictor, settings.texts[0], shown, settings.top_k)
            else:
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


def read_inputs(settings: Settings, parse: Callable[[Row], Any]) -> Iterable[Block]:
    """Returns blocks of inputs, as a list unless they come from standard input.

    Those given by flags are a block, each with line 0.

    Raises:
        ValueError, OSError: a file cannot be read or has bad rows. For standard input,
            the iterator raises these errors.
    """
    if settings.input_file is None:
        try:
            return [[(0, parse(row)) for row in _rows_of(settings)]]
        except BadRowError as error:
            raise ValueError(f"--text, --question, --context or --options: {error}") from None
    blocks = read_blocks(settings.input_file, settings.format, parse)
    return blocks if settings.input_file == STANDARD_INPUT else list(blocks)


def _rows_of(settings: Settings) -> list[Row]:
    """Returns the inputs given by flags."""
    others = {
        "question": settings.question or None,
        "context": settings.context or None,
        "options": list(settings.options) or None,
    }
    rows: list[Row] = []
    pairs: Sequence[tuple[str | None, str | None]] = settings.pairs or [(None, None)]
    for text, text_b in pairs:
        row: dict[str, Any] = {"text": text, "text_b": text_b, **others}
        row = {name: value for name, value in row.items() if value is not None}
        if "options" in row:
            row["passage"] = row.pop("context", "")
        rows.append(row)
    return rows


def use_devices(
    settings: Settings, model_folder: ModelFolder
) -> contextlib.AbstractContextManager[Devices]:
    """Returns `open_devices`; precision auto is float32 if the model was trained in it."""
    record = model_folder.run.record
    is_trained = record.settings.get(run_record.PRECISION) == "float32"
    is_as_trained = is_trained and settings.precision == "auto"
    devices = DeviceSettings(
        distribution="one_device",
        precision="float32" if is_as_trained else settings.precision,
        threads=settings.threads,
    )
    return open_devices(devices, "the model was trained in it" if is_as_trained else None)


def load(settings: Settings, model_folder: ModelFolder, task: str) -> Predictor:
    """Returns the predictor for one of the tasks of a model.

    Raises:
        ValueError, OSError: the model cannot be used; the message says why.
    """
    options = Options(
        settings.batch_size,
        settings.max_seq_length,
        settings.top_k,
        settings.pooling,
        settings.engine,
    )
    model_files = {
        "config_file": settings.albert_config_file,
        "vocab_file": settings.vocab_file,
        "spm_model_file": settings.spm_model_file,
        "do_lower_case": settings.do_lower_case,
    }
    return Predictor(model_folder, task, options, model_files)


def _with_progress(settings: Settings, blocks: Iterable[Block]) -> Iterator[Block]:
    """Yields the blocks; shows a progress bar for a file if only stderr is a terminal."""
    total = sum(map(len, blocks)) if isinstance(blocks, list) else None
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


def _prepare(path: str, settings: Settings, model_folder: ModelFolder) -> None:
    """Checks that the file of embeddings replaces no input, and creates its folder."""
    # A model has no such arrays, and its folder may have those of an earlier run.
    model = None if path.endswith(NPY) else model_folder.folder
    files.check_outputs({"--embeddings_file": path}, {"--model_dir": model, **settings.input_files})
    if os.path.dirname(path):
        files.ensure_directory(os.path.dirname(path), "--embeddings_file")
    files.remove_half_written([path])


def _write(path: str, embed: Predictor, blocks: Iterator[Block]) -> None:
    """Writes embeddings as an array (`.npy`) or as lines of JSON."""
    if path.endswith(NPY):
        rows = [embed([pair for _, pair in block]) for block in blocks]
        with files.write_atomically(path, "wb") as stream:
            np.save(stream, np.concatenate(rows))
        logging.info("%s: %d embeddings", path, sum(map(len, rows)))
        return
    with files.write_atomically(path) as stream:
        for result in _predict(embed, blocks):
            stream.write(json.dumps(result, ensure_ascii=False) + "\n")


# Reads inputs for prediction from files and pipes, without TensorFlow.
#
# Rows from a pipe are yielded as soon as they arrive, so that each line is answered immediately.

ROWS_AT_ONCE = 1024  # rows in a block; sorted by length and batched together
_BYTES_AT_ONCE = 1 << 20
_PIPE = "standard input"
# A first line with one of these names is a header.
_NAMES = {*TEXT_A, "question", "context", "passage", "tokens"}

InputType = TypeVar("InputType")


class _Lines:
    """Iterates over the lines of standard input.

    Attributes:
        is_waiting: whether the next line has not been read from the stream yet.
    """

    def __init__(self) -> None:
        self._ready: collections.deque[bytes] = collections.deque()

    @property
    def is_waiting(self) -> bool:
        return not self._ready

    def __iter__(self) -> Iterator[str]:
        stream: Any = sys.stdin.buffer
        data = b"\n"
        rest = b""
        number = 0
        while data:
            data = stream.read1(_BYTES_AT_ONCE)  # as much as there is
            *lines, rest = (rest + data).split(b"\n")
            self._ready.extend(lines if data or not rest else [rest])
            while self._ready:
                number += 1
                line = files.decode_utf8(self._ready.popleft(), _PIPE, number)
                yield (line.removeprefix("\ufeff") if number == 1 else line) + "\n"


def _with_names(numbered: Iterator[NumberedRow]) -> Iterator[NumberedRow]:
    """Yields rows as name → value if the first row is a header; otherwise, as they are."""
    first = next(numbered, None)
    if first is None:
        return
    header = rows.find_header(first[1], _NAMES)
    if not header:
        yield first
    for line, row in numbered:
        if not header or isinstance(row, BadRowError):
            yield line, row
        elif len(row) == len(header):
            yield line, dict(zip(header, row, strict=True))
        else:
            expected = f"expected {len(header)} columns, as in the header, got {len(row)}"
            yield line, BadRowError(expected)


def read_blocks(
    path: str, form: str, parse: Callable[[Row], InputType]
) -> Iterator[list[tuple[int, InputType]]]:
    """Yields blocks of (line, input); for a pipe, a block holds the lines available so far.

    A file is read completely before the first block, so that bad rows are reported at once.

    Args:
        path: the file, or `STANDARD_INPUT`.
        form: the format, one of `inference.FORMATS`.
        parse: converts a row to an input; raises `BadRowError`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there are bad rows, or no rows; the message names the file and the lines.
    """
    if path == STANDARD_INPUT:
        yield from _blocks(_Lines(), form, parse, _PIPE)
        return
    lines = io.StringIO(files.read_text(path), newline="\n")
    yield from list(_blocks(lines, form, parse, path))


def _blocks(
    lines: Iterable[str], form: str, parse: Callable[[Row], InputType], path: str
) -> Iterator[list[tuple[int, InputType]]]:
    numbered = rows.parse_lines(lines, form, path)
    if form in (TABS, COMMAS):
        numbered = _with_names(numbered)
    first = next(numbered, None)
    if first is None:
        raise ValueError(f"{path}: contains no input")
    pipe = lines if isinstance(lines, _Lines) else None
    reports = RowReports(path, stops_at_once=pipe is not None)
    block: list[tuple[int, InputType]] = []
    try:
        parsed = reports.parsed(itertools.chain([first], numbered), lambda row, _: parse(row))
        for place, given in parsed:
            block.append((place, given))
            if len(block) == ROWS_AT_ONCE or (pipe is not None and pipe.is_waiting):
                yield block
                block = []
        reports.check()
    except ValueError:
        if block:
            yield block  # answer the rows before the bad one first
        raise
    if block:
        yield block
