"""Files of examples."""

import json

import pytest


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes lines (texts, lists of cells or JSON objects) to a file."""

    def as_text(line):
        if isinstance(line, str):
            return line
        return "\t".join(line) if isinstance(line, list) else json.dumps(line)

    def write_lines(name, *lines):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(as_text(line) + "\n" for line in lines), encoding="utf-8")
        return str(tmp_path)

    return write_lines
