"""Names of labels that a repository of the Hugging Face Hub describes beside its files.

Files of text have no place for them, so that `datasets` takes them from

* `dataset_info.json`: `{"features": {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}}`;
* `dataset_infos.json`: configuration → such an object;
* the front matter of `README.md`, in YAML:

      dataset_info:
      - config_name: mrpc
        features:
        - name: label
          dtype: {class_label: {names: {'0': 'no', '1': 'yes'}}}
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from albert_tf import files
from albert_tf.tables.card import NAME, folders_above, read_front_matter
from albert_tf.tables.label_names import LabelNames, of_features

_INFO, _INFOS = "dataset_info.json", "dataset_infos.json"
_LISTS = ("sequence", "list", "large_list")
_Names = dict[str, LabelNames]  # by column


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


def _described(folder: str) -> Iterator[tuple[dict[str, _Names], str]]:
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


def _choose(described: Mapping[str, _Names], folders: Sequence[str]) -> _Names:
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
