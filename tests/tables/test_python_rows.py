"""Rows of Python are a table as those of files are."""

from __future__ import annotations

import numpy as np
import pytest

from albert_tf.tables import BadRowError, LabelNames
from albert_tf.tables.python_rows import table_of

ROWS = [
    {"text": "one", "label": 1, "score": 0.5, "tags": ["B", "O"]},
    {"text": "two", "label": 0, "score": None, "tags": []},
]


class ClassLabel:
    """The feature of `datasets` with the names of labels."""

    def __init__(self, *names):
        self.names = list(names)


class Sequence:
    """The feature of `datasets` for lists."""

    def __init__(self, feature):
        self.feature = feature


class Dataset(list):
    """Rows with features, as `datasets.Dataset` has them."""

    features = {  # noqa: RUF012
        "text": object(),
        "label": ClassLabel("no", "yes"),
        "tags": Sequence(ClassLabel("B", "O")),
    }


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        iter(ROWS),
        (dict(row) for row in ROWS),
        Dataset(ROWS),
        [{"text": row["text"], "label": np.int64(row["label"])} | row for row in ROWS],
        [row | {"tags": np.array(row["tags"]), "text": np.str_(row["text"])} for row in ROWS],
    ],
)
def test_rows_are_the_same_of_every_kind_and_can_be_read_twice(rows):
    table = table_of(rows, "data['train']")
    for _ in range(2):
        assert repr(list(table)) == repr(list(enumerate(ROWS, 1)))
    assert table.place(2) == "data['train'], row 2"


def test_the_rows_of_a_frame_are_the_same_and_are_read_in_parts():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS)
    for each in (frame, frame.convert_dtypes()):
        assert repr(list(table_of(each, "x"))) == repr(list(enumerate(ROWS, 1)))
    large = pandas.DataFrame({"n": range(2500)})
    assert [row["n"] for _, row in table_of(large, "x")] == list(range(2500))


def test_a_frame_with_two_columns_of_a_name_is_refused():
    pandas = pytest.importorskip("pandas")
    for names in (["a", "b", "a"], [1, "b", "1"]):
        with pytest.raises(
            ValueError, match=f"^x: several columns are called '{names[0]}': rename"
        ):
            table_of(pandas.DataFrame([[1, 2, 3]], columns=names), "x")


def test_features_tell_the_names_of_labels():
    assert table_of(Dataset(ROWS), "x").labels == {
        "label": LabelNames(("no", "yes")),
        "tags": LabelNames(("B", "O"), is_list=True),
    }


@pytest.mark.parametrize("rows", ["train.csv", {"text": ["one"]}, 3, None])
def test_what_has_no_rows_is_refused(rows):
    with pytest.raises(ValueError, match=r"data\['dev'\]: expected an iterable of dicts, .*, got"):
        table_of(rows, "data['dev']")


def test_a_row_that_is_no_dict_is_named():
    ((number, row),) = table_of([["one"]], "x")
    assert (number, type(row), str(row)) == (1, BadRowError, "expected a dict, got ['one']")
