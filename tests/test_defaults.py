"""Values that nobody passes, of flags, arguments and constants: those of `golden/defaults.json`.

After a change, `python -m tests.test_defaults` writes it: the lines that differ are the change.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import math
import pkgutil
import types
from pathlib import Path

import pytest

import albert_tf
from albert_tf.cli.programs import PROGRAMS
from albert_tf.settings import SettingsGroup, check_value, fields_of
from tests.conftest import needs_text

GOLDEN = Path(__file__).with_name("golden") / "defaults.json"
SETTINGS = {name: program.load().Settings for name, program in PROGRAMS.items()}
LONGEST = 300  # letters of a constant; longer ones are tables, which other tests read
WITH_EXTRAS = {"albert_tf.data.beam"}  # cannot be imported without a package that few have


def own_modules():
    for found in pkgutil.walk_packages(albert_tf.__path__, "albert_tf."):
        if found.name not in WITH_EXTRAS and not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def shown(value):
    """Returns a value as text; None if its text is not always the same."""
    text = getattr(value, "__qualname__", None) or repr(value)
    return None if " at 0x" in text else text


def defaults_of(function):
    """Returns name → default of the arguments of a function, or of a class."""
    try:
        parameters = inspect.signature(inspect.unwrap(function)).parameters.values()
    except (TypeError, ValueError):  # of C
        return {}
    return {p.name: shown(p.default) for p in parameters if p.default is not p.empty}


def public_functions(module):
    """Yields name and object of the functions, classes and methods that a module defines."""
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or getattr(value, "__module__", "") != module.__name__:
            continue
        if inspect.isclass(value):
            if not issubclass(value, (SettingsGroup, dict)):
                yield name, value
            for method, function in sorted(vars(value).items()):
                function = getattr(function, "__func__", function)
                is_public = not method.startswith("_") or method == "__call__"
                if is_public and isinstance(function, types.FunctionType):
                    yield f"{name}.{method}", function
        elif callable(value):
            yield name, value


def constants_of(module):
    for name, value in sorted(vars(module).items()):
        is_own = name.isupper() and not name.startswith("_") and name != "TYPE_CHECKING"
        if is_own and isinstance(value, (bool, int, float, str, tuple, dict)):
            text = shown(value)
            if text is not None and len(text) < LONGEST:
                yield name, text


def flag(field):
    """Returns default, effect and limits of a flag."""
    row = {"default": "required" if field.is_required else repr(field.default)}
    row["affects"] = field.affects
    limits = {"minimum": field.minimum, "maximum": field.maximum, "choices": field.choices}
    return row | {name: repr(value) for name, value in limits.items() if value is not None}


def found():
    """Returns name → what it is: of each flag, function with defaults, and constant.

    Where a function or constant is does not matter. Of several with one name, all values are kept.
    """
    rows = {
        f"{program} --{field.name}": [flag(field)]
        for program, settings in SETTINGS.items()
        for field in fields_of(settings)
    }
    for module in own_modules():
        defaults = {f"{name}()": defaults_of(of) for name, of in public_functions(module)}
        for name, row in (*defaults.items(), *constants_of(module)):
            if row and row not in rows.setdefault(name, []):
                rows[name].append(row)
    return {name: sorted(values, key=repr) for name, values in rows.items() if values}


@needs_text
def test_flags_arguments_and_constants_are_those_of_the_file():
    expected = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert found() == expected, "if this is meant, run: python -m tests.test_defaults"


LIMITS = [
    pytest.param(field, limit, beyond, id=f"{program} {field.name} {limit}")
    for program, settings in SETTINGS.items()
    for field in dataclasses.fields(settings)
    for limit, beyond in (
        (field.metadata["minimum"], -math.inf),
        (field.metadata["maximum"], math.inf),
    )
    if limit is not None
]


@pytest.mark.parametrize(("field", "limit", "beyond"), LIMITS)
def test_a_limit_is_allowed_and_nothing_beyond_it(field, limit, beyond):
    check_value(field, limit)
    with pytest.raises(ValueError, match=f"{field.name}=.*: expected {limit} or "):
        check_value(field, math.nextafter(limit, beyond))


def write(rows):
    lines = (f"{json.dumps(name)}: {json.dumps(row, ensure_ascii=False)}" for name, row in rows)
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write(sorted(found().items()))
