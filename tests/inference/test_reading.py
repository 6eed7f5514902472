"""Tests that rows of files and pipes are parsed or reported."""

from __future__ import annotations

import io
import os
import threading
import types

import pytest

from albert_tf.finetuning.rows import BadRowError
from albert_tf.finetuning.texts import parse_pair, parse_text
from albert_tf.inference import reading
from albert_tf.race.reading import parse_choice
from albert_tf.squad.reading import parse_question
from albert_tf.token_classification.reading import parse_words


def read(path, form, parse=parse_pair):
    blocks = list(reading.read_blocks(str(path), form, parse))
    return [row for block in blocks for row in block]


@pytest.mark.parametrize(
    ("form", "content", "pairs"),
    [
        ("txt", "a b\n\nc\td\n", [(1, ("a b", "")), (2, ("", "")), (3, ("c", "d"))]),
        ("txt", "\ufeffa\r\nb", [(1, ("a", "")), (2, ("b", ""))]),
        ("tsv", "id\tsentence2\tsentence1\n7\tb\ta\n", [(2, ("a", "b"))]),
        ("tsv", "a\tb\n", [(1, ("a", "b"))]),
        ("csv", 'text,text_b\n"a, b","c\nd"\ne,f\n', [(2, ("a, b", "c\nd")), (4, ("e", "f"))]),
        ("jsonl", '{"text": "a"}\n"b"\n', [(1, ("a", "")), (2, ("b", ""))]),
        ("jsonl", '{"text_a": "a", "text_b": "b"}\n', [(1, ("a", "b"))]),
    ],
)
def test_texts_are_read_from_every_format(tmp_path, form, content, pairs):
    path = tmp_path / "inputs"
    path.write_bytes(content.encode())
    assert read(path, form) == pairs


@pytest.mark.parametrize(
    ("form", "content", "message"),
    [
        ("txt", b"a\nb\xff\n", "line 2: not UTF-8: byte 0xff"),
        ("csv", b"text\na\n\xe4\n", "line 3: not UTF-8: byte 0xe4"),
        ("jsonl", b'{"text": "a"}\n{"text"\n', "line 2: expected a JSON object"),
        ("jsonl", b"[1]\n", "line 1: a JSON array, expected one JSON object per line"),
        ("jsonl", b"1\n", "line 1: expected a JSON object or string"),
        ("jsonl", b'{"title": "a"}\n', "line 1: expected 'text_a' or .*, found 'title'"),
        ("jsonl", b'{"text": 5}\n', "line 1: 'text' is 5, expected text"),
        ("jsonl", b'{"text": "\\ud800"}\n', "a lone surrogate"),
        ("jsonl", b'"\\ud800"\n', "line 1: the text contains a lone surrogate"),
        ("tsv", b"text\ttext_b\na\n", "line 2: expected 2 columns, as in the header, got 1"),
        ("tsv", b"text\na\tb\n", "line 2: expected 1 columns, as in the header, got 2"),
        ("csv", b"text,text_b\na,b,c\n", "line 2: expected 2 columns, as in the header, got 3"),
        ("txt", b"a\nb\tc\td\n", "line 2: expected 2 or fewer columns, got 3"),
        ("txt", b"", "contains no input"),
        ("csv", b'text\n"a\n', r"inputs, line 2: not comma-separated values"),
    ],
)
def test_bad_rows_are_reported(tmp_path, form, content, message):
    path = tmp_path / "inputs"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read(path, form)


@pytest.mark.parametrize(
    ("content", "is_said"),
    [
        ("text,title\nIt rains.,A wet day\n", True),
        ("text,text_b\nIt rains.,A wet day\n", False),
        ("text,label\nIt rains.,a wet day\n", False),
        ("text,source\nIt rains.,web\n", False),
    ],
)
def test_text_that_is_not_read_causes_a_warning(tmp_path, content, is_said, caplog):
    (tmp_path / "a.csv").write_text(content)
    assert len(read(tmp_path / "a.csv", "csv")) == 1
    assert ("there is text in 'title'" in caplog.text) == is_said
    caplog.clear()
    read(tmp_path / "a.csv", "csv", parse_text)
    assert not caplog.text


def test_long_lines_and_files_are_read_in_blocks(tmp_path):
    path = tmp_path / "long.txt"
    texts = ["x" * 200_000, *map(str, range(2000)), "y" * 70_000]
    path.write_text("\n".join(texts))
    blocks = list(reading.read_blocks(str(path), "txt", parse_text))
    assert [text for block in blocks for _, text in block] == texts
    assert [len(block) for block in blocks] == [1024, 978]


def test_lines_of_a_pipe_are_yielded_as_they_arrive(monkeypatch):
    receive, send = os.pipe()
    with open(receive, "rb") as stream:
        monkeypatch.setattr(reading.sys, "stdin", types.SimpleNamespace(buffer=stream))
        blocks = reading.read_blocks("-", "txt", parse_text)
        os.write(send, b"a\nb\nhalf ")
        assert next(blocks) == [(1, "a"), (2, "b")]
        os.write(send, b"a line\nlast")
        assert next(blocks) == [(3, "half a line")]
        threading.Timer(0.01, os.close, [send]).start()
        assert list(blocks) == [[(4, "last")]]


def test_bad_rows_of_a_pipe_are_reported(monkeypatch):
    stream = types.SimpleNamespace(buffer=io.BytesIO(b"a\n\xff\n"))
    monkeypatch.setattr(reading.sys, "stdin", stream)
    blocks = reading.read_blocks("-", "txt", parse_text)
    assert next(blocks) == [(1, "a")]  # the rows before are yielded
    with pytest.raises(ValueError, match="standard input, line 2: not UTF-8"):
        next(blocks)


def test_inputs_are_texts_tokens_questions_or_choices():
    choice = {"passage": "p", "question": "q", "options": ["a", "b"], "label": "unknown"}
    assert parse_words({"text": "a b"}) == "a b"
    assert parse_words({"tokens": ["a", "b"]}) == ["a", "b"]
    assert parse_question({"question": "q", "context": "c"}) == ("q", "c")
    assert parse_question(["q", "c"]) == ("q", "c")
    assert parse_choice(choice).options == ("a", "b")


@pytest.mark.parametrize(
    ("parse", "row", "problem"),
    [
        (parse_words, {"tokens": "a"}, "'tokens': expected a list"),
        (parse_words, {"tokens": [5]}, "a token is 5, expected text"),
        (parse_words, ["a", "b"], "1 or fewer columns, got 2"),
        (parse_question, {"question": "q", "context": " "}, "the context is empty"),
        (parse_question, ["q"], "2 or more columns"),
        (parse_question, ["q", "c", "d"], "2 or fewer columns, got 3"),
        (parse_choice, {"passage": "p", "options": ["a"]}, "a list of two or more"),
        (parse_choice, ["p", "q"], "a JSON object"),
    ],
)
def test_rows_that_are_no_input_are_refused(parse, row, problem):
    with pytest.raises(BadRowError, match=problem):
        parse(row)
