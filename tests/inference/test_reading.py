"""Inputs of run_predict.py: rows of files and pipes."""

from __future__ import annotations

import datetime
import decimal
import gzip
import io
import json
import types

import pyarrow
import pytest
from pyarrow import parquet

from albert_tf.finetuning.columns import parse_pair, parse_text
from albert_tf.finetuning.race.questions import parse_choice
from albert_tf.finetuning.squad.questions import parse_question
from albert_tf.finetuning.token_classification.sentences import parse_words
from albert_tf.inference import inputs
from albert_tf.inference.settings import Settings

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
        ("csv", "a; b\nc, d\n", [(1, ("a; b", "")), (2, ("c", " d"))]),
        ("jsonl", '{"text": "a"}\n"b"\n', [(1, ("a", "")), (2, ("b", ""))]),
        ("jsonl", '{"text_a": "a", "text_b": "b"}\n', [(1, ("a", "b"))]),
    ],
)
def test_texts_are_read_from_every_format(tmp_path, form, content, pairs):
    (tmp_path / "inputs").write_bytes(content.encode())
    assert read(tmp_path / "inputs", form) == pairs


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


ROWS = [{"idx": 7, "text": "a", "other": 1}, {"idx": 9, "text": "b", "other": 2}]


def write_parquet(path):
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)


def write_array(path):
    path.write_bytes(gzip.compress(json.dumps(ROWS).encode()))


def write_lines(path):
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS) + "\n")


def write_csv(path):
    path.write_text("idx,text,other\n7,a,1\n9,b,2\n")


@pytest.mark.parametrize(
    ("name", "write", "unit", "first"),
    [
        ("a.parquet", write_parquet, "row", 1),
        ("a.json.gz", write_array, "row", 1),
        ("a.jsonl", write_lines, "line", 1),
        ("a.csv", write_csv, "line", 2),
    ],
)
def test_inputs_of_every_format_keep_their_place_and_ids(tmp_path, name, write, unit, first):
    write(tmp_path / name)
    settings = Settings(model_dir="m", input_file=str(tmp_path / name))
    read = inputs.read_inputs(settings, parse_text)
    ids = ("7", "9") if name == "a.csv" else (7, 9)
    expected = [({unit: first + n, "idx": ids[n]}, text) for n, text in enumerate("ab")]
    assert (read.total, list(read), list(read)) == (2, [expected], [expected])


def test_ids_of_any_type_are_written_as_json(tmp_path):
    ids = [datetime.date(2024, 2, 29), decimal.Decimal("1.50"), float("nan"), {"n": ["\u00e9"]}]
    written = []
    for value in ids:
        table = pyarrow.table({"text": ["a"], "id": [value]})
        parquet.write_table(table, tmp_path / "a.parquet")
        settings = Settings(model_dir="m", input_file=str(tmp_path / "a.parquet"))
        blocks = inputs.read_inputs(settings, parse_text)
        written += [origin["id"] for block in blocks for origin, _ in block]
    assert written == ["2024-02-29", "1.50", None, {"n": ["\u00e9"]}]


def test_only_a_block_of_inputs_is_in_memory(tmp_path):
    (tmp_path / "a.txt").write_text("x\n" * 3000)
    seen = []
    settings = Settings(model_dir="m", input_file=str(tmp_path / "a.txt"))
    read = inputs.read_inputs(settings, lambda row: seen.append(row) or row[0])
    assert (read.total, len(seen)) == (3000, 3000)
    next(iter(read))
    assert len(seen) == 3000 + inputs.ROWS_AT_ONCE


def test_blank_lines_at_the_end_of_a_text_are_inputs_and_letters_are_no_format(tmp_path):
    (tmp_path / "a.txt").write_text("PAR1 is a gene\n\n")
    assert read(tmp_path / "a.txt", "txt", parse_text) == [(1, "PAR1 is a gene"), (2, "")]


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
    ("row", "parse", "names"),
    [
        ({"title": "a", "text": "b"}, parse_pair, "'title'"),
        ({"question1": "a", "question2": "b"}, parse_text, "'question2'"),
        ({"question1": "a", "question2": "b"}, parse_pair, ""),
        ({"text": "b", "label": "pos", "id": "7", "author": "Ann Lee"}, parse_pair, ""),
        ({"title": "a", "question": "b", "context": "c"}, parse_question, ""),
        (CHOICE | {"title": "a"}, parse_choice, ""),
        ({"tokens": ["a"], "text": "a"}, parse_words, ""),
    ],
)
def test_a_column_with_texts_that_is_not_predicted_is_named(tmp_path, caplog, row, parse, names):
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    settings = Settings(model_dir="m", input_file=str(tmp_path / "a.jsonl"))
    assert inputs.read_inputs(settings, parse).total == 1
    said = f"a.jsonl: not used, but seems to have texts: {names}. Name the text to predict text"
    assert (said in caplog.text, bool(caplog.messages)) == (bool(names), bool(names))
