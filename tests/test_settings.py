"""Settings: validation, groups and inherited defaults."""

from __future__ import annotations

import dataclasses
import enum
import math
from pathlib import Path

import numpy as np
import pytest

from albert_tf.settings import REQUIRED, SettingsGroup, fields_of, redefined, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Boat(SettingsGroup):
    GROUP = "boat"
    oars: int = setting(2, "Number of oars; 0 for a sail.", minimum=0, maximum=8)
    wood: str = setting("oak", "Kind of wood.", choices=("oak", "pine"))
    lengths: float | tuple[float, ...] = setting(3.5, "Lengths in meters.", minimum=1)
    draft: float = setting(float("nan"), "Depth in meters; nan for unknown.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ferry(Boat):
    GROUP = "ferry"
    oars: int = redefined(Boat, "oars", 4)
    landing: str = setting(REQUIRED, "Where it lies.")
    cable: str | None = setting(None, "The cable, if it has one.")
    stops: tuple[str, ...] = setting((), "Other landings.")
    has_sail: bool = setting(False, "Whether it has a sail.")
    crew: int | None = setting(None, "Number of hands.", minimum=1, is_optional=True)
    charts: str = setting("", "Files, separated by commas.", takes_several=True)
    calls: str | tuple[str, ...] | None = setting(None, "What is called.", is_repeated=True)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"oars": -1}, "oars=-1: expected 0 or more"),
        ({"oars": 9}, "oars=9: expected 8 or less"),  # redefined with another default
        ({"wood": "elm"}, "wood='elm': expected one of 'oak', 'pine'"),
        ({"lengths": (2.0, 0.5)}, r"lengths=\(2.0, 0.5\): expected 1 or more"),
        ({"lengths": float("nan")}, "lengths=nan: expected a finite number"),
        ({"lengths": (2.0, float("inf"))}, r"lengths=\(2.0, inf\): expected a finite number"),
        ({"draft": float("inf")}, "draft=inf: expected a finite number"),
        ({"crew": 0}, "crew=0: expected 1 or more"),
        ({"landing": ""}, "landing='': a value is required"),
    ],
)
def test_invalid_values_are_refused_by_name(values, said):
    with pytest.raises(ValueError, match=said):
        Ferry(**{"landing": "here"} | values)


def test_defaults_are_allowed_values():
    ferry = Ferry(landing="here", draft=float("nan"))
    assert math.isnan(ferry.draft)
    assert (ferry.oars, ferry.crew, ferry.wood) == (4, None, "oak")
    with pytest.raises(TypeError, match="landing"):
        Ferry()


def test_a_field_belongs_to_the_group_that_defined_it_first():
    fields = {field.name: field for field in fields_of(Ferry)}
    assert [fields[name].group for name in ("oars", "wood", "landing")] == ["boat", "boat", "ferry"]
    assert fields["landing"].is_required
    assert not fields["cable"].is_required


class Landing(str, enum.Enum):
    EAST = "east"


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("landing", [Path("a/b"), np.str_("a/b")], "a/b"),
        ("landing", [Landing.EAST], "east"),
        ("landing", [7, np.int64(7)], "7"),  # the number of a column
        ("cable", [None], None),
        ("charts", [["a", Path("b")], ("a", "b"), np.array(["a", "b"]), "a,b"], "a,b"),
        ("charts", [None, []], ""),
        ("stops", [["a", "b"], "a,b", " a, b,", np.array(["a", "b"], object)], ("a", "b")),
        ("stops", ["a", ["a"]], ("a",)),
        ("stops", [[0, 1], range(2), np.arange(2)], ("0", "1")),  # ids of classes
        ("calls", ["Ahoy, there"], "Ahoy, there"),  # no commas where a flag is repeated
        ("calls", [["a", "b"]], ("a", "b")),
        ("oars", [4, "4", 4.0, np.int32(4), np.float32(4), np.array(4)], 4),
        ("lengths", [2, "2", np.float64(2)], 2.0),
        ("lengths", [[2, 3], "2,3", ("2", np.int8(3)), np.array([2.0, 3.0])], (2.0, 3.0)),
        ("has_sail", [True, "true", "True ", 1, np.True_], True),
        ("has_sail", [False, "false", 0, np.False_], False),
    ],
)
def test_types_of_python_users_are_those_of_the_fields(name, values, expected):
    for value in values:
        for ferry in (
            Ferry(**{"landing": "here", name: value}),
            Ferry.make(**{"landing": "here", name: value}),
        ):
            found = getattr(ferry, name)
            assert (found, type(found)) == (expected, type(expected)), value
            if isinstance(found, tuple):
                assert [type(part) for part in found] == [type(part) for part in expected]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"has_sail": "no"}, "has_sail='no': expected True or False, got a str"),
        ({"has_sail": None}, "has_sail=None: expected True or False$"),
        ({"has_sail": 2}, "has_sail=2: expected True or False, got a int"),
        ({"oars": "two"}, "oars='two': expected a whole number, got a str"),
        ({"oars": 2.5}, "oars=2.5: expected a whole number, got a float"),
        ({"oars": True}, "oars=True: expected a whole number, got a bool"),
        ({"oars": [2]}, r"oars=\[2\]: expected a whole number, got a list"),
        ({"lengths": "long"}, "lengths='long': expected a number, or a list of them, got a str"),
        ({"lengths": {"a": 1}}, "lengths={'a': 1}: expected a number, or a list of them"),
        ({"landing": b"here"}, "landing=b'here': expected a text or a path, got a bytes"),
        ({"landing": ["a", "b"]}, r"landing=\['a', 'b'\]: expected a text or a path, got a list"),
        ({"wood": 1.5}, "wood=1.5: expected a text"),
        ({"stops": {"a", "b"}}, "stops={.*}: expected a text or a path, or a list of them"),
        ({"stops": [["a"]]}, "stops=.*: expected a text or a path, or a list of them, got a list"),
        ({"charts": ["a,b", "c"]}, "charts=.*: commas separate names, and one in the list has"),
    ],
)
def test_types_that_may_mean_several_things_are_refused_by_name(values, said):
    for make in (Ferry, Ferry.make):
        with pytest.raises(ValueError, match=said):
            make(**{"landing": "here"} | values)
