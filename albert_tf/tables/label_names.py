"""Names of labels for columns of class ids, which Hugging Face's `datasets` stores or describes.

    {"info": {"features": {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}}}

is the JSON in the metadata of the schema of a Parquet or Arrow file, under the key "huggingface".
Files of text have no place for it, so that a repository describes them beside its files, in

* `dataset_info.json`: the object "info";
* `dataset_infos.json`: configuration → such an object;
* the card, `README.md`, in YAML:

      dataset_info:
      - config_name: mrpc
        features:
        - name: label
          dtype: {class_label: {names: {'0': 'no', '1': 'yes'}}}
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from albert_tf import files
from albert_tf.tables.card import NAME, folders_above, read_front_matter

if TYPE_CHECKING:
    import pyarrow

_KEY = b"huggingface"
_UNKNOWN = -1  # the id where a label is not known, as in test splits
_INFO, _INFOS = "dataset_info.json", "dataset_infos.json"
_LISTS = ("sequence", "list", "large_list")


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


def find_labels(path: str, configuration: str = "") -> tuple[dict[str, LabelNames], str]:
    """Returns column → names of its labels, for a file of rows, and the file that describes them.

    Nothing is found, ({}, ""), if there is no such file, or several configurations may be meant.
    The folder of the file and the two above it are looked at, the nearest first. Of several
    configurations, the one counts that is given, or that a folder of the file is named after;
    otherwise, all must have the same names.

    Args:
        path: the file of rows.
        configuration: the name of its configuration; "" if it is not known.

    Raises:
        ValueError: a description is damaged.
    """
    for folder, inside in folders_above(os.path.dirname(path)):
        for described, source in _described(folder):
            chosen = _choose(described, [*filter(None, [configuration]), *inside])
            if chosen:
                return chosen, source
    return {}, ""


def _described(folder: str) -> Iterator[tuple[dict[str, dict[str, LabelNames]], str]]:
    """Yields configuration → names of labels, and the path, of files in a folder that have some."""
    for name, read in ((_INFO, _read_info), (_INFOS, _read_infos), (NAME, _read_page)):
        path = os.path.join(folder, name)
        if not files.is_file(path):
            continue
        try:
            described = {key: of_features(features) for key, features in read(path).items()}
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path}: the description of the data is damaged: {error!r}") from None
        yield described, path


def _choose(
    described: Mapping[str, dict[str, LabelNames]], folders: Sequence[str]
) -> dict[str, LabelNames]:
    """Returns the names of the configuration of a file, which is in some folders."""
    for folder in folders:
        if folder in described:
            return described[folder]
    first, *others = described.values() or [{}]
    return first if all(other == first for other in others) else {}


def _read_info(path: str) -> dict[str, Mapping[str, object]]:
    return {"": files.read_json(path).get("features") or {}}


def _read_infos(path: str) -> dict[str, Mapping[str, object]]:
    return {name: info["features"] or {} for name, info in files.read_json(path).items()}


def _read_page(path: str) -> dict[str, Mapping[str, object]]:
    """Returns configuration → column → feature as in JSON, of the front matter of a page."""
    infos = read_front_matter(path, b"class_label").get("dataset_info") or []
    return {
        info.get("config_name", ""): {
            feature["name"]: _feature_of(feature) for feature in info.get("features") or []
        }
        for info in ([infos] if isinstance(infos, dict) else infos)
    }


def _feature_of(described: files.Json) -> files.Json:
    """Returns a feature as in JSON, with its names or its inner feature; {} if it has neither."""
    if not isinstance(described, dict):
        return {}
    if "class_label" in described:
        names = described["class_label"]["names"]
        if isinstance(names, dict):  # by id
            names = [names[str(number)] for number in range(len(names))]
        return {"names": names}
    if "dtype" in described:
        return _feature_of(described["dtype"])
    inner = next((described[kind] for kind in _LISTS if kind in described), None)
    return {} if inner is None else {"feature": _feature_of(inner)}
