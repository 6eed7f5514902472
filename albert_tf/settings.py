"""Settings of the programs: frozen dataclasses with documented and validated fields.

Each program has a class `Settings`, which inherits groups of settings shared by several programs.
The library takes instances of it, and `cli.flags` defines command line flags from its fields.

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TrainingSettings(SettingsGroup):
        GROUP = "training"
        seed: int = setting(12345, "Random seed.", minimum=0)
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from albert_tf.setting_values import Scalar, ValueType

if TYPE_CHECKING:
    from typing_extensions import Self


REQUIRED: Any = dataclasses.MISSING  # the default of settings that must be given
Value = TypeVar("Value")  # of one setting
SettingsType = TypeVar("SettingsType", bound="SettingsGroup")
SettingValue: TypeAlias = Scalar | tuple[Scalar, ...] | None  # of any setting

# What the value of a setting affects; see `setting`.
NOTHING = "nothing"
TRAINING = "training"
MODEL = "model"
READING = "reading"


def setting(
    default: Value,
    help: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Collection[str] | None = None,
    group: str | None = None,
    affects: str = NOTHING,
    is_repeated: bool = False,
    is_optional: bool = False,
    takes_several: bool = False,
) -> Value:
    """Returns a field of a settings class; type checkers take it for its value, as with `field`.

    Args:
        default: the default value; `REQUIRED` if there is none.
        help: one sentence with the meaning, the unit, and what 0 or an empty value means.
        minimum: the smallest allowed value.
        maximum: the largest allowed value.
        choices: the allowed values.
        group: heading in `--help`; defaults to `GROUP` of the class.
        affects: what the value affects. TRAINING: the result of training, so a run can only be
            resumed with the same value. MODEL: also the output of the trained model, so evaluation
            and prediction need the same value. READING: how data are read; their content is
            compared instead of this value. NOTHING: anything else, and names of files, whose
            content is compared (`checkpoints.run_record`). A program that uses a trained model
            takes values not given, unless they affect NOTHING, from the training run.
        is_repeated: whether several values are given by repeating the flag, not by commas.
        is_optional: whether the program chooses a number that is not given: None, which is `auto`
            on the command line.
        takes_several: whether a text may be several, separated by commas, such as those of files;
            a list of them is joined.
    """
    metadata = {"help": help, "group": group, "affects": affects, "is_repeated": is_repeated}
    metadata |= {"is_optional": is_optional, "takes_several": takes_several}
    limits = {"minimum": minimum, "maximum": maximum, "choices": choices}
    return dataclasses.field(default=default, metadata=metadata | limits)


def redefined(
    group: type[SettingsGroup],
    name: str,
    default: Value,
    help: str | None = None,
    *,
    minimum: float | None = None,
    choices: Collection[str] | None = None,
    is_optional: bool | None = None,
    takes_several: bool | None = None,
) -> Value:
    """Returns a copy of another class's field with a different default.

    The programs share settings with different defaults, as in Google's programs. A name is defined
    with `setting` in one class only, and with `redefined` in all others:

        train_batch_size: int = redefined(TrainingSettings, "train_batch_size", 4096)

    Args:
        group: the class that defines the field.
        name: name of the field.
        default: the new default, as in `setting`.
        help: as in `setting`; None keeps the original text.
        minimum: as in `setting`; None keeps the original minimum.
        choices: as in `setting`; None keeps the original choices.
        is_optional: as in `setting`; None keeps the original value.
        takes_several: likewise.
    """
    (field,) = (field for field in dataclasses.fields(group) if field.name == name)
    changes = {"help": help, "minimum": minimum, "choices": choices}
    changes |= {"is_optional": is_optional, "takes_several": takes_several}
    given = {key: value for key, value in changes.items() if value is not None}
    return dataclasses.field(default=default, metadata={**field.metadata, **given})


@dataclasses.dataclass(frozen=True, kw_only=True)
class SettingsGroup:
    """Base class of settings, which validates all values.

    Values may have the types that Python users have: see `setting_values`.

    Attributes:
        GROUP: heading in `--help` of the fields that the class adds.
        ESSENTIAL: names of the fields that `--help` shows, in their order; () to show all of them.
        ARGUMENT: the field that an argument without a flag sets; "" if such arguments are refused.

    Raises:
        ValueError: a value has another type, is not finite, out of range or not one of the choices,
            or a required value is empty.
    """

    GROUP: ClassVar[str] = "flags"
    ESSENTIAL: ClassVar[tuple[str, ...]] = ()
    ARGUMENT: ClassVar[str] = ""

    def __post_init__(self) -> None:
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name, value in converted(type(self), given).items():
            if value is not given[name]:
                object.__setattr__(self, name, value)  # the dataclass is frozen
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.default is REQUIRED and value == "":
                raise ValueError(f"{field.name}='': a value is required, got an empty string")
            check_value(field, value)

    def check_paths(self) -> None:
        """Checks the files and folders before any work; subclasses with paths extend this.

        TensorFlow is not imported for local paths.

        Raises:
            ValueError, OSError: a path is missing or cannot be used. The message names the setting.
        """

    def to_dict(self) -> dict[str, SettingValue]:
        """Returns name → value of all settings, as they are written to files."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @classmethod
    def make(cls, **values: object) -> Self:
        """Returns settings with the given values and those derived by `with_derived_values`."""
        return cls(**cls.with_derived_values(converted(cls, values)))

    @classmethod
    def with_derived_values(cls, values: Mapping[str, object]) -> dict[str, object]:
        """Returns the given values and, in some classes, values derived from them.

        The command line creates its settings with this method.
        """
        return dict(values)


def derives_values(settings: type[SettingsType]) -> type[SettingsType]:
    """Class decorator: the constructor, too, completes its values by `with_derived_values`.

    So settings are the same however they are made. It is for values that are derived from others
    alone; those that are read from files belong to `make`.
    """
    construct = settings.__init__

    @functools.wraps(construct)
    def complete_and_construct(self: SettingsType, **values: object) -> None:
        construct(self, **settings.with_derived_values(converted(settings, values)))

    settings.__init__ = complete_and_construct  # type: ignore[assignment, method-assign]
    return settings


def converted(settings: type[SettingsGroup], values: Mapping[str, object]) -> dict[str, object]:
    """Returns values with the types of their fields; see `setting_values`.

    Args:
        settings: the class of the settings.
        values: name → value; names that are no fields stay as they are.

    Raises:
        ValueError: a value cannot be converted. The message names the field, and what it expects.
    """
    types_of = _value_types_of(settings)  # type: ignore[arg-type] # a class is hashable
    return {
        name: types_of[name].convert(value) if name in types_of else value
        for name, value in values.items()
    }


@functools.cache
def _value_types_of(settings: type[SettingsGroup]) -> dict[str, ValueType]:
    """Returns name → type of the fields of a class."""
    hints = typing.get_type_hints(settings)
    found = {}
    for field in dataclasses.fields(settings):
        kind, is_tuple, is_scalar = _value_types(hints[field.name])
        found[field.name] = ValueType(
            name=field.name,
            type=kind,
            is_tuple=is_tuple,
            is_scalar=is_scalar,
            takes_none=field.default is None
            or types.NoneType in typing.get_args(hints[field.name]),
            none_is_empty=field.default == "",
            takes_several=bool(field.metadata.get("takes_several")),
            splits_text=not field.metadata.get("is_repeated"),
        )
    return found


def check_value(field: dataclasses.Field[object], value: object) -> None:
    """Raises ValueError if `value` is not allowed for a field made by `setting`."""
    limits = field.metadata
    if value is None or not limits:
        return
    values = value if isinstance(value, tuple) else (value,)
    allowed_nan = field.default != field.default  # a default of nan means "not set"
    choices, minimum, maximum = limits["choices"], limits["minimum"], limits["maximum"]
    for each in values:
        expected = ""
        is_float = isinstance(each, float)
        if is_float and not (math.isfinite(each) or (allowed_nan and math.isnan(each))):
            expected = "a finite number"
        elif choices is not None and each not in choices:
            expected = f"one of {', '.join(map(repr, choices))}"
        elif minimum is not None and each < minimum:
            expected = f"{minimum} or more"
        elif maximum is not None and each > maximum:
            expected = f"{maximum} or less"
        if expected:
            raise ValueError(f"{field.name}={value!r}: expected {expected}")


@dataclasses.dataclass(frozen=True)
class FieldInfo:
    """Description of a field for the command line.

    Attributes:
        name: name of the field.
        type: `bool`, `int`, `float` or `str`; the type of the elements if `is_tuple`.
        is_tuple: whether the value may be a tuple of several values.
        is_scalar: whether the value may be a single value outside a tuple.
        default: the default value; None if there is none.
        is_required: whether a value must be given.
        group: as in `setting`, or `GROUP` of the class that first defines the field.
        help, minimum, maximum, choices, affects, is_repeated, is_optional, takes_several: as in
            `setting`.
    """

    name: str
    type: type
    is_tuple: bool
    is_scalar: bool
    default: object
    is_required: bool
    group: str
    help: str
    minimum: float | None
    maximum: float | None
    choices: Collection[str] | None
    affects: str
    is_repeated: bool
    is_optional: bool
    takes_several: bool

    @property
    def is_recorded(self) -> bool:
        """Whether a run records the value, unlike paths and other texts that affect nothing."""
        return self.type is not str or bool(self.choices) or self.affects != NOTHING


_fields: dict[type[SettingsGroup], list[FieldInfo]] = {}  # of each class that was asked for


def fields_of(settings: type[SettingsGroup]) -> list[FieldInfo]:
    """Returns the fields of a settings class, with those of base classes first."""
    if settings not in _fields:
        _fields[settings] = _describe_fields(settings)
    return list(_fields[settings])


def _describe_fields(settings: type[SettingsGroup]) -> list[FieldInfo]:
    hints = typing.get_type_hints(settings)
    fields = []
    for field in dataclasses.fields(settings):
        kind, is_tuple, is_scalar = _value_types(hints[field.name])
        is_required = field.default is dataclasses.MISSING
        group = field.metadata["group"] or _first_owner(settings, field.name).GROUP
        default = None if is_required else field.default
        described = {**field.metadata, "group": group}
        fields.append(
            FieldInfo(field.name, kind, is_tuple, is_scalar, default, is_required, **described)
        )
    return fields


def _first_owner(settings: type[SettingsGroup], name: str) -> type[SettingsGroup]:
    """Returns the first class, from base to derived, that defines a field of `settings`."""
    bases = [cls for cls in reversed(settings.__mro__) if issubclass(cls, SettingsGroup)]
    return next(cls for cls in bases if name in vars(cls).get("__annotations__", {}))


def _value_types(hint: object) -> tuple[type, bool, bool]:
    """Returns a field's element type, and whether it accepts a tuple and a single value."""
    is_union = isinstance(hint, types.UnionType)
    hints = set(typing.get_args(hint)) - {types.NoneType} if is_union else {hint}
    tuples = {hint for hint in hints if typing.get_origin(hint) is tuple}
    (kind,) = {typing.get_args(hint)[0] for hint in tuples} | (hints - tuples)
    return kind, bool(tuples), hints != tuples
