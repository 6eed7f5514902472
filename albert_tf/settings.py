"""Settings of the programs: frozen dataclasses whose fields say what they mean and what they allow.

A program has one class of settings, `Settings`, which inherits groups that several programs share.
The library takes instances of it; `cli.flags` makes command line flags of the same fields.

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TrainingSettings(SettingsGroup):
        GROUP = "training"
        seed: int = setting(12345, "Random seed.", minimum=0)
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self

ValueType = TypeVar("ValueType")

REQUIRED = dataclasses.MISSING  # as the default of a setting that has none

# Names that settings had in earlier versions → today's. Files of runs have the old ones.
RENAMED = {"pictures": "plots", "recompute": "gradient_checkpointing"}

# What the value of a setting decides; see `setting`.
NOTHING, TRAINING, MODEL, READING = "nothing", "training", "model", "reading"


def setting(
    default: Any,
    help: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[str] | None = None,
    group: str | None = None,
    decides: str = NOTHING,
) -> Any:
    """Returns a field of a settings class.

    Args:
        default: its value where none is given; `REQUIRED` if one must be.
        help: one sentence: the meaning, the unit, and what 0 or an empty value stands for.
        minimum: the smallest value allowed.
        maximum: the largest value allowed.
        choices: the values allowed.
        group: heading in `--help`; by default `GROUP` of the class.
        decides: TRAINING if the result of training depends on the value, so that a run is only
            resumed with the same one; MODEL if what a trained model computes does so as well, so
            that evaluation and prediction need the same one; READING if it says how data are
            read, whose content is compared in its place; else NOTHING. A setting that names a file
            decides nothing either: its content is compared (`training.run_identity`). A program
            that uses a trained model takes what is not given, and decides something, from the
            training.
    """
    metadata = {"help": help, "group": group, "decides": decides}
    limits = {"minimum": minimum, "maximum": maximum, "choices": choices}
    return dataclasses.field(default=default, metadata=metadata | limits)


def redefined(
    group: type[SettingsGroup],
    name: str,
    default: Any,
    help: str | None = None,
    *,
    minimum: float | None = None,
    choices: Sequence[str] | None = None,
) -> Any:
    """Returns the field `name` of another class with another default, and mostly the same limits.

    Programs share settings whose defaults differ, as those of Google's programs do. A name is
    defined by `setting` in one class only, and by `redefined` in all others:

        train_batch_size: int = redefined(TrainingSettings, "train_batch_size", 4096)

    Args:
        group: the class that has the field.
        name: of the field.
        default: as in `setting`.
        help: as in `setting`; None keeps that of `group`.
        minimum: as in `setting`; None keeps that of `group`.
        choices: as in `setting`; None keeps those of `group`.
    """
    (field,) = (field for field in dataclasses.fields(group) if field.name == name)
    metadata = dict(field.metadata) | {"redefines": group}
    if help is not None:
        metadata["help"] = help
    if minimum is not None:
        metadata["minimum"] = minimum
    if choices is not None:
        metadata["choices"] = choices
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SettingsGroup:
    """Base of all settings: checks each value against what its field allows.

    Attributes:
        GROUP: heading, in `--help`, of the fields that a class adds.

    Raises:
        ValueError: a value is not finite, outside of its range or none of the choices, or empty
            where there is no default; names the field.
    """

    GROUP: ClassVar[str] = "flags"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.default is REQUIRED and value == "":
                raise ValueError(f"{field.name}='': a value is needed, the empty text was given")
            check_value(field, value)

    def check_paths(self) -> None:
        """Checks files and folders before any work; groups of settings that name some extend it.

        TensorFlow is not imported for local paths.

        Raises:
            ValueError, OSError: one is missing or cannot be used; names the setting.
        """

    @classmethod
    def make(cls, **values: Any) -> Self:
        """Returns settings with these values, and those that they decide; see `complete`."""
        return cls(**cls.complete(values))

    @classmethod
    def complete(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns values that were given and, in some classes, others that they decide.

        The command line makes its settings of these.
        """
        return dict(values)


def check_value(field: dataclasses.Field[Any], value: Any) -> None:
    """Raises ValueError if `value` is not allowed for a field made by `setting`."""
    limits = field.metadata
    if value is None or not limits:
        return
    values = value if isinstance(value, tuple) else (value,)
    allowed_nan = field.default != field.default  # where nan is the default, it means "none"
    if any(
        isinstance(number, float)
        and not (math.isfinite(number) or (allowed_nan and math.isnan(number)))
        for number in values
    ):
        raise ValueError(f"{field.name}={value!r}: expected a finite number")
    if limits["choices"] is not None and not set(values) <= set(limits["choices"]):
        expected = ", ".join(map(repr, limits["choices"]))
        raise ValueError(f"{field.name}={value!r}: expected one of {expected}")
    if limits["minimum"] is not None and any(number < limits["minimum"] for number in values):
        raise ValueError(f"{field.name}={value!r}: expected {limits['minimum']} or more")
    if limits["maximum"] is not None and any(number > limits["maximum"] for number in values):
        raise ValueError(f"{field.name}={value!r}: expected {limits['maximum']} or less")


@dataclasses.dataclass(frozen=True)
class FieldInfo:
    """What a command line needs to know of a field.

    Attributes:
        name: of the field.
        type: `bool`, `int`, `float` or `str`; of the elements if `is_tuple`.
        is_tuple: whether the field may hold several values, as a tuple.
        is_scalar: whether it may hold one value that is no tuple.
        default: None where there is none.
        is_required: whether a value must be given.
        group: as in `setting`, or `GROUP` of the class that has the field first.
        help, minimum, maximum, choices, decides: as in `setting`.
    """

    name: str
    type: type
    is_tuple: bool
    is_scalar: bool
    default: Any
    is_required: bool
    group: str
    help: str
    minimum: float | None
    maximum: float | None
    choices: Sequence[str] | None
    decides: str


def describe(settings: type[SettingsGroup]) -> list[FieldInfo]:
    """Returns the fields of a settings class, those of its base classes first."""
    hints = typing.get_type_hints(settings)
    found = []
    for field in dataclasses.fields(settings):
        element_type, is_tuple, is_scalar = _value_types(hints[field.name])
        is_required = field.default is dataclasses.MISSING
        found.append(
            FieldInfo(
                name=field.name,
                type=element_type,
                is_tuple=is_tuple,
                is_scalar=is_scalar,
                default=None if is_required else field.default,
                is_required=is_required,
                group=field.metadata["group"] or _first_owner(settings, field.name).GROUP,
                help=field.metadata["help"],
                minimum=field.metadata["minimum"],
                maximum=field.metadata["maximum"],
                choices=field.metadata["choices"],
                decides=field.metadata["decides"],
            )
        )
    return found


def with_current_names(values: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """Returns settings, name → value, that an earlier version wrote, under today's names."""
    return {RENAMED.get(name, name): value for name, value in values.items()}


def to_text(value: Any, field: FieldInfo) -> str:
    """Returns the value of a setting as text, the same for equal values."""
    if isinstance(value, tuple):
        return ",".join(to_text(part, field) for part in value)
    return str(float(value) if field.type is float and value is not None else value)


def from_text(text: str, field: FieldInfo) -> Any:
    """Returns the value that `to_text` made a text of."""
    if field.is_tuple and (not field.is_scalar or "," in text):
        one = dataclasses.replace(field, is_tuple=False)
        return tuple(from_text(part, one) for part in text.split(",") if part)
    if text == "None" and field.default is None:
        return None
    return text == "True" if field.type is bool else field.type(text)


def _first_owner(settings: type[SettingsGroup], name: str) -> type[SettingsGroup]:
    """Returns the class among the bases of `settings`, and itself, that has a field first."""
    bases = [cls for cls in reversed(settings.__mro__) if issubclass(cls, SettingsGroup)]
    return next(cls for cls in bases if name in vars(cls).get("__annotations__", {}))


def _value_types(hint: Any) -> tuple[type, bool, bool]:
    """Returns the type of a field's values, whether it takes a tuple of them, and whether one."""
    is_union = isinstance(hint, types.UnionType)
    hints = set(typing.get_args(hint)) - {types.NoneType} if is_union else {hint}
    tuples = {hint for hint in hints if typing.get_origin(hint) is tuple}
    (kind,) = {typing.get_args(hint)[0] for hint in tuples} | (hints - tuples)
    return kind, bool(tuples), hints != tuples
