"""Names of labels that Hugging Face's `datasets` stores with a table, for columns of class ids.

    {"info": {"features": {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}}}

is the JSON in the metadata of the schema of a Parquet or Arrow file, under the key "huggingface".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from albert_tf import files

if TYPE_CHECKING:
    import pyarrow

_KEY = b"huggingface"
_UNKNOWN = -1  # the id where a label is not known, as in test splits


@dataclasses.dataclass(frozen=True)
class LabelNames:
    """The names of the labels in a column whose cells are class ids, starting at 0.

    Attributes:
        names: the names, in the order of the ids.
        is_list: whether each cell is a list of ids: tags of tokens, or any number of labels.
    """

    names: tuple[str, ...]
    is_list: bool = False

    def decode(self, cell: files.Json) -> files.Json:
        """Returns the names for the ids in a cell; None for -1 and None; other values unchanged."""
        if isinstance(cell, list):
            return [self.decode(value) for value in cell]
        if not isinstance(cell, int) or isinstance(cell, bool):
            return cell
        if cell == _UNKNOWN:
            return None
        return self.names[cell] if 0 <= cell < len(self.names) else cell


def of_schema(schema: pyarrow.Schema, path: str) -> dict[str, LabelNames]:
    """Returns column → names of its labels, for all columns of a table that have some.

    Args:
        schema: the schema of the table.
        path: the file, for messages.

    Raises:
        ValueError: the metadata are damaged.
    """
    stored = (schema.metadata or {}).get(_KEY)
    if stored is None:
        return {}
    try:
        features = files.load_json(stored)["info"]["features"]
        return of_features(features)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: the metadata 'huggingface' are damaged: {error!r}") from None


def of_features(features: Mapping[str, object]) -> dict[str, LabelNames]:
    """Returns column → names of its labels, for all columns that have some.

    Args:
        features: column → feature, as in JSON, or as the objects of `datasets`.
    """
    found = {name: _of_feature(feature) for name, feature in features.items()}
    return {name: names for name, names in found.items() if names is not None}


def _of_feature(feature: object) -> LabelNames | None:
    names = _part(feature, "names")
    if names and isinstance(names, list) and all(isinstance(name, str) for name in names):
        return LabelNames(tuple(names))
    # A list of labels: of the kind Sequence, List or LargeList, or as a list of one feature.
    inner = feature[0] if isinstance(feature, list) and feature else _part(feature, "feature")
    of_items = None if inner is None else _of_feature(inner)
    return None if of_items is None else dataclasses.replace(of_items, is_list=True)


def _part(feature: object, name: str) -> files.Json:
    """Returns a part of a feature, given in JSON or as an object; None if it has no such part."""
    return feature.get(name) if isinstance(feature, Mapping) else getattr(feature, name, None)
