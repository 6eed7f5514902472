"""The rows of files of every format, read one at a time."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import json
import lzma
import re
import tarfile
import zipfile

import pyarrow
import pytest
from pyarrow import ipc, parquet

from albert_tf.finetuning.rows import parse_rows
from albert_tf.record_frames import frame_records
from albert_tf.tables import BadRowError, LabelNames, arrow, open_table
from tests.hub_files import compress_zstandard

ROWS = [
    {"text": "one", "label": 1, "tags": [0, 1], "answers": {"text": ["Rome"], "start": [18]}},
    {"text": "two\n“字”", "label": -1, "tags": [], "answers": {"text": [], "start": []}},
    {"text": "three 😀", "label": 0, "tags": [1], "answers": {"text": ["a", "b"], "start": [0, 1]}},
]
CLASS = {"names": ["no", "yes"], "_type": "ClassLabel"}
FEATURES = {
    "text": {"dtype": "string", "_type": "Value"},
    "label": CLASS,
    "tags": {"feature": CLASS, "_type": "List"},
}


@pytest.fixture
def write(tmp_path):
    def write_file(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return str(path)

    return write_file


def arrow_table(features=None):
    table = pyarrow.Table.from_pylist(ROWS)
    if features is None:
        return table
    info = json.dumps({"info": {"features": features}})
    return table.replace_schema_metadata({"huggingface": info})


def pack_parquet(table, at_once=2):
    stream = io.BytesIO()
    parquet.write_table(table, stream, row_group_size=at_once)
    return stream.getvalue()


def pack_arrow(table, at_once=2, new=ipc.new_file):
    stream = io.BytesIO()
    with new(stream, table.schema) as writer:
        writer.write_table(table, max_chunksize=at_once)
    return stream.getvalue()


def pack_arrow_stream(table, at_once=2):
    return pack_arrow(table, at_once, ipc.new_stream)


def test_only_tabs_separate_cells_and_only_line_feeds_end_rows(write):
    path = write("a.tsv", '\ufeffone "two\t three,\t\n\u2028four\x0bfive\x85six\r\n\n"\n\n \n')
    assert list(open_table(path)) == [
        (1, ['one "two', " three,", ""]),
        (2, ["\u2028four\x0bfive\x85six"]),
        (3, [""]),
        (4, ['"']),
    ]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.tsv", "text\tlabel\rone\t1\r\r", [["text", "label"], ["one", "1"]]),
        ("a.csv", 'text,label\r"one",1\r', [["text", "label"], ["one", "1"]]),
        ("a.jsonl", '{"text": "one"}\r{"label": 1}', [{"text": "one"}, {"label": 1}]),
    ],
)
def test_lines_may_end_as_on_old_macs(write, name, content, expected):
    assert [row for _, row in open_table(write(name, content))] == expected


@pytest.fixture
def short_lines(monkeypatch):
    """Lines, rows and values may have 100 bytes."""
    for place in ("albert_tf.files", "albert_tf.files.reading"):
        monkeypatch.setattr(f"{place}.MAX_LINE", 100)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.tsv", b"text\tlabel\n" + b"a" * 101, ", line 2: longer than"),
        ("a.tsv.gz", gzip.compress(b"a" * 101, mtime=0), ", line 1: longer than"),
        ("a.csv", b"a,b\n" + b"a," * 60, ", line 2: longer than"),
        ("a.csv", b'a,b\n"' + b"a\n" * 60, r", line 2: not comma.* \(a row longer than"),
        ("a.csv", b"a,b\n" + b'"\n",' * 60, r", line 2: not comma.* \(a row longer than"),
        ("a.jsonl", b'{"a": "' + b"a" * 101, ", line 1: longer than"),
        ("a.json", b'["a",\n"' + b"a" * 999999, ", line 2: not JSON: Unterminated string"),
    ],
)
def test_a_line_a_row_and_a_value_have_a_limit(write, short_lines, name, content, problem):
    path = write(name, content)
    with pytest.raises(ValueError, match=f"{name}{problem}"):
        list(open_table(path))


def twice(text="a"):
    """A table with two columns of one name."""
    return pyarrow.Table.from_arrays([pyarrow.array([text])] * 3, names=["text", "b", "text"])


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.tsv", "text\tb\tText \na\tb\tc\n", ", line 1: several columns are called 'text'"),
        ("a.csv", "text,b,text\na,b,c\n", ", line 1: several columns are called 'text'"),
        ("a.jsonl", '{"a": 1}\n{"a": 1, "a": 1}', ", line 2: an object has several values of 'a'"),
        (
            "a.json",
            '[{"a": {"b": 1, "b": 2}}]',
            ", line 1: not JSON: an object has .* of 'b'",
        ),
        ("a.parquet", pack_parquet(twice()), ": several columns are called 'text'"),
        ("a.arrow", pack_arrow(twice()), ": several columns are called 'text'"),
        ("a.arrow", pack_arrow_stream(twice()), ": several columns are called 'text'"),
    ],
)
def test_two_columns_of_one_name_are_refused(write, name, content, problem):
    path = write(name, content)

    def read():
        table = open_table(path)
        return list(parse_rows(table.place, table.objects(), lambda row, _: row))

    with pytest.raises(ValueError, match=f"{name}{problem}"):
        read()


def test_two_columns_without_a_name_are_read(write):
    assert list(open_table(write("a.csv", ",text,\n1,a,2\n")).objects()) == [
        (2, {"": "1", "text": "a"})
    ]


OUT_OF_RANGE = [
    pyarrow.array([0, 1 << 52], pyarrow.timestamp("s")),
    pyarrow.array([0, -62135596801], pyarrow.timestamp("s")),
    pyarrow.array([0, -(1 << 31)], pyarrow.date32()),
    pyarrow.array([0, 1 << 62], pyarrow.duration("s")),
    pyarrow.array([None, 0], pyarrow.timestamp("us", tz="Mars/X")),
]


@pytest.mark.parametrize("pack", [pack_parquet, pack_arrow, pack_arrow_stream])
@pytest.mark.parametrize("column", OUT_OF_RANGE)
def test_a_value_that_python_does_not_have_is_named(write, pack, column):
    table = pyarrow.table({"text": ["one", "two"], "when": column})
    table = pyarrow.concat_tables([table.slice(0, 1)] * 300 + [table])
    path = write("a.rows", pack(table.combine_chunks()))
    with pytest.raises(ValueError, match=r"a\.rows, row 302: the value of 'when' \(.*\) is not"):
        list(open_table(path))


@pytest.mark.parametrize(
    "texts",
    [
        [f"{n}" * (1 << 10) for n in range(300)],
        ["x" * (1 << 10)] * 300,  # which a file has once
        [*["x"] * 600, "y" * (1 << 16), *["x"] * 600],
    ],
)
@pytest.mark.parametrize("pack", [pack_parquet, pack_arrow, pack_arrow_stream])
@pytest.mark.parametrize("is_encoded", [False, True])
def test_heavy_rows_are_decoded_a_few_at_a_time(write, monkeypatch, texts, pack, is_encoded):
    for name, limit in (("_BATCH_BYTES", 1 << 14), ("_MOST_BYTES", 1 << 14)):
        monkeypatch.setattr(arrow, name, limit)
    column = pyarrow.array(texts)
    column = column.dictionary_encode() if is_encoded else column
    path = write("a.rows", pack(pyarrow.table({"text": column}), 5000))
    with open(path, "rb") as stream, arrow.open_arrow_table(path, stream) as table:
        sizes = []
        for batch in table.batches():
            parts = batch.to_pylist()
            sizes.append((len(parts), sum(len(row["text"]) for row in parts)))
    assert sum(rows for rows, _ in sizes) == len(texts)
    assert all(rows == 1 or size <= 1 << 14 for rows, size in sizes)
    assert [row["text"] for _, row in open_table(path)] == texts


def test_a_row_larger_than_a_line_may_be_is_refused(write, monkeypatch):
    monkeypatch.setattr(arrow, "_BATCH_BYTES", 1000)
    monkeypatch.setattr(arrow.files, "MAX_LINE", 5000)
    path = write("a.parquet", pack_parquet(pyarrow.table({"text": ["a", "b" * 4900, "c" * 5001]})))
    with pytest.raises(ValueError, match=r"a\.parquet, row 3: larger than"):
        list(open_table(path))


def test_many_rows_and_blank_lines_have_no_limit(write, short_lines):
    content = "".join(f'"{n}\n",b\n' for n in range(90))
    assert len(list(open_table(write("a.csv", content)))) == 90
    rows = list(open_table(write("a.tsv", "a\n" + "\n" * 90 + " \n" * 90 + "b\n\n \n")))
    assert [number for number, row in rows if row in (["a"], ["b"])] == [1, 182]
    assert len(rows) == 182


def test_csv_may_contain_quotes_line_feeds_and_long_fields(write):
    long = "x" * 300_000
    path = write("a.csv", f'text,label\n"one, ""two""\nthree",1\n\n{long},0\n')
    expected = [(1, ["text", "label"]), (2, ['one, "two"\nthree', "1"]), (5, [long, "0"])]
    assert list(open_table(path)) == expected


def test_json_lines_are_objects(write):
    path = write("a.jsonl", '{"a": 1}\n{"b": "ü"}\r\n \n\n{"c": "\\ud83d\\ude00"}\n\n')
    assert list(open_table(path)) == [(1, {"a": 1}), (2, {"b": "ü"}), (5, {"c": "😀"})]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(ROWS),
        json.dumps(ROWS, indent=2, ensure_ascii=False).replace("\n", "\r\n") + "\n \n",
        "\ufeff \n" + json.dumps(ROWS),
    ],
)
def test_an_array_of_objects_is_read_like_lines(write, content):
    assert list(open_table(write("a.json", content))) == list(enumerate(ROWS, 1))


def test_an_array_is_read_in_parts_that_end_anywhere(write, monkeypatch):
    path = write("a.json", json.dumps(ROWS, ensure_ascii=False))
    for size in range(1, 40):
        monkeypatch.setattr("albert_tf.tables.json_stream._BLOCK_BYTES", size)
        assert list(open_table(path)) == list(enumerate(ROWS, 1))


def compress_zip(content):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("folder")
        archive.writestr("folder/whatever", content)
    return stream.getvalue()


# What compresses → the endings of such files.
ENDINGS = {
    bytes: ("",),
    gzip.compress: (".gz", ".gzip"),
    bz2.compress: (".bz2",),
    lzma.compress: (".xz",),
    compress_zip: (".zip",),
    compress_zstandard: (".zst", ".zstd"),
}


@pytest.mark.parametrize(
    ("compress", "ending"), [(each, ending) for each in ENDINGS for ending in ENDINGS[each]]
)
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS).encode()),
        ("a.json", json.dumps(ROWS).encode()),
        ("a.parquet", pack_parquet(arrow_table())),
        ("a.arrow", pack_arrow(arrow_table())),
        ("a.arrow", pack_arrow_stream(arrow_table())),
    ],
)
def test_rows_are_the_same_in_every_format_and_compression(write, name, content, compress, ending):
    table = open_table(write(name + ending, compress(content)))
    assert [row for _, row in table] == [row for _, row in table.objects()] == ROWS


def test_parquet_that_is_compressed_inside_may_have_the_ending_of_the_compression(write):
    stream = io.BytesIO()
    parquet.write_table(arrow_table(), stream, compression="gzip")
    assert [row for _, row in open_table(write("a.parquet.gzip", stream.getvalue()))] == ROWS


@pytest.mark.parametrize(
    ("members", "flags", "said"),
    [
        (["a.csv", "b.csv"], 0, "an archive with 2 files, expected one file. Unpack it"),
        ([], 0, "an archive with 0 files, expected one file. Unpack it"),
        (["a.csv"], 1, "an archive with a password, expected one file. Unpack it"),
    ],
)
def test_archives_of_several_files_are_to_be_unpacked(write, members, flags, said):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in members:
            archive.writestr(name, "text,label\n")
    content = bytearray(stream.getvalue())
    if flags:
        content[content.index(b"PK\1\2") + 8] = flags
    with pytest.raises(ValueError, match=rf"a\.csv\.zip: {said}"):
        open_table(write("a.csv.zip", bytes(content)))


def tar(name="train.csv"):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return stream.getvalue()


def spreadsheet():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("xl/workbook.xml", "<workbook/>")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"7z\xbc\xaf'\x1c\0\4", "an archive of 7-Zip, which cannot be read. Unpack it, or write"),
        (b"Rar!\x1a\x07\0", "an archive of RAR, which"),
        (b"\x04\x22\x4d\x18\x64", "compressed with LZ4, which"),
        (b"\xd0\xcf\x11\xe0\xa1", "an old file of Office, which"),
        (
            b"".join(frame_records([b"a" * 7])),
            "TFRecords, which cannot be read. Train on them with",
        ),
        (b"\x08\0\0\0\0\0\0\0{}      ", "weights of safetensors, which cannot be read. The we"),
        (b"\n\x0e\n\x05<pad>\x15", "a SentencePiece model, which cannot be read. Pass it as --spm"),
        (spreadsheet(), "a file of Office, which cannot be read. Save it as CSV in UTF-8"),
        (tar(), "an archive of tar. Unpack it"),
        (gzip.compress(tar()), "an archive of tar. Unpack it"),
    ],
)
def test_other_files_are_named_with_what_to_do(write, content, said):
    path = write("train.csv", content)
    with pytest.raises(ValueError, match=re.escape(f"{path}: {said}")):
        open_table(path)


# The two rows that pandas writes, in the forms that `orient` of `to_json` has.
TABLES_OF_PANDAS = {
    "columns": '{"text":{"0":"one","7":"two"},"label":{"0":1,"7":0}}',
    "index": '{"0":{"text":"one","label":1},"7":{"text":"two","label":0}}',
    "split": '{"columns":["text","label"],"index":[0,7],"data":[["one",1],["two",0]]}',
    "table": '{"schema":{"fields":[]},"data":[{"index":0,"text":"one","label":1}]}',
    "indent": '{\n "text":{\n  "0":"one"\n }\n}',
    "values": '[["one",1],["two",0]]',
}


@pytest.mark.parametrize("form", TABLES_OF_PANDAS)
def test_other_forms_of_json_than_rows_are_told_how_to_be_written(write, form):
    table = open_table(write("a.json", TABLES_OF_PANDAS[form]))
    said = r"a\.json, (line|item) 1: expected .* to_json\(path, orient=\"records\", lines=True\)"
    with pytest.raises(ValueError, match=said):
        list(parse_rows(table.place, table, lambda row, line: row))


def test_a_damaged_line_is_no_table(write):
    ((_, row),) = open_table(write("a.jsonl", '{"text": \n'))
    assert str(row).endswith("read if the file begins with it")


def test_rows_of_objects_are_not_taken_for_a_table(write):
    rows = [{"en": {"a": "one"}, "de": {"a": "eins"}}, {"0": {"a": 1}, "1": 2}, {"a": {}}, {}]
    content = "".join(json.dumps(row) + "\n" for row in rows)
    assert [row for _, row in open_table(write("a.ndjson", content))] == rows


def test_a_part_of_a_folder_has_the_format_of_the_folder(write, tmp_path):
    (tmp_path / "train.tsv").mkdir()
    (tmp_path / "my.tsv").mkdir()
    parts = [write(f"train.tsv/part-0000{n}.csv", f"text\tlabel\na, {n}\t1\n") for n in (0, 1)]
    empty = write("train.tsv/part-00002.csv", "")  # of a partition without rows
    for paths in ([*parts, empty], [empty, *parts], [parts[0], empty, parts[1]]):
        table = open_table(paths)
        rows = [(table.place(number), row) for number, row in table]
        assert [row for _, row in rows] == [["text", "label"], ["a, 0", "1"], ["a, 1", "1"]]
        assert [place for place, _ in rows][1:] == [f"{part}, line 2" for part in parts]
    assert list(open_table(write("my.tsv/train.csv", "a,b\n"))) == [(1, ["a", "b"])]


@pytest.mark.parametrize("pack", [pack_parquet, pack_arrow, pack_arrow_stream])
def test_names_of_labels_are_in_the_metadata(write, pack):
    table = open_table(write("a", pack(arrow_table(FEATURES))))
    names = LabelNames(("no", "yes"))
    assert table.labels == {"label": names, "tags": LabelNames(("no", "yes"), is_list=True)}
    assert [names.decode(row["label"]) for _, row in table] == ["yes", None, "no"]
    assert [names.decode(row["tags"]) for _, row in table] == [["no", "yes"], [], ["yes"]]


@pytest.mark.parametrize("kind", ["Sequence", "List", "LargeList"])
def test_names_of_labels_in_lists_are_found_whatever_the_list_is_called(write, kind):
    features = {"tags": {"feature": CLASS, "length": -1, "_type": kind}, "label": [CLASS]}
    table = open_table(write("a", pack_parquet(arrow_table(features))))
    assert {column: names.is_list for column, names in table.labels.items()} == {
        "tags": True,
        "label": True,
    }


def test_shards_are_one_table_and_a_header_that_all_repeat_is_read_once(write):
    shards = [write(f"{n}.csv", f"text,label\none {n},0\n\ntwo {n},1\n\n") for n in range(3)]
    table = open_table(shards)
    rows = dict(table)
    assert list(rows.values()) == [
        ["text", "label"],
        *([f"{word} {n}", label] for n in range(3) for word, label in (("one", "0"), ("two", "1"))),
    ]
    places = [table.place(number) for number in rows]
    assert places[:3] == [f"{shards[0]}, line {line}" for line in (1, 2, 4)]
    assert places[3:] == [f"{path}, line {line}" for path in shards[1:] for line in (2, 4)]
    assert next(row for _, row in table.objects()) == {"text": "one 0", "label": "0"}
    without = open_table([write("a.tsv", "x\t0\n"), write("b.tsv", "y\t1\n")])
    assert [row for _, row in without] == [["x", "0"], ["y", "1"]]


def test_a_table_is_read_one_row_at_a_time(write):
    path = write("a.jsonl", '{"a": 1}\n' * 3 + "{\n" + '{"a": 2}\n')
    (*good, (number, bad)) = itertools.islice(open_table(path), 4)
    assert (good, number, type(bad)) == ([(n, {"a": 1}) for n in (1, 2, 3)], 4, BadRowError)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.tsv", b"a\nb\n\xff\n", "line 3: not UTF-8"),
        ("a.csv", b'a,b\n"c,d\n', "line 2: not comma-separated values"),
        ("a.jsonl", b'{"a": 1}\n[1]\n', r"line 2: expected one JSON object per line, got '\[1\]'"),
        ("a.jsonl", b'{"a": 1}\n{"a": \n', "line 2: expected one JSON object per line"),
        ("a.jsonl", b'{"a": 1}\n"text"\n', "line 2: expected a JSON object, got text"),
        ("a.json", b'[{"a": 1},\n [2]]\n', r"item 2: expected a JSON object, got \[2\]"),
        ("a.json", b'[{"a": 1},\n "b"]\n', "item 2: expected a JSON object, got text"),
        ("a.json", b'[{"a": 1},\n {"a": }]\n', "line 2: not JSON: Expecting value"),
        (
            "a.json",
            b'[{"a": 1},\n {"a": 2}',
            "line 2: not JSON: expected a comma or the end of the array",
        ),
        (
            "a.json",
            b'[{"a": 1}\n {"a": 2}]',
            "line 2: not JSON: expected a comma or the end of the array",
        ),
        ("a.json", b'[{"a": 1}]\n[]', "line 2: not JSON: expected the end of the file"),
        ("a.json", b'[{"a": "\xff"}]', "line 1: not UTF-8"),
    ],
)
def test_rows_that_cannot_be_read_are_named(write, name, content, problem):
    table = open_table(write(name, content))
    with pytest.raises(ValueError, match=rf"{name}, {problem}"):
        list(parse_rows(table.place, table, lambda row, line: row))


@pytest.mark.parametrize(
    ("names", "contents", "problem"),
    [
        (["a.parquet"], [pack_parquet(arrow_table())[:-9]], "a.parquet: corrupt Parquet file"),
        (["a.gz"], [gzip.compress(b"a\tb" * 999, mtime=0)[:-9]], "a.gz: corrupt gzip file"),
        (
            ["a.parquet"],
            [pack_parquet(arrow_table().replace_schema_metadata({"huggingface": "{}"}))],
            "a.parquet: the metadata 'huggingface' are damaged",
        ),
        (
            ["a.parquet", "b.parquet"],
            [pack_parquet(arrow_table()), pack_parquet(arrow_table(FEATURES))],
            "b.parquet: expected the format and the names of labels of .*a.parquet",
        ),
        (["a.tsv", "b.jsonl"], [b"a", b"{}"], "b.jsonl: expected the format and the names"),
    ],
)
def test_damaged_files_and_those_that_differ_are_named(write, names, contents, problem):
    paths = [write(name, content) for name, content in zip(names, contents, strict=True)]
    with pytest.raises(ValueError, match=problem):
        list(open_table(paths))


def test_rows_of_cells_get_the_names_of_the_header(write):
    table = open_table(write("a.tsv", "Text \tlabel\t\nx\t0\ty\nz\t1\n"))
    (number, first), (_, short) = table.objects()
    assert (number, list(first.items())) == (2, [("text", "x"), ("label", "0"), ("", "y")])
    assert str(short) == "expected 3 columns, as in the header, got 2"
