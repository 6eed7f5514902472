"""Steps through JSON of any size, a value at a time."""

import io
import json

import pytest

from albert_tf.tables.json_stream import JsonStream


def read_whole(stream):
    """Reads a value by stepping into all objects and arrays."""
    if stream.begins("{"):
        return {key: read_whole(stream) for key in stream.object_keys()}
    if stream.begins("["):
        return [read_whole(stream) for _ in stream.array_items()]
    return stream.value()


def read_to_end(stream):
    value = read_whole(stream)
    stream.require_end()
    return value


VALUES = {"a": [1, -2.5e-7, [], {}, True, None], "“b”": {"c": "😀\n", "d": [[0], {"e": 12345}]}}


@pytest.mark.parametrize("values", [VALUES, [], 12.5, "x", [1.5, 20]])
@pytest.mark.parametrize("indent", [None, 2])
def test_all_values_are_those_of_json_wherever_the_blocks_end(monkeypatch, values, indent):
    text = json.dumps(values, indent=indent, ensure_ascii=False)
    for size in range(1, 30):
        monkeypatch.setattr("albert_tf.tables.json_stream._BLOCK_BYTES", size)
        stream = JsonStream("x.json", io.BytesIO(f"\ufeff {text} \n".encode()))
        assert read_to_end(stream) == values


def test_only_what_is_stepped_to_is_read():
    article = json.dumps({"text": "x" * 1000})
    opened = io.BytesIO(f'{{"data": [{", ".join([article] * 5000)}]}}'.encode())
    stream = JsonStream("x.json", opened)
    next(stream.object_keys())
    for count, _ in enumerate(stream.array_items(), 1):
        stream.value()
        assert opened.tell() < 1000 * count + (1 << 20)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "line 1: not JSON: Expecting value"),
        ('{"a": 1,\n}', "line 2: not JSON: expected a key in double quotes"),
        ('{\n"a" 1}', "line 2: not JSON: expected a colon after the key 'a'"),
        ('{"a":\n[1, 2}', "line 2: not JSON: expected a comma or the end of the array"),
        ('{"a": 1\n"b": 2}', "line 2: not JSON: expected a comma or the end of the object"),
        ("[1,\n\n nul]", "line 3: not JSON: Expecting value"),
        ("1\n2", "line 2: not JSON: expected the end of the file"),
        ("[1,\n" + "1" * 5000 + "]", "line 2: not JSON: Exceeds the limit"),
        (
            '[1,\n[{"a": 1, "b": 2, "a": 3}]]',
            "line 2: not JSON: an object has several",
        ),
        (b'["a",\n"\xff"]', "line 2: not UTF-8"),
        (b'["a",\n"\xe5\xad', "line 2: not UTF-8"),
    ],
)
@pytest.mark.parametrize("size", [3, 1 << 18])
def test_what_is_not_json_is_named_with_its_line(monkeypatch, content, problem, size):
    monkeypatch.setattr("albert_tf.tables.json_stream._BLOCK_BYTES", size)
    data = content if isinstance(content, bytes) else content.encode()
    stream = JsonStream("x.json", io.BytesIO(data))
    with pytest.raises(ValueError, match=rf"^x\.json, {problem}"):
        read_to_end(stream)
