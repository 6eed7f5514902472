"""Which layers of the encoder share their attention and feed-forward modules.

A pattern gives the number of a module for each layer: `(0, 0, 1, 1)` means that four layers use
two modules. Attention and feed-forward network have a pattern each, so that ALBERT can share all
weights, those of one of them, or none (arXiv 1909.11942, section 4.5 and table 4).

The rule for the names of weights extends Google's: module g of the attention has Google's names
in `group_<g>`, and so has module g of the feed-forward network. Where Google's hidden groups
express the sharing, config files and checkpoints are Google's.
"""

from __future__ import annotations

from albert_tf import files

Pattern = tuple[int, ...]

GROUPS = "groups"
# Name → whether all layers share their attention, and whether they share their feed-forward module.
_IS_SHARED = {
    "all": (True, True),
    "attention": (True, False),
    "ffn": (False, True),
    "none": (False, False),
}
SHARING_NAMES = (GROUPS, *_IS_SHARED)


def google_groups(num_layers: int, num_groups: int) -> Pattern:
    """Returns the hidden group of each layer in Google's models: ⌊layer / L · G⌋, both from 0.

    Computed in floating point as in Google's `transformer_model`: if rounding skips a group (as
    with G = L = 22 at layer 15), Google's checkpoints do not contain that group either.
    """
    return tuple(int(layer / num_layers * num_groups) for layer in range(num_layers))


def as_google_groups(share: str, num_layers: int, num_groups: int) -> tuple[str, int]:
    """Returns the sharing and the number of groups, "groups" where Google's groups express it.

    Raises:
        ValueError: the name is unknown, or does not use `num_groups`.
    """
    if share not in SHARING_NAMES:
        raise ValueError(f"share={files.quote(share)}: expected one of {', '.join(SHARING_NAMES)}")
    if share == GROUPS:
        return GROUPS, num_groups
    if num_groups != 1:
        raise ValueError(
            f"share={share!r} does not use num_hidden_groups={num_groups}: leave one of them out"
        )
    if share == "all":
        return GROUPS, 1
    each_its_own = tuple(range(num_layers))
    is_google = share == "none" and google_groups(num_layers, num_layers) == each_its_own
    return (GROUPS, num_layers) if is_google else (share, 1)


def patterns_of(share: str, num_layers: int, num_groups: int) -> tuple[Pattern, Pattern]:
    """Returns the patterns of attention and feed-forward modules of a config's `share`."""
    if share == GROUPS:
        pattern = google_groups(num_layers, num_groups)
        return pattern, pattern
    attention, ffn = (
        (0,) * num_layers if is_shared else tuple(range(num_layers))
        for is_shared in _IS_SHARED[share]
    )
    return attention, ffn
