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

import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from albert_tf import files
from albert_tf.tables.label_names import LabelNames, of_features

_INFO, _INFOS, _PAGE = "dataset_info.json", "dataset_infos.json", "README.md"
_LEVELS = 3  # a repository may have its files in `configuration/split/`
_FRONT_MATTER = re.compile(rb"\A(?:\xef\xbb\xbf)?---\s*\n(.*?)^---\s*$", re.DOTALL | re.MULTILINE)
_MAX_FRONT_MATTER = 1 << 20  # bytes; those of thousands of configurations have less
_LISTS = ("sequence", "list", "large_list")
_Names = dict[str, LabelNames]  # by column


def find_labels(path: str) -> tuple[dict[str, LabelNames], str]:
    """Returns column → names of its labels, for a file of rows, and the file that describes them.

    Nothing is found, ({}, ""), if there is no such file, or several configurations may be meant.
    The folder of the file and the two above it are looked at, the nearest first. Of several
    configurations, the one counts that a folder of the file is named after; otherwise, all must
    have the same names.

    Raises:
        ValueError: a description is damaged.
    """
    folder = os.path.dirname(path)
    inside: list[str] = []
    for _ in range(_LEVELS):
        for described, source in _described(folder):
            chosen = _choose(described, inside)
            if chosen:
                return chosen, source
        folder, name = os.path.split(folder)
        inside.append(name)
        if not name or folder.endswith(":"):  # the root, or the scheme of a remote path
            break
    return {}, ""


def _described(folder: str) -> Iterator[tuple[dict[str, _Names], str]]:
    """Yields configuration → names of labels, and the path, of files in a folder that have some."""
    for name, read in ((_INFO, _read_info), (_INFOS, _read_infos), (_PAGE, _read_page)):
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
    found = _FRONT_MATTER.match(files.read_bytes(path))
    if found is None or b"class_label" not in found[1]:
        return {}  # any page, perhaps of something else
    if len(found[1]) > _MAX_FRONT_MATTER:
        raise ValueError(
            f"{path}: its front matter has {len(found[1]):,} bytes, expected up to "
            f"{_MAX_FRONT_MATTER:,}. Leave only dataset_info in it"
        )
    page = _parse_yaml(files.decode_utf8(found[1], path, first_line=2), path)
    infos = page.get("dataset_info") or []
    return {
        info.get("config_name", ""): {
            feature["name"]: _feature_of(feature) for feature in info.get("features") or []
        }
        for info in ([infos] if isinstance(infos, dict) else infos)
    }


def _parse_yaml(text: str, path: str) -> files.Json:
    """Returns what YAML that begins on line 2 of a file contains, with text alone as values."""
    yaml = importlib.import_module("yaml")
    # Text alone, so that "no" is not False. That of libyaml, if it is there, is ten times as fast.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        return yaml.load(text, Loader=loader)
    except RecursionError:
        raise ValueError(f"{path}: the front matter is nested hundreds of levels") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}, line {mark.line + 2}" if mark else path
        problem = getattr(error, "problem", None) or getattr(error, "reason", "unknown")
        raise ValueError(f"{place}: the front matter is not YAML: {problem}") from None


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
