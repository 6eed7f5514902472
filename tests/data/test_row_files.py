"""Parquet and Arrow files, and folders of Hugging Face's datasets, read as JSON lines."""

from __future__ import annotations

import json

import pyarrow
import pytest
from pyarrow import parquet

from albert_tf.data import corpus, row_files
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


@pytest.fixture(name="parts")
def small_parts(monkeypatch, tmp_path):
    """A Parquet file of 9 row groups that is divided into several parts."""
    write_parquet(tmp_path / "rows")
    monkeypatch.setattr(row_files, "PART_BYTES", 5000)
    return str(tmp_path / "rows")


def chunks_of(path, chunk_bytes=1000):
    return list(corpus.read_chunks([path], chunk_bytes, "jsonl"))


def test_a_large_parquet_file_is_divided_by_row_group(parts):
    (source,) = find_sources([parts])
    assert [part.first for part in source.parts[1:]] == [part.end for part in source.parts[:-1]]
    assert (source.parts[0].first, source.parts[-1].end) == (0, 9)
    assert [part.first_row for part in source.parts] == [70 * part.first for part in source.parts]
    assert len(source.parts) > 2
    tasks = corpus.plan_tasks([source], 1000, "jsonl")
    assert [task.position for task in tasks] == [(0, part.offset) for part in source.parts]
    assert sum(task.size for task in tasks) < source.size
    assert not any(task.is_stream for task in tasks)
    assert corpus.streams([source], 1000) == []


def test_each_row_of_a_divided_file_is_in_one_chunk(parts):
    chunks = chunks_of(parts)
    data = b"".join(part.data for chunk in chunks for part in chunk.parts)
    assert [json.loads(line) for line in data.splitlines()] == ROWS
    assert len({chunk.position for chunk in chunks}) == len(chunks) > 20


def test_the_chunks_of_a_task_depend_on_nothing_else(parts):
    together = chunks_of(parts)
    tasks = corpus.plan_tasks(find_sources([parts]), 1000, "jsonl")
    alone = [chunk for task in tasks[::-1] for chunk in corpus.read_task(task, 1000, "jsonl")]
    assert sorted(alone, key=lambda chunk: chunk.position) == together


def test_a_file_with_one_part_has_the_chunks_of_json_lines(tmp_path):
    write_parquet(tmp_path / "rows")
    (source,) = find_sources([str(tmp_path / "rows")])
    assert len(source.parts) == 1
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
    (tmp_path / "lines").write_text(lines, encoding="utf-8")
    of_rows, of_lines = (
        [(chunk.position, chunk.checksum) for chunk in chunks_of(str(tmp_path / name))]
        for name in ("rows", "lines")
    )
    assert of_rows == of_lines


def test_lines_of_a_divided_file_are_numbered_by_its_rows(parts):
    for chunk in chunks_of(parts)[::7]:
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


def test_a_folder_of_datasets_names_its_files(tmp_path):
    for name in ("data-00000-of-00002.arrow", "data-00001-of-00002.arrow"):
        write_arrow(pyarrow.ipc.new_stream)(tmp_path / name)
    (tmp_path / "dataset_info.json").write_text("{}")
    names = [f"{tmp_path}/data-0000{n}-of-00002.arrow" for n in (0, 1)]
    assert [source.path for source in find_sources([str(tmp_path)])] == names
    listed = [{"filename": "data-00001-of-00002.arrow"}]
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": listed}))
    assert [source.path for source in find_sources([str(tmp_path)])] == names[1:]
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(ValueError, match="has the splits train, test"):
        find_sources([str(tmp_path)])


def test_another_folder_is_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match="directory without a Hugging Face dataset"):
        find_sources([str(tmp_path)])
