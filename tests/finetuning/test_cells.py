"""Values in the cells of rows, and what is wrong with them."""

import pytest

from albert_tf.finetuning.rows import (
    BadRowError,
    ShortRowError,
    cell,
    check_name,
    text_cell,
)


def test_cells_are_found_by_index_or_key():
    assert cell(["a", "b", "c"], 1) == "b"
    assert cell(["a", "b", "c"], -1) == "c"
    assert cell(["a", "b", "c"], 2) == "c"
    assert cell(["a", "b"], -1) == "b"
    assert cell(["a", "b", "c"], -2) == "b"
    assert cell({"a": 5}, "a") == 5
    assert text_cell({"t": ["a", "b c"]}, "t") == "a b c"


@pytest.mark.parametrize(
    ("row", "column", "problem"),
    [
        (["a", "b", "c"], 3, "expected 4 or more columns, got 3"),
        (["a"], -1, "2 or more columns"),  # the only column cannot be both text and label
        (["a", "b"], -2, "3 or more columns"),
        ({"a": 1, "b": 2}, "x", "no key 'x' among 'a', 'b'"),
        ({"t": 5}, "t", "'t' is 5, expected text"),
        ({"t": b"a"}, "t", "'t' is .b'a'., expected text"),  # from Parquet, as are times
        ({"t": ["a", 5]}, "t", "expected text"),
        ({"t": "a\ud800"}, "t", "'t' contains a lone surrogate"),
    ],
)
def test_cells_that_are_missing_or_no_text_are_refused(row, column, problem):
    with pytest.raises(ShortRowError if isinstance(row, list) else BadRowError, match=problem):
        text_cell(row, column)


def test_names_fit_into_a_cell():
    assert check_name("  a b ", "the label") == "a b"
    assert check_name(2.5, "the label") == "2.5"
    for name in ("", "  ", "a\tb", "a\nb", "a\u2028b"):
        with pytest.raises(BadRowError, match=r"the label is .*, expected text without tabs"):
            check_name(name, "the label")
