"""Converts the values that Python users have to the types of settings.

Values of other types are taken if they can mean one thing only: paths of `pathlib`, numbers and
arrays of NumPy, numbers and truth values as texts, numbers in place of names of columns and labels,
and lists. A text in place of several is split at commas, as on the command line; a list in place of
a text that may be several is joined. Everything else is refused, by the name of the setting.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn, TypeAlias, TypeGuard

Scalar: TypeAlias = bool | int | float | str

_MAX_SHOWN = 80  # characters of a value in a message
_TRUTH = {"true": True, "false": False}


@dataclasses.dataclass(frozen=True)
class ValueType:
    """The type of the values of a setting.

    Attributes:
        name: name of the setting.
        type: `bool`, `int`, `float` or `str`, of a single value; values of other types are not
            converted.
        is_tuple: whether the value may be a tuple of several values.
        is_scalar: whether the value may be a single value outside a tuple.
        takes_none: whether the value may be None.
        none_is_empty: whether None stands for "", the default of a text that is not given.
        takes_several: whether a text may be several, separated by commas.
        splits_text: whether a text in place of a tuple is split at commas.
    """

    name: str
    type: type
    is_tuple: bool = False
    is_scalar: bool = True
    takes_none: bool = False
    none_is_empty: bool = False
    takes_several: bool = False
    splits_text: bool = True

    def convert(self, value: object) -> object:
        """Returns a value with the type of the setting.

        Raises:
            ValueError: it cannot be converted. The message names the setting, and what it expects.
        """
        if self.type not in _CONVERSIONS or (value is None and self.takes_none):
            return value
        is_split = self.is_tuple and self.type is str
        if type(value) is self.type and self.is_scalar and not is_split:
            return value  # as nearly all are
        if value is None and self.none_is_empty:
            return ""
        several = _as_tuple(value)
        if several is not None:
            return self._several(several, value)
        if self.is_tuple and self.splits_text and isinstance(value, str):
            parts = (part.strip() for part in value.split(","))
            found = tuple(self._single(part, value) for part in parts if part)
            return found[0] if self.is_scalar and len(found) == 1 else found
        single = self._single(value, value)
        return single if self.is_scalar else (single,)

    def _several(self, several: tuple[object, ...], value: object) -> object:
        if self.is_tuple:
            return tuple(self._single(part, value) for part in several)
        if not self.takes_several:
            raise self._error(value)
        texts = [str(self._single(part, value)) for part in several]
        if any("," in text for text in texts):
            raise ValueError(
                f"{self.name}={_shown(value)}: commas separate names, and one in the list has a "
                "comma: rename it"
            )
        return ",".join(texts)

    def _single(self, part: object, value: object) -> Scalar:
        """Returns a part of a value, or all of it, with the type of the setting."""
        convert, _ = _CONVERSIONS[self.type]
        try:
            return convert(_as_python(part))
        except (TypeError, ValueError):
            raise self._error(value) from None

    def _error(self, value: object) -> ValueError:
        _, expected = _CONVERSIONS[self.type]
        if self.is_tuple or self.takes_several:
            expected += ", or a list of them"
        came = "" if value is None else f", got a {type(value).__name__}"
        return ValueError(f"{self.name}={_shown(value)}: expected {expected}{came}")


def _as_python(value: object) -> object:
    """Returns a scalar of NumPy, or an array without axes, as a value of Python."""
    item = getattr(value, "item", None)
    return item() if getattr(value, "shape", None) == () and callable(item) else value


def _as_tuple(value: object) -> tuple[object, ...] | None:
    """Returns the values of a list, an array or a column of pandas; None for anything else."""
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)):
        return tuple(value)
    axes = getattr(value, "shape", None)
    is_row = isinstance(axes, tuple) and len(axes) == 1
    return tuple(value) if is_row and isinstance(value, Iterable) else None


def _shown(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _to_bool(value: object) -> bool:
    if isinstance(value, str) and value.strip().lower() in _TRUTH:
        return _TRUTH[value.strip().lower()]
    return bool(value) if isinstance(value, int) and value in (0, 1) else _refuse()


def _to_int(value: object) -> int:
    if isinstance(value, float) and not value.is_integer():
        _refuse()
    return int(value) if _is_number(value) or isinstance(value, str) else _refuse()


def _to_float(value: object) -> float:
    return float(value) if _is_number(value) or isinstance(value, str) else _refuse()


def _to_text(value: object) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        return str.__str__(value)  # of a subclass, too
    return str(int(value)) if _is_number(value) and isinstance(value, int) else _refuse()


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _refuse() -> NoReturn:
    raise TypeError


# Type of a setting → what converts a value, and what is expected.
_CONVERSIONS: dict[type, tuple[Callable[[object], Scalar], str]] = {
    bool: (_to_bool, "True or False"),
    int: (_to_int, "a whole number"),
    float: (_to_float, "a number"),
    str: (_to_text, "a text or a path"),
}
