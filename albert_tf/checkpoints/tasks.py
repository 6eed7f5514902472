"""The names of tasks in records of runs, and the settings that the head of each is made with.

The registry in `finetuning/` has a row for each, and adds those of users.
"""

from __future__ import annotations

CLASSIFICATION = "classification"
REGRESSION = "regression"
MULTI_LABEL = "multi_label_classification"
TOKEN_CLASSIFICATION = "token_classification"
MULTIPLE_CHOICE = "multiple_choice"
SPANS = "spans"
ANSWERABLE_SPANS = "answerable_spans"
FILL_MASK = "fill_mask"
EMBEDDINGS = "embeddings"
PRETRAINING = "pretraining"  # of a model for pre-training, which is used to fill in masks
ALIASES = {PRETRAINING: FILL_MASK}

_POOLS = ("use_pooled_output",)
_head_settings: dict[str, tuple[str, ...]] = {
    CLASSIFICATION: _POOLS,
    REGRESSION: _POOLS,
    MULTI_LABEL: _POOLS,
    TOKEN_CLASSIFICATION: (),
    MULTIPLE_CHOICE: (),
    SPANS: (),
    ANSWERABLE_SPANS: ("start_n_top", "end_n_top"),
    FILL_MASK: (),
    EMBEDDINGS: (),
}
NAMES = tuple(_head_settings)  # of this package


def add(name: str, head_settings: tuple[str, ...]) -> None:
    """Adds a task of a user, and the names of the settings that its head is made with."""
    _head_settings[name] = head_settings


def canonical(name: str) -> str:
    """Returns the name of a task, which may be given by its alias.

    Raises:
        ValueError: there is no such task. The message lists all tasks.
    """
    known = ALIASES.get(name, name)
    if known not in _head_settings:
        expected = ", ".join(map(repr, (*_head_settings, *ALIASES)))
        raise ValueError(
            f"task={name!r}: expected one of {expected}. If it is a task of your own, import the "
            "file that registers it (albert predict: --task_module)"
        )
    return known


def head_settings(name: str) -> tuple[str, ...]:
    """Returns the names of the settings that are arguments of the head of a task.

    Raises:
        ValueError: there is no such task.
    """
    return _head_settings[canonical(name)]
