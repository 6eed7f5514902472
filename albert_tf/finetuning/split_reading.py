"""Reads the splits that a run uses, and makes a dev split of training data if it asks for that."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, TypeVar

from absl import logging

from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.split_tables import MissingSplitError
from albert_tf.finetuning.splits import DEV, TRAIN

ExamplesType = TypeVar("ExamplesType", bound=Examples[Any])

_SEED = 12345  # not `--seed`, with which the runs of a sweep differ


def read_splits(
    splits: Collection[str],
    dev_fraction: float,
    read: Callable[[str], ExamplesType],
    known: Mapping[str, ExamplesType] | None = None,
    group_of: Callable[[Any], Hashable] | None = None,
) -> dict[str, ExamplesType]:
    """Returns the examples of the splits that a run uses.

    Args:
        splits: their names.
        dev_fraction: the fraction of the training examples that is the dev split; 0 to read it.
        read: returns the examples of a split; raises `MissingSplitError` if there are none.
        known: splits that have been read.
        group_of: what examples have in common that must be in the same split, such as a passage.

    Raises:
        ValueError: a dev split is asked for although there is one, or the data are too few.
    """
    data = dict(known or {})
    if dev_fraction and not {TRAIN, DEV}.isdisjoint(splits):
        _refuse_dev(read)
        whole = data.get(TRAIN) or read(TRAIN)
        data[TRAIN], data[DEV] = divide(whole, dev_fraction, group_of)
    return {split: data[split] if split in data else read(split) for split in splits}


def _refuse_dev(read: Callable[[str], ExamplesType]) -> None:
    """Raises a ValueError if there are data of the dev split."""
    try:
        found = read(DEV)
    except MissingSplitError:
        return
    raise ValueError(f"--dev_fraction: there are dev data, {found.path}. Leave out this flag")


def divide(
    whole: ExamplesType,
    fraction: float,
    group_of: Callable[[Any], Hashable] | None = None,
) -> tuple[ExamplesType, ExamplesType]:
    """Returns training and dev examples, each in the order of the file.

    The same examples are chosen in every run: at random, with a fixed seed.

    Args:
        whole: all examples.
        fraction: the fraction that becomes the dev split.
        group_of: see `read_splits`.

    Raises:
        ValueError: one of them would be empty.
    """
    keys = [i if group_of is None else group_of(x) for i, x in enumerate(whole.examples)]
    groups = list(dict.fromkeys(keys))
    count = round(fraction * len(groups))
    if not 0 < count < len(groups):
        what = "examples" if group_of is None else "passages"
        raise ValueError(
            f"--dev_fraction={fraction:g} of {len(groups)} {what} in {whole.path} leaves none for "
            f"{'training' if count else 'evaluation'}"
        )
    chosen = set(random.Random(_SEED).sample(groups, count))
    parts = [
        [x for x, key in zip(whole.examples, keys, strict=True) if (key in chosen) == is_dev]
        for is_dev in (False, True)
    ]
    logging.info(
        "--dev_fraction=%g: %d of %d examples in %s are for evaluation, not for training",
        *(fraction, len(parts[1]), len(whole), whole.path),
    )
    train, dev = (dataclasses.replace(whole, examples=part) for part in parts)
    return train, dev
