"""Finds the options that the labels of questions mean: by index, by letter or by their text.

What one label leaves open, the others of all splits tell: "2" is an index or the text of an option,
and numbers count from 0 or from 1. They count from 0 if one of them is 0, and from 1 if one is the
number of options, as in QuALITY. If neither occurs, the numbers in the names of columns decide,
such as `option1` and `option2` of WinoGrande; otherwise they count from 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from absl import logging

from albert_tf import files
from albert_tf.finetuning.rows import BadRowError

MANY = 20  # labels, of which one is 0 if they are counted from 0


@dataclasses.dataclass
class AnswerForms:
    """What the labels of all splits tell of each other.

    Attributes:
        are_ids: whether the data say that numbers are ids of classes, which are counted from 0.
        first_column: the first number in the names of columns of options, 0 or 1; None if they have
            no such numbers, or are no columns.
        has_keys: whether a label is no text of an option.
        has_texts: whether a label is no number or letter.
        num_numbers: the number of labels that are numbers.
        zero: where a label is 0, for messages; None if none is.
        largest: where a label is the number of options; None if none is.
    """

    are_ids: bool = False
    first_column: int | None = None
    has_keys: bool = False
    has_texts: bool = False
    num_numbers: int = 0
    zero: str | None = None
    largest: str | None = None

    def add_number(self, number: int, count: int, place: str) -> None:
        """Looks at a number, given the number of options."""
        self.num_numbers += 1
        if number == 0 and self.zero is None:
            self.zero = place
        if number == count and self.largest is None:
            self.largest = place

    def first_number(self, path: str) -> int:
        """Returns the number of the first option: 0 or 1.

        Args:
            path: the file, for messages.

        Raises:
            ValueError: numbers contradict each other, or seem to be counted from 1.
        """
        counts_from_zero = {
            f"one is 0, {self.zero}": self.zero is not None,
            "they are ids of classes": self.are_ids,
            "so are the columns of the options": self.first_column == 0,
        }
        reason = next((reason for reason, is_so in counts_from_zero.items() if is_so), None)
        if self.largest is not None and reason is not None:
            raise ValueError(
                f"{self.largest}: the label is the number of options, and there is no such option "
                f"if labels are counted from 0; {reason}"
            )
        if self.largest is not None:
            return 1
        if reason is not None:
            return 0
        if self.first_column is None and self.num_numbers > 1:
            self._doubt_zero(path)
        return self.first_column or 0

    def _doubt_zero(self, path: str) -> None:
        """Warns that labels may be counted from 1, or refuses it if there are many."""
        message = (
            f"{path}: none of {self.num_numbers} labels is 0, and labels are counted from 0. If "
            'these are counted from 1, give each option its number, as in "options": {"label": '
            '["1", "2"], "text": ["yes", "no"]}'
        )
        if self.num_numbers >= MANY:
            raise ValueError(f"{message}; if not, name them by letters, A for 0")
        logging.warning("%s", message)


# What a label may mean: a number counted from 0 or 1, and a text rather than a number or letter.
MEANINGS = ((0, False), (1, False), (0, True), (1, True))
UNKNOWN = -1

# The index of the option for each of MEANINGS; UNKNOWN if there is none.
Possible = tuple[int, ...]
_NOT_KNOWN: Possible = (UNKNOWN,) * len(MEANINGS)


class LabelParser:
    """Finds the options that the labels of a file may mean, and what they mean after the last one.

    Args:
        path: the file.
        takes_texts: whether a label may be the text of an option.
        forms: what the labels of all splits tell; None if there is only this one.
    """

    def __init__(
        self, path: str, takes_texts: bool = True, forms: AnswerForms | None = None
    ) -> None:
        self._path = path
        self._takes_texts = takes_texts
        self._forms = forms or AnswerForms()
        self._has_numbers = False
        self._doubts: dict[int, str] = {}  # first number → the first label that may mean two

    def parse(
        self, value: object, options: Sequence[str], names: Sequence[str] = (), place: str = ""
    ) -> Possible:
        """Returns the options that a label may mean.

        Args:
            value: the label; None if it is unknown.
            options: the options.
            names: the letters or numbers that the data gives the options; the label is one of them.
            place: the file, and where the label is in it, for messages.

        Raises:
            BadRowError: there is no such option.
        """
        if value is None:
            return _NOT_KNOWN
        if names and str(value) in names:
            return (names.index(str(value)),) * len(MEANINGS)
        are_numbers = any(name.isdecimal() for name in names)
        number = None if are_numbers else _number(value, len(options))
        letter = None if are_numbers else _letter(value, len(options))
        text = None
        if self._takes_texts and isinstance(value, str) and options.count(value) == 1:
            text = options.index(value)
        if text is not None:  # which it is, rather than one of two rare forms
            number = None if number == len(options) else number
            letter = None if str(value).islower() else letter
        if number is letter is text is None:
            raise BadRowError(_unknown(value, options, names))
        self._forms.has_keys |= text is None
        self._forms.has_texts |= number is letter is None
        if number is not None:
            self._has_numbers = True
            self._forms.add_number(number, len(options), place)
        found = []
        for first, takes_text in MEANINGS:
            key = letter if number is None else number - first
            if key is not None and text is not None and key != text:
                self._doubts.setdefault(first, _doubt(place, value, key, text))
            of_text = text is not None and (takes_text or key is None)
            found.append(text if of_text else key)
        return tuple(UNKNOWN if index is None else index for index in found)

    def meaning(self) -> int:
        """Returns which of MEANINGS the labels have, when those of all splits have been parsed.

        Raises:
            ValueError: labels may be the index or letter of an option or the text of another one,
                and no other label tells; or it is unclear whether they are counted from 0 or 1.
        """
        first = self._forms.first_number(self._path) if self._has_numbers else 0
        if first in self._doubts and self._forms.has_keys == self._forms.has_texts:
            raise ValueError(self._doubts[first])
        return MEANINGS.index((first, self._forms.has_texts))


def _doubt(place: str, value: object, key: int, text: int) -> str:
    """Returns the message about a label that is the index or letter of one option, `key`."""
    return (
        f"{place}: the label {files.quote(str(value))} may mean option {key}, counted from 0, or "
        f"option {text}, whose text it is. Give each option a name, as in "
        '"options": {"label": ["A", "B"], "text": ["1", "0"]}'
    )


def _number(value: object, count: int) -> int | None:
    """Returns the number that a label is, from 0 to the number of options; None if it is none."""
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if isinstance(number, float) and number.is_integer():  # as pandas has it beside missing ones
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= count:
        return None
    return number


def _letter(value: object, count: int) -> int | None:
    """Returns the index of an option that is given by its letter; None if it is not."""
    if not isinstance(value, str) or len(value) != 1:
        return None
    index = ord(value.upper()[0]) - ord("A")
    return index if 0 <= index < count else None


def _unknown(value: object, options: Sequence[str], names: Sequence[str]) -> str:
    """Returns the message about a label that no option has."""
    last = chr(ord("A") + min(len(options), 26) - 1)
    expected = f"expected 0 to {len(options) - 1}, 1 to {len(options)} or A to {last}"
    if names:
        expected = f"expected {', '.join(names)}"
    return f"label {files.quote(value)} for {len(options)} options: {expected}"
