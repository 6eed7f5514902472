"""Reads examples as rows: TSV, CSV, JSON, Parquet and Arrow, one row at a time, whatever the size.

`open_table` opens files, `splits` finds the files of a split in a folder, and `python_rows` takes
dicts, a `datasets.Dataset` or a DataFrame. What they return is a `Table`: iterate it for pairs
(number, row), call `objects()` for rows that all are dicts, look up the names of a column of class
ids in `labels`, and name a row in a message by `place(number)`.
"""

from albert_tf.tables.label_names import LabelNames
from albert_tf.tables.table import (
    BadRowError,
    Column,
    NumberedRow,
    Row,
    ShortRowError,
    Table,
)
from albert_tf.tables.table_files import open_table
from albert_tf.tables.text_rows import COMMAS, JSON_LINES, QUOTED_TABS, TABS, parse_lines

__all__ = [
    "COMMAS",
    "JSON_LINES",
    "QUOTED_TABS",
    "TABS",
    "BadRowError",
    "Column",
    "LabelNames",
    "NumberedRow",
    "Row",
    "ShortRowError",
    "Table",
    "open_table",
    "parse_lines",
]
