import json

import pytest
from absl import logging

from albert_tf.finetuning import rows
from albert_tf.finetuning.rows import BadRowError, RowReports, ShortRowError


@pytest.fixture
def write(tmp_path):
    def write_file(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return str(path)

    return write_file


def test_only_tabs_separate_cells_and_only_line_feeds_end_rows(write):
    path = write("a.tsv", 'one "two\t three,\t\n\u2028four\x0bfive\x85six\r\n\n"\n\n \n')
    assert list(rows.read(path)) == [
        (1, ['one "two', " three,", ""]),
        (2, ["\u2028four\x0bfive\x85six"]),
        (3, [""]),
        (4, ['"']),
    ]


def test_a_byte_order_mark_is_not_text(write):
    path = write("a.txt", b"\xef\xbb\xbfa\tb\n")
    assert list(rows.read(path)) == [(1, ["a", "b"])]


def test_a_carriage_return_inside_a_line_is_a_bad_row(write):
    path = write("a.tsv", "a\tb\nc\rd\te\nf\n")
    (_, first), (line, bad), (_, last) = rows.read(path)
    assert (first, last) == (["a", "b"], ["f"])
    assert line == 2
    with pytest.raises(BadRowError, match="carriage return"):
        raise bad


def test_csv_may_contain_quotes_line_feeds_and_long_fields(write):
    long = "x" * 300_000
    path = write("a.csv", f'text,label\n"one, ""two""\nthree",1\n\n{long},0\n')
    assert list(rows.read(path)) == [
        (1, ["text", "label"]),
        (2, ['one, "two"\nthree', "1"]),
        (5, [long, "0"]),
    ]


def test_an_error_names_the_line_with_an_unclosed_quote(write):
    path = write("a.csv", 'a,b\n"c,d\n')
    with pytest.raises(ValueError, match=r"a\.csv, line 2: not comma-separated"):
        list(rows.read(path))


def test_json_lines_that_are_not_objects_are_bad_rows(write):
    path = write("a.jsonl", '{"a": 1}\n[1]\n{"a": \n\n{"b": "ü"}\r\n')
    found = list(rows.read(path))
    assert [line for line, _ in found] == [1, 2, 3, 4, 5]
    assert found[0][1] == {"a": 1}
    assert found[4][1] == {"b": "ü"}
    for _, row in found[1:4]:
        assert isinstance(row, BadRowError)
    assert "JSON array" in str(found[1][1])


@pytest.mark.parametrize("text", ['[{"a": 1},\n {"a": 2}]\n', '[\n{"a": 1}\n]\n', '{\n"a": 1}\n'])
def test_json_that_is_not_one_object_per_line_is_named(write, text):
    (_, row), *_ = rows.read(write("a.json", text))
    assert "expected one JSON object per line" in str(row)


def test_labels_that_differ_in_case_alone_are_refused():
    rows.check_case({"Pos": 2, "neg": 1}, "train.csv")
    with pytest.raises(ValueError, match=r"train.csv: .* 'Pos' \(line 2\) and 'pos' \(line 7\)"):
        rows.check_case({"pos": 7, "Pos": 2, "neg": 1}, "train.csv")


def test_an_error_names_the_line_that_is_not_utf_8(write):
    path = write("a.tsv", b"a\nb\n\xff\n")
    with pytest.raises(ValueError, match=r"a\.tsv, line 3: not UTF-8"):
        list(rows.read(path))


def test_cells_are_found_by_index_or_key():
    assert rows.cell(["a", "b", "c"], 1) == "b"
    assert rows.cell(["a", "b", "c"], -1) == "c"
    assert rows.cell({"a": 5}, "a") == 5
    with pytest.raises(ShortRowError, match="expected 4 or more columns, got 3"):
        rows.cell(["a", "b", "c"], 3)
    with pytest.raises(ShortRowError, match="2 or more columns"):
        rows.cell(["a"], -1)  # the only column cannot be both text and label
    with pytest.raises(BadRowError, match="no key 'x' among 'a', 'b'"):
        rows.cell({"a": 1, "b": 2}, "x")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (5, "'t' is 5, expected text"),
        (None, "null"),
        (["a", 5], "expected text"),
        ("a\ud800", "lone"),
    ],
)
def test_values_that_are_not_text_are_rejected(value, problem):
    with pytest.raises(BadRowError, match=problem):
        rows.text_cell({"t": value}, "t")


def test_a_list_of_texts_is_joined():
    assert rows.text_cell({"t": ["a", "b c"]}, "t") == "a b c"


def test_a_lone_surrogate_in_json_is_rejected():
    row = json.loads('{"t": "\\ud83d", "u": "\\ud83d\\ude00"}')
    assert rows.text_cell(row, "u") == "😀"
    with pytest.raises(BadRowError, match="a lone surrogate"):
        rows.text_cell(row, "t")


def test_an_error_names_the_first_bad_rows(monkeypatch):
    logged = []
    monkeypatch.setattr(logging, "warning", lambda text, *args: logged.append(text % args))
    reports = RowReports("data.tsv")
    for line in range(2, 9):
        reports.note(line, "odd")
    reports.check()
    reports.log()
    assert logged == ["data.tsv: odd (7: line 2; line 3; line 4; line 5; line 6; …)"]
    with reports.row("question 3"):
        raise BadRowError("bent")
    with pytest.raises(ValueError, match=r"\Adata.tsv, question 3: bent\Z"):
        reports.check()

    def refuse(row, line):
        raise BadRowError("crooked")

    numbered = [(line, ["a"]) for line in range(4, 15)]
    assert list(reports.parsed([*numbered, (15, BadRowError("broken"))], refuse)) == []
    with pytest.raises(ValueError, match="crooked") as error:
        reports.check()
    said = str(error.value).splitlines()
    assert said[0] == "data.tsv, question 3: bent"
    assert said[9:] == ["data.tsv, line 12: crooked", "13 bad rows in all"]
