"""Writes answers to a file: as CSV beside the columns of the inputs, or as JSON lines."""

from __future__ import annotations

import csv
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence

from absl import logging

from albert_tf import files
from albert_tf.finetuning.task import Result
from albert_tf.training import interruption

COMMAS, LINES = ".csv", ".jsonl"
ENDINGS = (COMMAS, LINES)
_TAKEN = "predicted_"  # before the name of an answer that a column of the input has

Answer = tuple[files.JsonObject, Result]  # the columns of an input, and its answer


def write(path: str, answers: Iterable[Sequence[Answer]], columns: Sequence[str]) -> None:
    """Writes the answers, a block at a time, to a file that appears when it is complete.

    A row of CSV has the columns of the input and those of the answer, in which a dict has a column
    for each of its values, such as `probabilities_good`, and a list is JSON. JSON lines have both
    as they are, without a distinction of the names.

    Args:
        path: the file, with one of `ENDINGS`.
        answers: blocks of the inputs and their answers.
        columns: the columns of all inputs.

    Raises:
        OSError: the file cannot be written.
    """
    files.ensure_directory(os.path.dirname(path) or ".", "--output_file")
    count = 0
    with interruption.ending_by_exception(), files.write_atomically(path) as stream:
        rows = (_row(each, columns) for each in itertools.chain.from_iterable(answers))
        writer: csv.DictWriter[str] | None = None
        for row in rows:
            if path.endswith(LINES):
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            else:
                cells = dict(_cells(row))
                if writer is None:
                    names = dict.fromkeys((*columns, *cells))
                    writer = csv.DictWriter(stream, list(names), lineterminator="\n")
                    writer.writeheader()
                writer.writerow(cells)
            count += 1
    logging.info("%s: %d answers", path, count)


def _row(answer: Answer, columns: Sequence[str]) -> files.JsonObject:
    """Returns the columns of an input and its answer under names that differ from them."""
    given, result = answer
    row = dict(given)
    for name, value in result.items():
        while name in columns or name in row:
            name = _TAKEN + name
        row[name] = value
    return row


def _cells(row: files.JsonObject) -> Iterator[tuple[str, files.Json]]:
    """Yields the columns of a row of CSV."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield from ((f"{name}_{key}", each) for key, each in value.items())
        else:
            is_list = isinstance(value, list)
            yield name, json.dumps(value, ensure_ascii=False) if is_list else value
