"""The columns of a file to predict: as in training, under usual names, or not known."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence

from albert_tf import files
from albert_tf.finetuning.columns import NAMES_OF_INPUTS, is_header, places_of
from albert_tf.finetuning.rows import Row
from albert_tf.tables import Table
from albert_tf.tables.row import normalized

# Settings of a training that name a column → the name that every task knows it by.
_OF_TRAINING = {"text_a_column": "text_a", "text_b_column": "text_b"}
_ROWS_TO_COMPARE = 20  # the first ones of a file
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,40}", re.ASCII)  # what most columns are called


@dataclasses.dataclass(frozen=True)
class InputColumns:
    """What is known of the columns of a file to predict.

    Attributes:
        trained: name of a column of the training data, in lower case → the usual name.
        expected: usual names to advise where no name is known; () accepts any first row as a text.
    """

    trained: Mapping[str, str] = dataclasses.field(default_factory=dict)
    expected: Sequence[str] = ()

    @classmethod
    def of_training(
        cls, settings: Mapping[str, files.Json], expected: Sequence[str]
    ) -> InputColumns:
        """Returns the columns, given the recorded settings of the training; numbers are no names.

        Args:
            settings: name → value.
            expected: see the class.
        """
        given = {settings.get(name): usual for name, usual in _OF_TRAINING.items()}
        trained = {
            normalized(name): usual
            for name, usual in given.items()
            if isinstance(name, str) and not name.lstrip("-").isdecimal()
        }
        return cls(trained, expected)

    @property
    def names(self) -> frozenset[str]:
        """The names that make the first row of a file a header."""
        return NAMES_OF_INPUTS.union(self.trained)

    def with_usual_names(self, row: Row, kept: Sequence[str]) -> Row:
        """Returns a row with named columns that has those of the training under the usual names.

        Args:
            row: the row, which is returned unchanged if it lacks one of these columns.
            kept: names of other columns to keep.
        """
        if not isinstance(row, dict) or not self.trained:
            return row
        places = places_of(row)
        if not places.keys() >= self.trained.keys():
            return row
        named = {usual: row[str(places[name])] for name, usual in self.trained.items()}
        return {name: row[name] for name in kept if name in row} | named

    def refuse_unknown_header(self, table: Table) -> None:
        """Raises ValueError if the first row looks like a header, of which no name is known.

        It looks like one if its cells are single words, and no other row has such a word in one of
        its columns.
        """
        cells = [row for _, row in itertools.islice(table, _ROWS_TO_COMPARE)]
        rows = [row for row in cells if isinstance(row, Sequence)]
        if not self.expected or len(rows) < 2 or is_header(rows[0], self.names):
            return
        header, *others = ([_NAME.fullmatch(cell) is not None for cell in row] for row in rows)
        columns = itertools.zip_longest(*others, fillvalue=False)
        if all(header) and any(not any(column) for column in columns):
            raise ValueError(
                f"{table.path}, line 1: {files.quote_all(rows[0])} look like names of columns, "
                f"none of which is known. Rename them, for example {files.quote_all(self.expected)}"
                ". If this line is an input too, put one with such names above it"
            )
