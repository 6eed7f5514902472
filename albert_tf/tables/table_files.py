"""Opens files of rows of any format as a `Table`.

Parquet, Arrow, compression and JSON arrays are recognized by the first bytes of a file, the formats
of lines by its name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from albert_tf.tables import arrow, label_names
from albert_tf.tables.compression import ENDINGS, open_content
from albert_tf.tables.json_array import begins_array, read_array
from albert_tf.tables.label_names import LabelNames
from albert_tf.tables.row import BadRowError, NumberedRow
from albert_tf.tables.table import Table
from albert_tf.tables.text_rows import (
    COMMAS,
    JSON_LINES,
    QUOTED_TABS,
    TABS,
    decode_lines,
    parse_lines,
)

# Formats that the content tells.
JSON_ARRAY = "json array"
ARROW_ROWS = "arrow"  # or Parquet
_UNITS = {JSON_ARRAY: "item", ARROW_ROWS: "row"}
_FORMS_BY_ENDING = {
    ".csv": COMMAS,
    ".json": JSON_LINES,
    ".jsonl": JSON_LINES,
    ".ndjson": JSON_LINES,
}
_TEXT_ENDINGS = (".txt", ".tsv", ".conll", *_FORMS_BY_ENDING)
PART = "part"  # which the names of the files begin with that Spark and Dask write to a folder
_SNIFFED_BYTES = 1 << 10


def open_table(
    paths: str | Sequence[str],
    form: str = "",
    quoting: bool = False,
    takes_strings: bool = False,
    keeps_blank_end: bool = False,
    name: str = "",
) -> Table:
    """Opens files of rows, which are read when the table is iterated.

    Args:
        paths: a file, or the files with the rows in order: local or remote, maybe compressed.
        form: the format of text; by default, COMMAS for names that end in `.csv`, JSON_LINES for
            `.json`, `.jsonl` and `.ndjson`, and otherwise TABS. Endings of compression do not
            count; of `train.tsv/part-00000.csv`, as Spark writes it, that of the folder counts.
        quoting: whether cells of tab-separated lines may be quoted.
        takes_strings: whether a string in JSON is a row with one cell, instead of an error.
        keeps_blank_end: whether blank lines at the end of a file are rows.
        name: what a single file is called in messages; "" for its path.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is damaged, or the files do not fit together.
    """
    listed = [paths] if isinstance(paths, str) else paths
    default = QUOTED_TABS if quoting else TABS
    forms = [form or _FORMS_BY_ENDING.get(_ending_of_text(path), default) for path in listed]
    return Table(
        [
            _File(path, name or path, by_name, takes_strings, keeps_blank_end)
            for path, by_name in zip(listed, forms, strict=True)
        ]
    )


def ending_of(path: str) -> str:
    """Returns the ending of a file's name in lower case, without that of its compression."""
    stem, ending = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] if ending in ENDINGS else ending


def _ending_of_text(path: str) -> str:
    """Returns the ending that tells the format of text: of a file, or of the folder of a part."""
    folder, name = os.path.split(path)
    is_part = name.startswith(PART) and ending_of(folder) in _TEXT_ENDINGS
    return ending_of(folder if is_part else path)


class _File:
    """A file as a part of a table; see `open_table`."""

    def __init__(
        self, file: str, name: str, form: str, takes_strings: bool, keeps_blank_end: bool
    ) -> None:
        self.path = name
        self._file = file
        self._takes_strings = takes_strings
        self._keeps_blank_end = keeps_blank_end
        self.labels: Mapping[str, LabelNames] = {}
        self._form = form
        with open_content(file) as (stream, _):
            start = stream.read(_SNIFFED_BYTES)
        # A text may begin with the letters PAR1.
        if start.startswith(arrow.MAGICS) and ending_of(file) not in _TEXT_ENDINGS:
            self._form = ARROW_ROWS
        elif form == JSON_LINES and begins_array(start):
            self._form = JSON_ARRAY
        if self._form == ARROW_ROWS:
            with _open_arrow(file) as table:
                self.labels = label_names.of_schema(table.schema, name)
        self.unit = _UNITS.get(self._form, "line")
        self.has_cells = self._form not in (ARROW_ROWS, JSON_LINES, JSON_ARRAY)

    def rows(self) -> Iterator[NumberedRow]:
        """Yields the rows of the file with their numbers."""
        if self._form == ARROW_ROWS:
            with _open_arrow(self._file) as table:
                yield from enumerate(table.rows(), 1)
            return
        with open_content(self._file) as (stream, _):
            numbered = self._text_rows(stream)
            if self.has_cells or self._takes_strings:
                yield from numbered
                return
            for number, row in numbered:
                if isinstance(row, list):
                    yield number, BadRowError("expected a JSON object, got text")
                else:
                    yield number, row

    def _text_rows(self, stream: IO[bytes]) -> Iterator[NumberedRow]:
        if self._form == JSON_ARRAY:
            return read_array(stream, self.path)
        lines = decode_lines(stream, self.path, self._keeps_blank_end)
        return parse_lines(lines, self._form, self.path)


@contextlib.contextmanager
def _open_arrow(path: str) -> Iterator[arrow.ArrowTable]:
    """Opens a Parquet or Arrow file, which may be compressed as a whole."""
    with contextlib.ExitStack() as opened:
        stream, raw = opened.enter_context(open_content(path))
        if stream is not raw:  # it is read at many places, which is slow in a compressed file
            whole = opened.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(stream, whole)
            whole.seek(0)
            stream = whole
        yield opened.enter_context(arrow.open_arrow_table(path, stream))
