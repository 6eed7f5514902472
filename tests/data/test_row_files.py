"""Parquet and Arrow files, and folders of Hugging Face's datasets, read as JSON lines."""

from __future__ import annotations

import json

import pytest

from albert_tf.data import corpus
from albert_tf.data.settings import TextSettings
from albert_tf.data.sources import find_sources, open_source
from albert_tf.data.text_formats import sentences_of

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

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


def test_a_file_without_text_is_rejected(tmp_path):
    parquet.write_table(pyarrow.table({"n": [1]}), tmp_path / "rows")
    with (
        pytest.raises(ValueError, match=r"rows: no column contains text.*n \(int64\)"),
        open_source(str(tmp_path / "rows")),
    ):
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
