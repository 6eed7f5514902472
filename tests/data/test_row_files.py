"""Parquet and Arrow files, read as JSON lines."""

from __future__ import annotations

import json

import pyarrow
import pytest
from pyarrow import parquet

from albert_tf.data import corpus
from albert_tf.data.settings import TextSettings
from albert_tf.data.sources import find_sources, open_source
from albert_tf.data.text_formats import sentences_of

TEXTS = [f"first line {n}\nsecond 字 “{n}”" for n in range(600)]
ROWS = [{"text": text, "title": f"t{n}"} for n, text in enumerate(TEXTS)]


def table():
    return pyarrow.table({"text": TEXTS, "n": range(600), "title": [f"t{n}" for n in range(600)]})


def write_parquet(path):
    parquet.write_table(table(), path, row_group_size=70)


def write_arrow(new):
    def write(path):
        with new(str(path), table().schema) as writer:
            writer.write_table(table(), max_chunksize=50)

    return write


@pytest.mark.parametrize(
    "write",
    [write_parquet, write_arrow(pyarrow.ipc.new_file), write_arrow(pyarrow.ipc.new_stream)],
)
def test_rows_are_json_lines_of_the_columns_with_text(tmp_path, write):
    path = tmp_path / "rows"
    write(path)
    with open_source(str(path)) as (stream, _):
        assert [json.loads(line) for line in stream] == ROWS
    (source,) = find_sources([str(path)])
    assert source.has_rows
    assert not source.is_splittable
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
    )
    settings = TextSettings(input_format="jsonl")
    found = [
        [
            lines
            for chunk in corpus.read_chunks([str(name)], 5000, "jsonl")
            for lines in sentences_of(chunk.parts, settings)
        ]
        for name in (path, tmp_path / "rows.jsonl")
    ]
    assert found[0] == found[1]
    assert len(found[0]) > 3


def chunks_of(path, chunk_bytes=1000):
    return list(corpus.read_chunks([path], chunk_bytes, "jsonl"))


def test_a_file_has_the_chunks_of_json_lines(tmp_path):
    write_parquet(tmp_path / "rows")
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
    (tmp_path / "lines").write_text(lines, encoding="utf-8")
    of_rows, of_lines = (
        [(chunk.position, chunk.checksum) for chunk in chunks_of(str(tmp_path / name))]
        for name in ("rows", "lines")
    )
    assert of_rows == of_lines


def test_lines_are_numbered_by_the_rows(tmp_path):
    write_parquet(tmp_path / "rows")
    for chunk in chunks_of(str(tmp_path / "rows"))[::7]:
        (part,) = chunk.parts
        first = json.loads(part.data.splitlines()[0])
        assert part.first_line == ROWS.index(first) + 1


def test_another_input_format_is_rejected(tmp_path):
    write_parquet(tmp_path / "rows")
    with pytest.raises(ValueError, match=r"rows is a Parquet or Arrow.* sentences\. Pass"):
        next(corpus.read_chunks([str(tmp_path / "rows")], 5000))


def test_errors_name_the_row(tmp_path):
    parquet.write_table(pyarrow.table({"a": ["x", None]}), tmp_path / "rows")
    for field, message in (("b", "rows, line 1: no field 'b'.*'a'"), ("a", "rows, line 2: field")):
        settings = TextSettings(input_format="jsonl", text_field=field)
        (chunk,) = corpus.read_chunks([str(tmp_path / "rows")], 5000, "jsonl")
        with pytest.raises(ValueError, match=message):
            list(sentences_of(chunk.parts, settings))


@pytest.mark.parametrize("is_parquet", [True, False], ids=["parquet", "arrow"])
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["n", "m"], r"rows: no column contains text; its columns: n \(int64\)"),
        (["text", "text"], "rows: several columns are called 'text'. Rename all but one"),
    ],
)
def test_a_file_without_one_column_of_text_is_rejected(tmp_path, is_parquet, names, message):
    cells = ["a"] if "text" in names else [1]
    rows = pyarrow.Table.from_arrays([pyarrow.array(cells)] * 2, names)
    if is_parquet:
        parquet.write_table(rows, tmp_path / "rows")
    else:
        with pyarrow.ipc.new_file(str(tmp_path / "rows"), rows.schema) as writer:
            writer.write_table(rows)
    with pytest.raises(ValueError, match=message), open_source(str(tmp_path / "rows")):
        pass


@pytest.mark.parametrize("write", [write_parquet, write_arrow(pyarrow.ipc.new_stream)])
def test_a_damaged_file_is_named(tmp_path, write):
    path = tmp_path / "rows"
    write(path)
    path.write_bytes(path.read_bytes()[:-3000])
    with (
        pytest.raises(ValueError, match="rows: corrupt Parquet or Arrow file"),
        open_source(str(path)) as (stream, _),
    ):
        stream.read()


def test_a_folder_is_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected a file, but this is a directory"):
        find_sources([str(tmp_path)])
