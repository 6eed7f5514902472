"""Text compressed with Zstandard."""

from __future__ import annotations

import pytest

from albert_tf.data.sources import find_sources, open_source

zstandard = pytest.importorskip("zstandard")

TEXT = "one\ntwo 字\n\n".encode() * 40_000
PACKED = zstandard.compress(TEXT)


@pytest.mark.parametrize(("content", "expected"), [(PACKED, TEXT), (PACKED * 2, TEXT * 2)])
def test_all_frames_are_read(tmp_path, content, expected):
    path = tmp_path / "text"
    path.write_bytes(content)
    assert not find_sources([str(path)])[0].is_splittable
    with open_source(str(path)) as (stream, _):
        assert stream.read(3) == b"one"
        assert stream.read() == expected[3:]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(PACKED[:-5], "the file ends early"), (PACKED[:9] + b"xyz" + PACKED[12:], ".")],
)
def test_a_damaged_file_is_named(tmp_path, content, reason):
    path = tmp_path / "text"
    path.write_bytes(content)
    with (
        pytest.raises(ValueError, match=f"text: corrupt Zstandard file: .*{reason}"),
        open_source(str(path)) as (stream, _),
    ):
        stream.read()
