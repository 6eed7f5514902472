"""Rows of Python are a table as those of files are."""

from __future__ import annotations

import json

import numpy as np
import pyarrow
import pytest

from albert_tf.tables import BadRowError, LabelNames
from albert_tf.tables.python_rows import table_of, tables_of

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


def of_polars(table):
    return pytest.importorskip("polars", reason="is no dependency").from_arrow(table)


def of_duckdb(table):
    return pytest.importorskip("duckdb", reason="is no dependency").from_arrow(table)


def of_a_stream(table):
    """What has Arrow's C stream interface alone, and can be read only once."""

    class Stream:
        def __init__(self):
            self._reader = table.to_reader(max_chunksize=1)

        def __arrow_c_stream__(self, requested_schema=None):
            return self._reader.__arrow_c_stream__(requested_schema)

    return Stream()


@pytest.mark.parametrize("convert", [lambda table: table, of_a_stream, of_polars, of_duckdb])
def test_rows_of_arrow_tables_are_the_same_and_can_be_read_twice(convert):
    rows = [*ROWS, {"text": "three", "label": 1, "score": float("nan"), "tags": None}]
    table = pyarrow.Table.from_pylist(rows)
    found = table_of(convert(table), "data['train']")
    expected = [*ROWS, rows[2] | {"score": None}]
    for _ in range(2):
        assert repr(list(found)) == repr(list(enumerate(expected, 1)))
    assert found.place(2) == "data['train'], row 2"


def test_the_names_of_labels_are_in_the_metadata_of_an_arrow_table():
    names = {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": names}})}
    table = pyarrow.table({"label": [1]}).replace_schema_metadata(metadata)
    assert table_of(table, "x").labels == {"label": LabelNames(("no", "yes"))}


def test_what_a_table_in_memory_has_wrong_is_named():
    twice = pyarrow.Table.from_arrays([pyarrow.array([1])] * 2, names=["a", "a"])
    with pytest.raises(ValueError, match=r"^x: several columns are called 'a': rename"):
        table_of(twice, "x")
    when = pyarrow.array([0, 1 << 52], pyarrow.timestamp("s"))
    with pytest.raises(ValueError, match=r"^x, row 2: the value of 'when' .* is not one of Python"):
        list(table_of(pyarrow.table({"when": when}), "x"))


def test_a_frame_of_pandas_has_values_of_several_types():
    pandas = pytest.importorskip("pandas")
    rows = [{"label": 1, "spans": {"a": [1]}}, {"label": "one", "spans": {"b": 2}}]
    assert repr(list(table_of(pandas.DataFrame(rows), "x"))) == repr(list(enumerate(rows, 1)))


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


def test_rows_without_the_name_of_their_split_are_refused():
    with pytest.raises(
        ValueError, match=r'^data: expected a dict of splits, such as \{"train": rows'
    ):
        tables_of([{"text": "a"}])


def test_a_row_that_is_no_dict_is_named():
    ((number, row),) = table_of([["one"]], "x")
    assert (number, type(row), str(row)) == (1, BadRowError, "expected a dict, got ['one']")
