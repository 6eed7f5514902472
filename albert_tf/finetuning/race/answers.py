"""Finds the options that the labels of a file mean: by index, by letter or by their text.

What one label leaves open, the others of the file may tell: "2" is an index or the text of an
option; digits count from 0, as here and in most data sets, or from 1, as in ARC.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from absl import logging

from albert_tf import files
from albert_tf.finetuning.rows import BadRowError

MANY = 20  # labels, of which one is 0 if they are counted from 0


class _Unclear(NamedTuple):
    """A label that is an index or letter of an option, and the text of another one."""

    place: str
    value: str
    by_key: int
    by_text: int


class LabeledOptions:
    """The answers of the questions of a file, in their order.

    Args:
        path: the file.
        takes_texts: whether a label may be the text of an option.
        are_ids: whether the data say that numbers are ids of classes, which are counted from 0.
    """

    def __init__(self, path: str, takes_texts: bool = True, are_ids: bool = False) -> None:
        self._path = path
        self._are_ids = are_ids
        self._takes_texts = takes_texts
        self._found: list[int | None] = []
        self._unclear: dict[int, _Unclear] = {}  # index of the question → label
        self._has_keys = False  # a label is no text of an option
        self._has_texts = False  # a label is no index or letter
        self._digits = 0
        self._has_zero = False

    def add(
        self, value: object, options: Sequence[str], names: Sequence[str] = (), place: str = ""
    ) -> None:
        """Adds the label of the next question.

        Args:
            value: the label; None if it is unknown.
            options: the options.
            names: the letters or numbers that the data gives the options; the label is one of them.
            place: the file, and where the label is in it, for messages.

        Raises:
            BadRowError: there is no such option.
        """
        if value is None:
            self._found.append(None)
            return
        if names and str(value) in names:
            self._found.append(names.index(str(value)))
            return
        are_numbers = any(name.isdecimal() for name in names)
        key = None if are_numbers else _index(value, len(options))
        text = None
        if self._takes_texts and isinstance(value, str) and options.count(value) == 1:
            text = options.index(value)
        if key is None and text is None:
            raise BadRowError(_unknown(value, options, names))
        self._has_keys |= text is None
        self._has_texts |= key is None
        if key is not None and (isinstance(value, int) or str(value).isdecimal()):
            self._digits += 1
            self._has_zero |= key == 0
        if key is not None and text is not None and key != text:
            self._unclear[len(self._found)] = _Unclear(place, str(value), key, text)
        self._found.append(text if key is None else key)

    def indices(self) -> list[int | None]:
        """Returns the index of the answer of each question; None if it is unknown.

        Raises:
            ValueError: labels may be the index or letter of an option or the text of another one,
                and no other label of the file tells; or they seem to be counted from 1.
        """
        if self._unclear and self._has_keys == self._has_texts:
            first = next(iter(self._unclear.values()))
            raise ValueError(
                f"{first.place}: the label {files.quote(first.value)} may mean "
                f"option {first.by_key}, counted from 0, or option {first.by_text}, whose text it "
                'is. Give each option a name, as in "options": {"label": ["A", "B"], "text": '
                '["1", "0"]}'
            )
        if self._has_texts:
            for number, label in self._unclear.items():
                self._found[number] = label.by_text
        if self._digits > 1 and not self._has_zero and not self._are_ids:
            self._doubt_zero()
        return self._found

    def _doubt_zero(self) -> None:
        """Warns that labels may be counted from 1, or refuses it if there are many."""
        message = (
            f"{self._path}: none of {self._digits} labels is 0, and labels are counted from 0. If "
            'these are counted from 1, give each option its number, as in "options": {"label": '
            '["1", "2"], "text": ["yes", "no"]}'
        )
        if self._digits >= MANY:
            raise ValueError(f"{message}; if not, name them by letters, A for 0")
        logging.warning("%s", message)


def _index(value: object, count: int) -> int | None:
    """Returns the index of an option that is given as its index or letter; None if it is not."""
    number = value
    if isinstance(value, str) and value.isdecimal():
        number = int(value)
    elif isinstance(value, str) and len(value) == 1:
        number = ord(value) - ord("A")
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < count:
        return None
    return number


def _unknown(value: object, options: Sequence[str], names: Sequence[str]) -> str:
    """Returns the message about a label that no option has."""
    last = chr(ord("A") + min(len(options), 26) - 1)
    expected = f"expected 0 to {len(options) - 1} or A to {last}"
    if names:
        expected = f"expected {', '.join(names)}"
    elif str(value) == str(len(options)):
        expected += (
            '. If it is counted from 1, give each option its number, as in "options": {"label": '
            '["1", "2"], "text": ["yes", "no"]}'
        )
    return f"label {files.quote(value)} for {len(options)} options: {expected}"
