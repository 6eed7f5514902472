"""Reads and writes JSON: files with one object, and files with an object per line."""

from __future__ import annotations

import functools
import json
import os
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from albert_tf.files.messages import name_file, quote
from albert_tf.files.paths import exists, is_remote
from albert_tf.files.reading import read_text
from albert_tf.files.writing import write_file

Json: TypeAlias = Any  # an object, array, string, number, boolean or null, of unknown kind
JsonObject: TypeAlias = dict[str, Json]
# Name → type of a value, as `dict[str, float] | None`; see `parse_json`.
JsonFields: TypeAlias = Mapping[str, object]
_MAX_DIGITS = 300  # of a whole number; one of a few more is larger than any float


def read_json(path: str, fields: JsonFields | None = None) -> JsonObject:
    """Reads a file that contains one JSON object.

    Args:
        path: the file.
        fields: as in `parse_json`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not UTF-8, or `parse_json` rejects it.
    """
    return parse_json(read_text(path), path, fields)


def read_json_if_there(path: str) -> JsonObject:
    """Returns what `read_json` does; {} if the file does not exist."""
    return read_json(path) if exists(path) else {}


def parse_json(text: str, place: str, fields: JsonFields | None = None) -> JsonObject:
    """Parses a JSON object.

    Args:
        text: the JSON text.
        place: the file, or file and line, for the message.
        fields: name → type of required values, `… | None` for optional ones. The types of the
            items of `list[…]` and `dict[str, …]` are looked at too. The object may contain other
            values.

    Raises:
        ValueError: the text is not such an object. The message names the place, and what was
            expected and found.
    """
    values = load_json(text, place)
    if not isinstance(values, dict):
        raise ValueError(f"{place}: expected a JSON object, got {type(values).__name__}")
    check_fields(values, place, fields or {})
    return values


class RepeatedNameError(ValueError):
    """An object in JSON has several values of one name, of which one would be used in silence."""


def unique_object(pairs: Sequence[tuple[str, object]]) -> JsonObject:
    """Returns an object of names and values, for `object_pairs_hook` of the module json.

    Raises:
        RepeatedNameError: a name occurs several times.
    """
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise RepeatedNameError(f"an object has several values of {quote(repeated)}")
    return values


_ROW_DECODER = json.JSONDecoder(object_pairs_hook=unique_object)  # made once for all rows


def load_json(text: str | bytes, place: str = "", is_row: bool = False) -> Json:
    """Parses JSON of any kind.

    Args:
        text: the JSON text.
        place: the file, or file and line, for the message; "" for a message without it.
        is_row: whether it is a row of a table, whose columns have different names. Numbers and
            texts of a row are not looked at, because those of other columns do not matter.

    Raises:
        RepeatedNameError: an object of a row has several values of one name.
        ValueError: it is not JSON, is nested so deeply that it is not data, or has a whole number
            that is larger than any float, or a text that cannot be written.
    """
    start = f"{place}: " if place else ""
    try:
        if is_row:
            return _ROW_DECODER.decode(text if isinstance(text, str) else text.decode())
        value = json.loads(text, parse_int=_parse_whole)
        _check_characters(value, text)
        return value
    except RepeatedNameError as error:
        raise RepeatedNameError(f"{start}{error}") from None
    except ValueError as error:
        raise ValueError(f"{start}not JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"{start}JSON is nested too deeply, hundreds of levels") from None


def _parse_whole(digits: str) -> int:
    """Returns a whole number, with which floats can be computed."""
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits, expected up to {_MAX_DIGITS}")
    return int(digits)


def _check_characters(value: Json, text: str | bytes) -> None:
    """Raises ValueError if a text in a value has half of a surrogate pair, which JSON can say."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    if "\\ud" not in text and "\\uD" not in text:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("a text has half of a surrogate pair, which is no character") from None


def check_fields(values: Mapping[str, object], place: str, fields: JsonFields) -> None:
    """Raises ValueError if values parsed from JSON are not those that `parse_json` describes."""
    for name, kind in fields.items():
        value = values.get(name)
        if type(value) not in _simple_types(kind) and not _is_of(value, kind):
            found = quote(values[name]) if name in values else "missing"
            kind = kind if typing.get_args(kind) else getattr(kind, "__name__", kind)
            raise ValueError(f"{place}: {name!r} is {found}, expected {kind}")


@functools.cache
def _simple_types(kind: object) -> frozenset[object]:
    """Returns the types without items that a type described in `parse_json` consists of."""
    return frozenset(typing.get_args(kind) if isinstance(kind, types.UnionType) else [kind])


def _is_of(value: object, kind: object) -> bool:
    """Returns whether a value parsed from JSON has a type as described in `parse_json`."""
    if isinstance(kind, types.UnionType):
        return any(_is_of(value, each) for each in typing.get_args(kind))
    if isinstance(value, (dict, list)) and type(value) is typing.get_origin(kind):
        items = value.values() if isinstance(value, dict) else value
        return all(_is_of(item, typing.get_args(kind)[-1]) for item in items)
    return type(value) is kind or (kind is float and type(value) is int)


def write_json(path: str, values: Mapping[str, object]) -> None:
    """Writes a JSON object with indentation and sorted keys, like Google's configs."""
    write_file(path, json.dumps(values, indent=2, sort_keys=True) + "\n")


def read_own_json_lines(path: str, fields: JsonFields) -> list[JsonObject]:
    """Reads a file of `append_json_lines`, without the part of a line that a kill left.

    Args:
        path: the file.
        fields: as in `parse_json`.

    Returns:
        The objects; [] if the file does not exist.

    Raises:
        ValueError: `parse_json` rejects a line. The message names it.
    """
    *lines, _ = read_text(path).split("\n") if exists(path) else [""]
    return [
        parse_json(line, f"{path}, line {number}", fields) for number, line in enumerate(lines, 1)
    ]


def write_json_lines(path: str, rows: Iterable[Mapping[str, object]]) -> None:
    """Replaces a file of `append_json_lines` by these objects.

    Raises:
        OSError: the disk is full or cannot be written to.
    """
    write_file(path, _lines(rows))


def append_json_lines(path: str, rows: Iterable[Mapping[str, object]]) -> None:
    """Appends JSON objects to a file, one per line, and flushes it to disk.

    The file is created if needed. If this fails, it is as it was; a kill may leave a part of the
    lines, which `read_own_json_lines` leaves out, and the next call removes. A remote file, to
    which nothing can be appended, is replaced.

    Raises:
        OSError: the disk is full or cannot be written to.
    """
    text = _lines(rows)
    if is_remote(path):
        before = read_text(path) if exists(path) else ""
        write_file(path, before + text)
        return
    with open(path, "a+b", buffering=0) as stream:
        stream.seek(0)
        size = stream.read().rfind(b"\n") + 1  # of the complete lines
        stream.truncate(size)
        data = memoryview(text.encode("utf-8"))
        try:
            while data:
                data = data[stream.write(data) :]
            os.fsync(stream.fileno())
        except OSError as error:
            stream.truncate(size)
            name_file(error, path)
            raise


def _lines(rows: Iterable[Mapping[str, object]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
