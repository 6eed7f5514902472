"""How what is wrong in the rows of files is named."""

import pytest

from albert_tf.finetuning import rows
from albert_tf.finetuning.rows import BadRowError, parse_rows


def test_the_first_bad_rows_are_named_after_the_good_ones():
    def parse(row, place):
        if row == "bad":
            raise BadRowError("crooked")
        return row.upper()

    given = [*zip(range(4, 7), ("one", "bad", "two"), strict=True), ("x 7", BadRowError("bent"))]
    parsed = parse_rows("x.tsv", given, parse)
    assert [next(parsed), next(parsed)] == [(4, "ONE"), (6, "TWO")]
    with pytest.raises(ValueError, match=r"\Ax.tsv, line 5: crooked\nx.tsv, x 7: bent\Z"):
        next(parsed)
    nine = [(line, "bad") for line in range(9)]
    eight = ", ".join(f"line {line}" for line in range(1, 9))
    with pytest.raises(ValueError, match=rf"\Ax.tsv, line 0: crooked; likewise {eight}\Z"):
        list(parse_rows("x.tsv", [*nine, (9, "good")], parse))
    left = iter(range(8, 20))
    with pytest.raises(ValueError, match=r"line 8: crooked; likewise .*, line 17\Z"):
        list(parse_rows("x.tsv", [(7, "good"), *((line, "bad") for line in left)], parse))
    errors = [BadRowError(f"label '{letter}': unknown") for letter in "abc"]
    rows_of_kinds = [*enumerate([errors[0], "bad", errors[1], "bad", "good", errors[2]])]
    said = r"\Ax, line 0: label 'a': unknown; likewise line 2, line 5\nx, line 1: .*ise line 3\Z"
    with pytest.raises(ValueError, match=said):
        list(parse_rows("x", rows_of_kinds, parse))


def test_a_file_without_a_good_row_is_named_in_one_line():
    def parse(row, place):
        raise BadRowError("no question")

    left = iter(range(8, 20))
    said = r"\Ax.tsv, line 8: no question; so are the next 9 rows, and none is good\Z"
    with pytest.raises(rows.NoGoodRowError, match=said):
        list(parse_rows("x.tsv", ((line, "row") for line in left), parse))
    assert next(left) == 18
    said = r"\Ax.tsv, line 1: no question; so is the other row, and none is good\Z"
    with pytest.raises(rows.NoGoodRowError, match=said):
        list(parse_rows("x.tsv", [(1, "row"), (2, "row")], parse))
    labels = [(line, BadRowError(f"label '{line}': expected a list")) for line in (1, 2, 3)]
    with pytest.raises(rows.NoGoodRowError, match=r"\Ax.tsv, line 1: label '1': .*other 2 rows"):
        list(parse_rows("x.tsv", labels, parse))
    said = r"\Ax.tsv, line 1: no question; there is no other row\Z"
    with pytest.raises(rows.NoGoodRowError, match=said):
        list(parse_rows("x.tsv", [(1, "row")], parse))


def test_at_most_ten_names_are_in_a_message():
    letters = list("abcdefghijk")
    assert rows.abbreviate(letters[:10]) == "a, b, c, d, e, f, g, h, i, j"
    assert rows.abbreviate(letters) == "a, b, c, d, e, f, g, h, i, j, …"
    assert rows.abbreviate(letters[:3], most=3) == "a, b, c"
    assert rows.abbreviate(letters[:4], most=3) == "a, b, c, …"
