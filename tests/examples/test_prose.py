"""Prose out of documentation with markup."""

from __future__ import annotations

import prose
import pytest

GOOGLE = """Opens the door of the old mill.

The door is opened slowly, e.g. by hand, and it stays open
until somebody closes it. Nobody has to wait.

Args:
  door: The door that is opened, which may be locked.
  **keys: Further keys that are tried one after the other.

Returns:
  A `Door` object which is open.
"""
NUMPYDOC = """Return the width of the river.

Parameters
----------
river : River, optional
    The river whose width is measured at noon.

See Also
--------
width : Return the width of the bridge.

Notes
-----
It was measured by hand [1]_ in the last century.

>>> width(river)
12.0
"""
RST = """A heading
=========

See :class:`~mill.doors.Door` and ``open`` for the *other* half of this.
Every door is described `on this page <https://example.org>`_ in full.

.. code-block:: python

    door = "This is not a sentence of the page."

    more = "And neither is this one of the page."

The next example shows how it is done::

    The indented line belongs to the example above.

- The first item of the list reads well.
- The second item of the list
  goes on in the next line.

+------+------+
| Name | Size |
+------+------+
"""
MARKDOWN = """# The mill

Doors of [the old mill](https://example.org/mill) open and close by themselves.

```python
text = "Code between fences is not prose."
```

| Name | Meaning of it |
|---|---|
| Door | It opens and it closes. |
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            GOOGLE,
            [
                "Opens the door of the old mill.",
                "The door is opened slowly, e.g. by hand, and it stays open until somebody closes "
                "it.",
                "Nobody has to wait.",
                "The door that is opened, which may be locked.",
                "Further keys that are tried one after the other.",
                "A Door object which is open.",
            ],
        ),
        (
            NUMPYDOC,
            [
                "Return the width of the river.",
                "The river whose width is measured at noon.",
                "It was measured by hand in the last century.",
            ],
        ),
        (
            RST,
            [
                "See Door and open for the other half of this.",
                "Every door is described on this page in full.",
                "The first item of the list reads well.",
                "The second item of the list goes on in the next line.",
            ],
        ),
        (MARKDOWN, ["Doors of the old mill open and close by themselves."]),
        ("\n  \n\n", []),
    ],
    ids=["google", "numpydoc", "rst", "markdown", "empty"],
)
def test_markup_becomes_sentences(text, expected):
    assert prose.read_prose(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Too short.",
        "No end of a sentence is here",
        "begins with a small letter.",
        "A = b[c] + (d * {e}) != f().",
        "The door is opened by {name} of the old mill.",
        "See https://example.org for more of the same.",
        "Ein Ding nur für euch.",
    ],
)
def test_what_is_no_english_sentence_is_refused(text):
    assert not prose.is_sentence(text)


def test_sentences_with_names_of_a_program_are_kept():
    assert prose.is_sentence("If the flag is_open is set to True, open_door(now) does nothing.")
