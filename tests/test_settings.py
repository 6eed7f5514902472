"""Settings: validation, groups and inherited defaults."""

from __future__ import annotations

import dataclasses
import math

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
