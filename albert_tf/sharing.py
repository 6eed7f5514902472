"""Which layers of the encoder share their attention and feed-forward modules.

A pattern gives the number of a module for each layer: `(0, 0, 1, 1)` means that four layers use two
modules. Attention and feed-forward network have a pattern each, so that ALBERT can share all
weights, those of one of them, or none (arXiv 1909.11942, section 4.5 and table 4).

The rule for the names of weights extends Google's: module g of the attention has Google's names in
`group_<g>`, and so has module g of the feed-forward network. Where both have the same pattern, and
it is one of Google's hidden groups, config files and checkpoints are Google's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Pattern = tuple[int, ...]
Share = str | Pattern | Mapping[str, str | Pattern]

GROUPS = "groups"
MOST_LAYERS = 10_000  # of a model with a pattern other than Google's
PARTS = ("attention", "ffn")


def google_group(layer: int, num_layers: int, num_groups: int) -> int:
    """Returns the hidden group of a layer in Google's models, ⌊layer / L · G⌋, both from 0.

    Computed in floating point as in Google's `transformer_model`: if rounding skips a group (as
    with G = L = 22 at layer 15), Google's checkpoints do not contain that group either.
    """
    return int(layer / num_layers * num_groups)


# Name → pattern, given the numbers of layers and groups.
_PATTERNS: dict[str, Callable[[int, int], Pattern]] = {
    GROUPS: lambda layers, groups: tuple(google_group(i, layers, groups) for i in range(layers)),
    "all": lambda layers, groups: (0,) * layers,
    "none": lambda layers, groups: tuple(range(layers)),
    # CYCLE of Takase and Kiyono, arXiv 2104.06022.
    "cyclic": lambda layers, groups: tuple(i % groups for i in range(layers)),
    # The first and the last layer are not shared: Subformer, arXiv 2101.00234.
    "sandwich": lambda layers, groups: (0, *(1,) * (layers - 2), 2)[:layers],
}
_USES_GROUPS = (GROUPS, "cyclic")
# Name → patterns of attention and feed-forward network.
_PAIRS = {"attention": ("all", "none"), "ffn": ("none", "all")}
NAMES = (*_PATTERNS, *_PAIRS)


def patterns(share: Share, num_layers: int, num_groups: int) -> tuple[Pattern, Pattern]:
    """Returns the patterns of attention and feed-forward modules.

    Args:
        share: one of `NAMES`; or a pattern for both, as in `(0, 1, 0, 1)`; or a mapping of
            "attention" and "ffn" to a name or pattern each.
        num_layers: L.
        num_groups: number of hidden groups, which "groups" and "cyclic" use.

    Raises:
        ValueError: the name is unknown; a pattern does not have L numbers, or does not use all
            modules up to the largest; or `num_groups` is given for a name that does not use it.
    """
    if isinstance(share, str):
        share = dict(zip(PARTS, _PAIRS.get(share, (share, share)), strict=True))
    if not isinstance(share, Mapping):
        share = dict.fromkeys(PARTS, share)
    if set(share) != set(PARTS):
        raise ValueError(f'share has the keys {sorted(share)}: expected "attention" and "ffn"')
    if share != dict.fromkeys(PARTS, GROUPS) and num_layers > MOST_LAYERS:
        raise ValueError(f"num_hidden_layers={num_layers}: expected at most {MOST_LAYERS}")
    if num_groups != 1 and not any(share[part] in _USES_GROUPS for part in PARTS):
        raise ValueError(
            f"share does not use num_hidden_groups={num_groups}: leave it out, or choose one of "
            f"{', '.join(_USES_GROUPS)}"
        )
    attention, ffn = (_pattern(share[part], num_layers, num_groups) for part in PARTS)
    return attention, ffn


def _pattern(share: str | Sequence[int], num_layers: int, num_groups: int) -> Pattern:
    if isinstance(share, str):
        if share not in _PATTERNS:
            raise ValueError(
                f"share={share!r}: expected one of {', '.join(NAMES)}, a list with a number for "
                'each layer, or an object with "attention" and "ffn"'
            )
        return _PATTERNS[share](num_layers, num_groups)
    pattern = tuple(share)
    if any(type(number) is not int for number in pattern) or len(pattern) != num_layers:
        raise ValueError(
            f"share={list(pattern)}: expected num_hidden_layers={num_layers} whole numbers"
        )
    if set(pattern) != set(range(max(pattern) + 1)):
        raise ValueError(
            f"share={list(pattern)}: expected every number from 0 to {max(pattern)} at least once"
        )
    return pattern


def canonical(share: Any, num_layers: int, num_groups: int) -> tuple[Any, int]:
    """Returns the sharing with Google's name and number of groups if it is one of Google's.

    Args:
        share: as in `patterns`, or with lists, as in JSON.
        num_layers: L.
        num_groups: number of hidden groups.

    Raises:
        ValueError: as in `patterns`; or `share` is neither text, list nor mapping.
    """
    if share == GROUPS:
        return GROUPS, num_groups
    share = _hashable(share)
    attention, ffn = patterns(share, num_layers, num_groups)
    count = len(set(attention))
    if attention == ffn == _PATTERNS[GROUPS](num_layers, count):
        return GROUPS, count
    return share, num_groups


def _hashable(share: Any) -> Any:
    if isinstance(share, Mapping):
        return {part: _hashable(value) for part, value in share.items()}
    if isinstance(share, (list, tuple)):
        return tuple(share)
    if not isinstance(share, str):
        raise ValueError(f"share={share!r}: expected one of {', '.join(NAMES)}, or a list")
    return share


def count_modules(share: Share, num_layers: int, num_groups: int) -> tuple[int, int]:
    """Returns the numbers of attention and feed-forward modules."""
    if share == GROUPS:  # without the pattern, because the number of layers may be absurd
        count = min(num_groups, num_layers)
        return count, count
    attention, ffn = patterns(share, num_layers, num_groups)
    return len(set(attention)), len(set(ffn))
