"""Finds the columns of rows: by index, by the names in a header, or by the keys of JSON objects.

Training and prediction of all tasks ask here. Names are compared in lower case and without spaces
around them; a name that several columns have means none of them. Of columns that have different
usual names of a text, none is preferred: `find_texts` refuses to guess. `UnusedTexts` finds columns
that have texts, and are not used.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from absl import logging

from albert_tf import files
from albert_tf.finetuning.rows import BadRowError, Column, NumberedRow, Row, check_text, text_cell
from albert_tf.tables.table import name_cells, normalized, repeated_name

# Usual names of columns, in lower case.
TEXT_A = ("text_a", "sentence1", "sentence", "text")
TEXT_B = ("text_b", "sentence2")
# Pairs of other names: of QQP, QNLI, MNLI, XNLI (of the Hub, of CLUE), LCQMC and its copies.
PAIRS = (
    ("question1", "question2"),
    ("question", "sentence"),
    ("premise", "hypothesis"),
    ("premise", "hypo"),
    ("text1", "text2"),
    ("query", "title"),
)


@dataclasses.dataclass(frozen=True)
class Field:
    """What a task reads of a row: the column with one of some names.

    Attributes:
        name: what it is, for messages.
        names: the usual names of the column, in lower case.
        flag: the flag that names the column, without "--"; "" if there is none.
        takes_first: whether of several columns with these names the first name is meant.
        prefers_name: whether the column with the first of these names is meant, if there is one.
            Otherwise, several columns are refused.
    """

    name: str
    names: tuple[str, ...]
    flag: str = ""
    takes_first: bool = False
    prefers_name: bool = False

    def find(self, places: Mapping[str, Column], asked: str | None = None) -> Column | None:
        """Returns the column; None if there is none.

        Args:
            places: see `places_of`.
            asked: the name in the settings instead of the usual ones; None if there is none.

        Raises:
            BadRowError: several columns may be meant, or have the name.
        """
        names = self.names if asked is None else (normalized(asked),)
        found = [name for name in names if name in places]
        is_clear = self.takes_first or (self.prefers_name and names[0] in found)
        if len(found) > 1 and not is_clear:
            advice = f"pass --{self.flag}" if self.flag else "keep one, or rename the others"
            keys = [places.get(name) for name in found]
            shown = [k if isinstance(k, str) else n for n, k in zip(found, keys, strict=True)]
            raise BadRowError(f"{files.quote_all(shown)} may each be the {self.name}: {advice}")
        return places[found[0]] if found else None

    def of(self, row: files.JsonObject, asked: str | None = None) -> str:
        """Returns the key of a JSON object; see `find`.

        Raises:
            BadRowError: there is none, or several may be meant.
        """
        found = self.find(places_of(row), asked)
        if found is None:
            raise self.missing(row, asked)
        return str(found)

    def missing(self, row: Row, asked: str | None = None) -> BadRowError:
        """Returns the error about a row without the column."""
        expected = " or ".join(map(repr, self.names if asked is None else (asked,)))
        advice = f". Pass --{self.flag}" if self.flag else ""
        return BadRowError(f"no column {expected} among {files.quote_all(row)}{advice}")


LABEL = Field(
    "label",
    ("label", "labels", "score", "gold_label", "is_duplicate"),
    flag="label_column",
    prefers_name=True,
)
GUID = Field(
    "id",
    ("guid", "id", "index", "idx", "qid", "uid", "example_id", "pairid"),
    takes_first=True,
)
QUESTION = Field("question", ("question",))
CONTEXT = Field("context", ("context", "passage"))
TOKENS = Field("tokens", ("tokens", "words"), takes_first=True)

# Names that make the first row of a file with labeled examples a header.
_NAMES_IN_PAIRS = tuple(itertools.chain.from_iterable(PAIRS))
NAMES_OF_EXAMPLES = frozenset((*TEXT_A, *TEXT_B, *_NAMES_IN_PAIRS, *LABEL.names, *GUID.names))
# Those for a file to predict, in which "label" or "id" may as well be a text.
NAMES_OF_INPUTS = frozenset(
    (*TEXT_A, *_NAMES_IN_PAIRS, *QUESTION.names, *CONTEXT.names, *TOKENS.names)
)


class Places(dict[str, Column]):
    """Where columns are: name in lower case → index of the cell, or key of the JSON object.

    A name that several columns have raises BadRowError where it is looked up.

    Attributes:
        repeated: these names.
    """

    def __init__(self) -> None:
        super().__init__()
        self.repeated: set[str] = set()

    def __getitem__(self, name: str) -> Column:
        if name in self.repeated:
            raise repeated_name(name)
        return super().__getitem__(name)


def is_header(row: Row | BadRowError, names: Collection[str]) -> bool:
    """Returns whether the first row of a file is a header: whether it has one of `names`.

    Args:
        row: the row.
        names: the names, in lower case, by which a header is recognized.
    """
    return not isinstance(row, (dict, BadRowError)) and not set(names).isdisjoint(places_of(row))


def places_of(row: Row) -> Places:
    """Returns where the columns of a row are.

    Args:
        row: a header or a JSON object.
    """
    keys: Iterable[Column] = row if isinstance(row, dict) else itertools.count()
    places = Places()
    for name, key in zip(map(normalized, row), keys, strict=False):
        if name in places:
            places.repeated.add(name)
        places.setdefault(name, key)
    return places


def find_texts(places: Mapping[str, Column]) -> tuple[Column, Column | None] | None:
    """Returns where the text, or the two texts, of a row are; None if no column has a usual name.

    Args:
        places: see `places_of`.

    Returns:
        The column of the first or only text, and that of the second text or None.

    Raises:
        BadRowError: several columns might be the text, or the pair, or have this name.
    """
    singles = [name for name in TEXT_A if name in places]
    seconds = [name for name in TEXT_B if name in places]
    if "text_a" in singles:  # these names mean nothing else
        singles = ["text_a"]
        seconds = seconds[:1]
    pairs = [pair for pair in PAIRS if places.keys() >= set(pair)]
    if "sentence1" in singles and "sentence2" in seconds:
        pairs.append(("sentence1", "sentence2"))
    elif len(singles) == len(seconds) == 1:
        pairs.append((singles[0], seconds[0]))
    in_pairs = set(itertools.chain.from_iterable(pairs))
    candidates = [*pairs, *((name, "") for name in singles if name not in in_pairs)]
    if not candidates:
        return None
    if len(candidates) > 1:
        named = [" and ".join(filter(None, pair)) for pair in candidates]
        raise BadRowError(f"several columns may be the text: {', or '.join(named)}")
    ((first, second),) = candidates
    return places[first], places[second] if second else None


def named_rows(numbered: Iterator[NumberedRow], names: Collection[str]) -> Iterator[NumberedRow]:
    """Yields rows as name in lower case → cell if the first one is a header, or else as they are.

    Args:
        numbered: rows of cells with their line numbers.
        names: see `is_header`.

    Yields:
        The line number, and the row, or an error if its width is not that of the header.
    """
    first = next(numbered, None)
    if first is None:
        return
    numbered = itertools.chain([first], numbered)
    yield from name_cells(numbered) if is_header(first[1], names) else numbered


def parse_pair(row: Row) -> tuple[str, str]:
    """Returns the two texts of a pair; the second is "" if the row has one text."""
    if not isinstance(row, dict):
        first, second = [*unnamed_texts(row, 2), ""][:2]
        return first, second
    column_a, column_b = _text_columns(row)
    return text_cell(row, column_a), "" if column_b is None else text_cell(row, column_b)


def parse_text(row: Row) -> str:
    """Returns the text of a row."""
    if not isinstance(row, dict):
        return unnamed_texts(row, 1)[0]
    return text_cell(row, _text_columns(row)[0])


def _text_columns(row: files.JsonObject) -> tuple[Column, Column | None]:
    """Returns the columns of the texts with usual names; None for the second if there is none.

    Raises:
        BadRowError: there are no such columns, or several may be meant.
    """
    found = find_texts(places_of(row))
    if found is None:
        expected = " or ".join(map(repr, TEXT_A))
        raise BadRowError(f"expected {expected}, found {files.quote_all(row)}")
    return found


def unnamed_texts(row: Sequence[str], most: int) -> Sequence[str]:
    """Returns the cells of a row of a file without a header.

    Raises:
        BadRowError: there are more than `most`, the number of texts that the task takes; or one
            contains a lone surrogate.
    """
    if len(row) > most:
        raise BadRowError(
            f"expected {most} or fewer columns, got {len(row)}: {files.quote_all(row)}. Leave out "
            "the others, or name the columns in the first line of a .tsv or .csv file, such as "
            "text and text_b"
        )
    return [check_text(cell, "the text") for cell in row]


# Names of columns that are texts, besides those that are used by default.
_NAMES = NAMES_OF_INPUTS | {"title", "content", "body", "headline", "summary", "description"}
_WORD = re.compile(r"[^\W\d_]+")
_CHINESE = re.compile("[\u3400-\u9fff]")
_MIN_WORDS, _MIN_CHINESE = 3, 4  # in the mean over rows; fewer may be a category or a name
MAX_ROWS = 100  # which are looked at
FLAGS = "Pass --text_a_column, and --text_b_column for a second text, to say what is the text"


class UnusedTexts:
    """The unused columns of a file, and whether they have texts.

    Args:
        places: name of each column in lower case → the column.
        used: the columns that are used.
    """

    def __init__(self, places: Mapping[str, Column], used: Collection[Column]) -> None:
        self._places = {name: column for name, column in places.items() if column not in used}
        self._values: dict[str, list[str]] = {name: [] for name in self._places}
        self._num_rows = 0

    def add(self, row: Row) -> None:
        """Looks at a row, if it is one of the first."""
        if self._num_rows == MAX_ROWS:
            return
        self._num_rows += 1
        for name, column in self._places.items():
            value = value_in(row, column)
            if isinstance(value, str) and value.strip():
                self._values[name].append(value)

    def report(self, path: str, advice: str = FLAGS) -> None:
        """Warns of the columns that have texts.

        Args:
            path: the file.
            advice: what to do if they are to be used.
        """
        names = self.names()
        if names:
            logging.warning(
                "%s: not used, but seems to have texts: %s. %s",
                path,
                files.quote_all(names),
                advice,
            )

    def names(self) -> list[str]:
        """Returns the names of the columns that have texts."""
        return [name for name, values in self._values.items() if _are_texts(name, values)]


def value_in(row: Row, column: Column) -> files.Json:
    """Returns the value in a column of a row; None if there is none."""
    if isinstance(row, dict):
        return row.get(str(column))
    return row[int(column)] if int(column) < len(row) else None


def _are_texts(name: str, values: Sequence[str]) -> bool:
    """Returns whether a column has texts, by its name, or by its values in several rows."""
    if not values or len(set(values)) * 2 <= len(values):
        return False
    if name in _NAMES:
        return True
    words = sum(len(_WORD.findall(value)) for value in values)
    characters = sum(len(_CHINESE.findall(value)) for value in values)
    return words >= _MIN_WORDS * len(values) or characters >= _MIN_CHINESE * len(values)
