"""The splits of a task's data: examples, and the features that are made of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from albert_tf.finetuning.batching import Features

DataType = TypeVar("DataType")  # the examples of a split, as the task's `read` returns them
FeaturesType = TypeVar("FeaturesType", bound=Features)  # as its `make_features` returns them
AnySplit: TypeAlias = "Split[Any, Any]"

TRAIN = "train"
DEV = "dev"


@dataclasses.dataclass(frozen=True, eq=False)
class Split(Generic[DataType, FeaturesType]):
    """Examples and their features.

    Attributes:
        name: "train", "dev", "test", or another split that the task predicts.
        data: the examples, as returned by `FineTuningTask.read`.
        features: their features, as returned by `FineTuningTask.make_features`.
    """

    name: str
    data: DataType
    features: FeaturesType


def make_splits(
    make_features: Callable[[DataType, str], FeaturesType], data: Mapping[str, DataType]
) -> dict[str, Split[DataType, FeaturesType]]:
    """Returns splits with their features; splits of the same examples (as in SQuAD) share them.

    Args:
        make_features: returns the features of the examples of a split, given its name.
        data: name → examples of each split.
    """
    splits: dict[str, Split[DataType, FeaturesType]] = {}
    for name, examples in data.items():
        existing = [split.features for split in splits.values() if split.data is examples]
        features = existing[0] if existing else make_features(examples, name)
        splits[name] = Split(name, examples, features)
    return splits
