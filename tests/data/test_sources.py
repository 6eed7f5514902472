"""Text files of every kind: plain, compressed, or with rows that contain text."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import sys

import pyarrow
import pytest
from pyarrow import parquet

from albert_tf.data.chunks import read_chunks
from albert_tf.data.sources import ARROW_ROWS, TextSource, find_sources, open_source
from tests.data.conftest import write

TEXT = "".join(f"line {number} 字\n" for number in range(300)).encode()
TEXTS = [f"first line {n}\nsecond 字 “{n}”" for n in range(600)]
ROWS = [{"text": text, "title": f"t{n}"} for n, text in enumerate(TEXTS)]
TABLE = pyarrow.table({"text": TEXTS, "n": range(600), "title": [f"t{n}" for n in range(600)]})


def pack_bzip2(text):
    return bz2.compress(text[:99]) + bz2.compress(text[99:])


def pack_zstandard(text):
    """Two frames, of which the first has the longest window and not its size in the header."""
    zstd = pytest.importorskip("backports.zstd", reason="needs the extra zstd")
    longest = {
        zstd.CompressionParameter.window_log: 31,
        zstd.CompressionParameter.enable_long_distance_matching: 1,
    }
    compressor = zstd.ZstdCompressor(options=longest)
    return compressor.compress(text[:99]) + compressor.flush() + zstd.compress(text[99:])


def pack_parquet(table):
    stream = io.BytesIO()
    parquet.write_table(table, stream, row_group_size=70)
    return stream.getvalue()


def pack_arrow(table, new=pyarrow.ipc.new_file):
    stream = io.BytesIO()
    with new(stream, table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    return stream.getvalue()


def pack_arrow_stream(table):
    return pack_arrow(table, pyarrow.ipc.new_stream)


def cut(data):
    return data[: -len(data) // 20]


def overwrite(data):
    return data[:40] + b"x" * 90


def read_all(path):
    with open_source(path) as (stream, _):
        return stream.read()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, pack_bzip2, pack_zstandard])
def test_the_text_of_a_file_and_the_progress_are_read(tmp_path, pack):
    path = write(tmp_path / "text", pack(TEXT))
    size = len(pack(TEXT))
    assert find_sources([path, path]) == [
        TextSource(number, path, size, is_compressed=pack is not bytes) for number in range(2)
    ]
    with open_source(path) as (stream, raw):
        assert stream.read(4) == b"line"
        assert stream.read() == TEXT[4:]
        assert raw.tell() == size


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (cut(gzip.compress(TEXT, mtime=0)), "gzip"),
        (overwrite(gzip.compress(TEXT, mtime=0)), "gzip"),
        (cut(bz2.compress(TEXT)), "bzip2"),
        (lambda: cut(pack_zstandard(TEXT)), "Zstandard"),
        (lambda: pack_zstandard(TEXT) + b"text", "Zstandard"),
        (cut(pack_parquet(TABLE)), "Parquet"),
        (cut(pack_arrow_stream(TABLE)), "Arrow"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, content, kind):
    path = write(tmp_path / "text", content() if callable(content) else content)
    with pytest.raises(ValueError, match=f"text: corrupt {kind} file: "):
        read_all(path)


@pytest.mark.parametrize("pack", [pack_parquet, pack_arrow, pack_arrow_stream])
def test_rows_are_read_like_json_lines_of_the_columns_with_text(tmp_path, pack):
    rows = write(tmp_path / "rows", pack(TABLE))
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS]
    text = write(tmp_path / "rows.jsonl", "".join(lines))
    assert [json.loads(line) for line in read_all(rows).splitlines()] == ROWS
    (source,) = find_sources([rows])
    assert (source.rows, source.is_compressed) == (ARROW_ROWS, True)
    chunks, expected = (
        list(read_chunks(find_sources([path]), 5000, "jsonl")) for path in (rows, text)
    )
    assert [(c.position, c.checksum) for c in chunks] == [
        (c.position, c.checksum) for c in expected
    ]
    assert len(chunks) > 3
    for chunk in chunks:
        (part,) = chunk.parts
        first = json.loads(part.data.splitlines()[0])
        assert part.first_line == ROWS.index(first) + 1


def test_a_pyarrow_that_cannot_be_imported_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with (
        pytest.raises(ValueError, match=r"a.parquet: .*pyarrow.* Run: pip install 'pyarrow<26'"),
        open_source(str(tmp_path / "a.parquet")),
    ):
        pass
