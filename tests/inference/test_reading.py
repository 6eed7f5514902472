"""Inputs of run_predict.py: rows of files and pipes."""

from __future__ import annotations

import io
import types

import pytest

from albert_tf.finetuning.race.questions import parse_choice
from albert_tf.finetuning.rows import BadRowError
from albert_tf.finetuning.squad.reading import parse_question
from albert_tf.finetuning.texts import parse_pair, parse_text
from albert_tf.finetuning.token_classification.sentences import parse_words
from albert_tf.inference import inputs

CHOICE = {"passage": "p", "question": "q", "options": ["a", "b"]}


def read(path, form, parse=parse_pair):
    return [row for block in inputs.read_blocks(str(path), form, parse) for row in block]


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
    (tmp_path / "inputs").write_bytes(content.encode())
    assert read(tmp_path / "inputs", form) == pairs


@pytest.mark.parametrize(
    ("form", "content", "said"),
    [
        ("txt", b"a\nb\xff\n", r"inputs, line 2: not UTF-8 \(byte 0xff"),
        ("txt", b"a\nb\tc\td\n", "line 2: expected 2 or fewer columns, got 3"),
        ("txt", b"", "contains no input"),
        ("tsv", b"text\ttext_b\na\n", "line 2: expected 2 columns, as in the header, got 1"),
        ("csv", b'text\n"a\n', r"inputs, line 2: not comma-separated values"),
        ("jsonl", b'{"text": "a"}\n{"text"\n', "line 2: expected one JSON object"),
        ("jsonl", b"[1]\n", "line 1: expected one JSON object per line"),
        ("jsonl", b'{"title": "a"}\n', "line 1: expected 'text_a' or .*, found 'title'"),
        ("jsonl", b'{"text": 5}\n', "line 1: 'text' is 5, expected text"),
        ("jsonl", b'"\\ud800"\n', "line 1: the text contains a lone surrogate"),
    ],
)
def test_bad_rows_are_named_with_their_lines(tmp_path, form, content, said):
    (tmp_path / "inputs").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read(tmp_path / "inputs", form)


def test_long_lines_and_files_are_read_in_blocks(tmp_path):
    texts = ["x" * 200_000, *map(str, range(2000)), "y" * 70_000]
    (tmp_path / "long.txt").write_text("\n".join(texts))
    blocks = list(inputs.read_blocks(str(tmp_path / "long.txt"), "txt", parse_text))
    assert [text for block in blocks for _, text in block] == texts
    assert [len(block) for block in blocks] == [1024, 978]


def test_standard_input_is_read_like_a_file(monkeypatch):
    stream = types.SimpleNamespace(buffer=io.BytesIO("\ufeffa\n\nb".encode()))
    monkeypatch.setattr(inputs.sys, "stdin", stream)
    assert inputs.read_blocks("-", "txt", parse_text) == [[(1, "a"), (2, ""), (3, "b")]]
    stream.buffer = io.BytesIO(b"a\n\xff\n")
    with pytest.raises(ValueError, match="standard input, line 2: not UTF-8"):
        inputs.read_blocks("-", "txt", parse_text)


@pytest.mark.parametrize(
    ("parse", "row", "parsed"),
    [
        (parse_words, {"text": "a b"}, "a b"),
        (parse_words, {"tokens": ["a", "b"]}, ["a", "b"]),
        (parse_question, {"question": "q", "context": "c"}, ("q", "c")),
        (parse_question, ["q", "c"], ("q", "c")),
        (parse_choice, CHOICE | {"label": "unknown"}, parse_choice(CHOICE)),
    ],
)
def test_rows_of_other_tasks_are_tokens_questions_or_choices(parse, row, parsed):
    assert parse(row) == parsed


@pytest.mark.parametrize(
    ("parse", "row", "said"),
    [
        (parse_words, {"tokens": "a"}, "'tokens': expected a list"),
        (parse_words, {"tokens": [5]}, "a token is 5, expected text"),
        (parse_question, {"question": "q", "context": " "}, "the context is empty"),
        (parse_text, ["a", "b"], "expected 1 or fewer columns, got 2"),
        (parse_pair, ["a", "b", "c"], "expected 2 or fewer columns, got 3"),
        (parse_question, ["q", "c", "d"], "2 or fewer columns, got 3"),
        (parse_choice, {"passage": "p", "options": ["a"]}, "a list of two or more"),
        (parse_choice, ["p", "q"], "a JSON object"),
    ],
)
def test_rows_that_are_no_input_are_refused(parse, row, said):
    with pytest.raises(BadRowError, match=said):
        parse(row)
