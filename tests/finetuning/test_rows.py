"""Rows of files, and how what is wrong in them is named."""

import pytest

from albert_tf.finetuning import rows
from albert_tf.finetuning.rows import BadRowError, parse_rows


@pytest.fixture
def write(tmp_path):
    def write_file(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return str(path)

    return write_file


def test_only_tabs_separate_cells_and_only_line_feeds_end_rows(write):
    path = write("a.tsv", '\ufeffone "two\t three,\t\n\u2028four\x0bfive\x85six\r\n\n"\n\n \n')
    assert list(rows.read(path)) == [
        (1, ['one "two', " three,", ""]),
        (2, ["\u2028four\x0bfive\x85six"]),
        (3, [""]),
        (4, ['"']),
    ]


def test_csv_may_contain_quotes_line_feeds_and_long_fields(write):
    long = "x" * 300_000
    path = write("a.csv", f'text,label\n"one, ""two""\nthree",1\n\n{long},0\n')
    expected = [(1, ["text", "label"]), (2, ['one, "two"\nthree', "1"]), (5, [long, "0"])]
    assert list(rows.read(path)) == expected


def test_json_lines_are_objects(write):
    path = write("a.jsonl", '{"a": 1}\n{"b": "ü"}\r\n{"c": "\\ud83d\\ude00"}\n')
    assert list(rows.read(path)) == [(1, {"a": 1}), (2, {"b": "ü"}), (3, {"c": "😀"})]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.tsv", b"a\nb\n\xff\n", "line 3: not UTF-8"),
        ("a.csv", b'a,b\n"c,d\n', "line 2: not comma-separated values"),
        ("a.jsonl", b'{"a": 1}\n[1]\n', r"line 2: expected one JSON object per line, got '\[1\]'"),
        ("a.jsonl", b'{"a": 1}\n{"a": \n', "line 2: expected one JSON object per line"),
        ("a.json", b'[{"a": 1},\n {"a": 2}]\n', "line 1: .*expected one JSON object per line"),
    ],
)
def test_rows_that_cannot_be_read_are_named(write, name, content, problem):
    path = write(name, content)
    with pytest.raises(ValueError, match=rf"{name}, {problem}"):
        list(parse_rows(path, rows.read(path), lambda row, line: row))


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
    with pytest.raises(ValueError, match="line 8: crooked") as error:
        list(parse_rows("x.tsv", [*nine, (9, "good")], parse))
    assert len(str(error.value).splitlines()) == 9
    left = iter(range(8, 20))
    with pytest.raises(ValueError, match="line 9: crooked") as error:
        list(parse_rows("x.tsv", ((line, "bad") for line in left), parse))
    assert (len(str(error.value).splitlines()), next(left)) == (10, 18)


def test_at_most_ten_names_are_in_a_message():
    letters = list("abcdefghijk")
    assert rows.abbreviate(letters[:10]) == "a, b, c, d, e, f, g, h, i, j"
    assert rows.abbreviate(letters) == "a, b, c, d, e, f, g, h, i, j, …"
    assert rows.abbreviate(letters[:3], most=3) == "a, b, c"
    assert rows.abbreviate(letters[:4], most=3) == "a, b, c, …"
