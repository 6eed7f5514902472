"""Finds the name that a misspelled name is most similar to."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(name: str, names: Iterable[str], likeness: float = 0.6) -> str | None:
    """Returns the most similar of some names; None if none is similar.

    >>> closest("albert_bas_v2", ("albert_base_v2", "albert_large_v2"))
    'albert_base_v2'

    >>> closest("readme", ("README",))
    'README'

    Args:
        name: the misspelled name.
        names: the existing names.
        likeness: minimum similarity, from 0 to 1, which is equality; case counts less.
    """
    known = list(names)
    if similar := difflib.get_close_matches(name, known, 1, likeness):
        return similar[0]
    by_letters = {each.lower(): each for each in known}
    similar = difflib.get_close_matches(name.lower(), by_letters, 1, likeness)
    return by_letters[similar[0]] if similar else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Returns a question with the most similar of some names; "" if none is similar.

    >>> did_you_mean("run-rase", ("run-race", "run-squad"))
    "Did you mean 'run-race'?"
    """
    suggestion = closest(name, names)
    return f"Did you mean {suggestion!r}?" if suggestion else ""
