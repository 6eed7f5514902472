"""Opens files of rows of any format as a `Table`.

Parquet, Arrow, compression and JSON arrays are recognized by the first bytes of a file, the formats
of lines by its name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence

from albert_tf.tables import arrow, label_names
from albert_tf.tables.compression import ending_of, open_content
from albert_tf.tables.table import NumberedRow, Part, Table
from albert_tf.tables.text_rows import (
    COMMAS,
    JSON_ARRAY,
    JSON_LINES,
    QUOTED_TABS,
    TABS,
    begins_array,
    read_rows,
)

_FORMS_BY_ENDING = {
    ".csv": COMMAS,
    ".json": JSON_LINES,
    ".jsonl": JSON_LINES,
    ".ndjson": JSON_LINES,
}
_TEXT_ENDINGS = (".txt", ".tsv", ".conll", *_FORMS_BY_ENDING)
PART = "part"  # which the names of the files begin with that Spark and Dask write to a folder
_SNIFFED_BYTES = 1 << 10
_TAR_PLACE = 257  # of the bytes that tell an archive


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
        takes_strings: see `read_rows`.
        keeps_blank_end: see `read_rows`.
        name: what a single file is called in messages; "" for its path.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is damaged, or the files do not fit together.
    """
    default = QUOTED_TABS if quoting else TABS
    return Table(
        [
            _open_part(
                path,
                name or path,
                form or _FORMS_BY_ENDING.get(_ending_of_text(path), default),
                takes_strings,
                keeps_blank_end,
            )
            for path in ([paths] if isinstance(paths, str) else paths)
        ]
    )


def _ending_of_text(path: str) -> str:
    """Returns the ending that tells the format of text: of a file, or of the folder of a part."""
    folder, name = os.path.split(path)
    is_part = name.startswith(PART) and ending_of(folder) in _TEXT_ENDINGS
    return ending_of(folder if is_part else path)


def _open_part(path: str, name: str, form: str, takes_strings: bool, keeps_blank_end: bool) -> Part:
    """Returns a file as a part of a table; see `open_table`."""
    with open_content(path) as (stream, _):
        start = stream.read(_SNIFFED_BYTES)
    if start[_TAR_PLACE:].startswith(b"ustar"):
        raise ValueError(f"{name}: an archive of tar. Unpack it")
    # A text may begin with the letters PAR1.
    if start.startswith(arrow.MAGICS) and ending_of(path) not in _TEXT_ENDINGS:
        with _open_arrow(path) as table:
            labels = label_names.of_schema(table.schema, name)
        return Part(name, lambda: _arrow_rows(path), labels=labels)
    form = JSON_ARRAY if form == JSON_LINES and begins_array(start) else form

    def rows() -> Iterator[NumberedRow]:
        with open_content(path) as (stream, _):
            yield from read_rows(stream, form, name, takes_strings, keeps_blank_end)

    has_cells = form not in (JSON_LINES, JSON_ARRAY)
    return Part(name, rows, "item" if form == JSON_ARRAY else "line", has_cells=has_cells)


def _arrow_rows(path: str) -> Iterator[NumberedRow]:
    with _open_arrow(path) as table:
        yield from enumerate(table.rows(), 1)


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
