"""Reads the card of a data set on the Hugging Face Hub: the front matter, in YAML, of `README.md`.

It says which files are which split, whatever they are called, and may describe several data sets:

    configs:
    - config_name: default
      data_files:
      - split: train
        path: clean/*.csv
      - split: validation
        path: [b.csv, c.csv]

As in the library `datasets`, `data_files` without splits are those of "train", `data_dir` is the
folder in which files are looked for, and the default configuration is the only one, or the one that
is called "default" or has `default: true`.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from absl import logging

from albert_tf import files
from albert_tf.tables.compression import ending_of

NAME = "README.md"
_LEVELS = 3  # a repository may have its files in `configuration/split/`
_FRONT_MATTER = re.compile(rb"\A(?:\xef\xbb\xbf)?---\s*\n(.*?)^---\s*$", re.DOTALL | re.MULTILINE)
_MAX_FRONT_MATTER = 1 << 20  # bytes; those of thousands of configurations have less
_SEPARATORS = ("sep", "delimiter")
_OF_FILES = ("config_name", "data_files", "data_dir", "default", *_SEPARATORS)
_WITHOUT_EFFECT = ("description", "version", "features", "drop_labels", "drop_metadata")
_NOTHING = ("", "null", "~")
_MAX_NAMED = 10  # names in a message


@dataclasses.dataclass(frozen=True)
class Configuration:
    """A data set that a card describes.

    Attributes:
        name: what the card calls it.
        card: the path of the card.
        folder: the folder of its files, relative to that of the card; "" for the same.
        patterns: split, such as "validation" → files or patterns, relative to `folder`; {} if the
            names of the files tell the splits.
        is_default: whether it is meant where none is asked for.
        separator: what is between columns, a comma or a tab; "" for what the files' names say.
    """

    name: str
    card: str
    folder: str
    patterns: Mapping[str, Sequence[str]]
    is_default: bool
    separator: str = ""

    @property
    def base(self) -> str:
        """The folder of its files.

        Raises:
            ValueError: it is not in the folder of the card.
        """
        return files.inside(os.path.dirname(self.card), self.folder, self.card)

    def is_in(self, folder: str) -> bool:
        """Returns whether its files are in a folder, given relative to that of the card."""
        listed = [pattern for patterns in self.patterns.values() for pattern in patterns] or [""]
        paths = [os.path.normpath(os.path.join(self.folder, path, "")) for path in listed]
        return not folder or all(f"{path}/".startswith(f"{folder}/") for path in paths)

    def has(self, path: str) -> bool:
        """Returns whether a file is one of its files."""
        if not self.patterns:
            return os.path.normpath(path).startswith(os.path.join(os.path.normpath(self.base), ""))
        listed = (pattern for patterns in self.patterns.values() for pattern in patterns)
        found = (
            match
            for pattern in listed
            for match in _matches(files.inside(self.base, pattern, self.card), [ending_of(path)])
        )
        return os.path.normpath(path) in map(os.path.normpath, found)

    def files_of(self, split: str, endings: Collection[str]) -> list[str]:
        """Returns the files of a split in order.

        Args:
            split: one of `patterns`.
            endings: those of the files that a pattern means.

        Raises:
            FileNotFoundError: a file is missing, or a pattern matches none.
            ValueError: the card names a file outside of its folder.
        """
        found: dict[str, None] = {}
        for pattern in self.patterns[split]:
            path = files.inside(self.base, pattern, self.card)
            matches = _matches(path, endings)
            if not matches:
                raise FileNotFoundError(
                    f"{self.card}: {pattern!r}, of the split {split!r}, is missing in {self.base}. "
                    "Download the whole repository, or correct the name"
                )
            found.update(dict.fromkeys(matches))
        return list(found)


def _matches(path: str, endings: Collection[str]) -> list[str]:
    """Returns the files that a path or pattern means."""
    if files.is_file(path):
        return [path]
    try:
        matches = files.expand_patterns([path], NAME)
    except ValueError:  # it matches nothing
        return []
    return [match for match in matches if ending_of(match) in endings and files.is_file(match)]


def find_configuration(folder: str, names: Sequence[str] = ()) -> Configuration | None:
    """Returns what a card says about the files in a folder; None if there is no such card.

    The card is in the folder, or in one of the two above it if all files are in the folder.

    Args:
        folder: the folder, local or remote.
        names: those of the configurations that are meant, in lower case, the first one first; by
            default, the default one.

    Raises:
        ValueError: the card is damaged, or has several configurations without a default.
    """
    known = _find_configurations(folder)
    if not known:
        return None
    by_name = {each.name.lower(): each for each in known}
    asked = [by_name[name] for name in names if name in by_name]
    default = [each for each in known if each.is_default] if len(known) > 1 else known
    if not asked and len(default) != 1:
        listed = ", ".join(each.name for each in known[:_MAX_NAMED])
        more = ", …" if len(known) > _MAX_NAMED else ""
        raise ValueError(
            f"{known[0].card}: describes the configurations {listed}{more}, of which "
            f"{'several are' if default else 'none is'} the default. Pass the folder of one as "
            "--data_dir, or the files of its splits, as in --train_file"
        )
    return (asked or default)[0]


def find_configuration_of(path: str, names: Sequence[str] = ()) -> Configuration | None:
    """Returns what the nearest card says about a file; None if nothing, or several things.

    A card that cannot be used does not keep a file from being read that the user names.

    Args:
        path: the file, local or remote.
        names: see `find_configuration`; of several configurations with the file, one of these.
    """
    try:
        known = [each for each in _find_configurations(os.path.dirname(path)) if each.has(path)]
    except ValueError as error:
        logging.warning("%s. It is not used for %s", error, path)
        return None
    asked = [each for each in known if each.name.lower() in names]
    found = asked or known
    return found[0] if len(found) == 1 else None


def describes(folder: str) -> bool:
    """Returns whether a card says which files in a folder are which split."""
    return bool(_find_configurations(folder))


def _find_configurations(folder: str) -> list[Configuration]:
    """Returns what the nearest card says about the files in a folder."""
    for place, inside in folders_above(folder):
        path = os.path.join(place, NAME)
        if files.is_file(path):
            known = [each for each in _configurations(path) if each.is_in("/".join(inside[::-1]))]
            if known:
                return known
    return []


def folders_above(folder: str) -> Iterator[tuple[str, list[str]]]:
    """Yields a folder and the two above it, with the names of those between, the inner first."""
    place = folder.rstrip("/") or folder
    inside: list[str] = []
    for _ in range(_LEVELS):
        yield place, inside
        place, name = os.path.split(place)
        inside = [*inside, name]
        if not name or place.endswith(":"):  # the root, or the scheme of a remote path
            return


def _configurations(path: str) -> list[Configuration]:
    """Returns the configurations of a card that say which files they have."""
    entries = read_front_matter(path, b"data_files", b"data_dir").get("configs")
    listed = entries if isinstance(entries, list) else []
    return [
        _configuration(entry, path)
        for entry in listed
        if isinstance(entry, dict) and not {"data_files", "data_dir"}.isdisjoint(entry)
    ]


def _configuration(entry: files.JsonObject, path: str) -> Configuration:
    name = entry.get("config_name")
    folder = entry.get("data_dir") or ""
    if not isinstance(name, str) or not isinstance(folder, str):
        raise ValueError(
            f"{path}: a configuration has config_name {files.quote(name)} and data_dir "
            f"{files.quote(folder)}, expected a name and a folder"
        )
    separator = next((entry[key] for key in _SEPARATORS if key in entry), "")
    if separator not in ("", ",", "\t"):
        raise ValueError(
            f"{path}: the configuration {name!r} has columns separated by "
            f"{files.quote(separator)}, expected a comma or a tab. Convert its files, and name "
            "them by the flags for files"
        )
    ignored = [key for key in entry if key not in _OF_FILES + _WITHOUT_EFFECT]
    if ignored:
        logging.warning("%s: %s of %r has no effect here", path, ", ".join(ignored), name)
    return Configuration(
        name,
        path,
        "" if folder in _NOTHING else os.path.normpath(folder),
        _patterns(entry.get("data_files") or "", f"{path}: data_files of {name!r}"),
        name == "default" or str(entry.get("default")).lower() in ("true", "yes", "on"),
        separator,
    )


def _patterns(described: files.Json, place: str) -> dict[str, list[str]]:
    """Returns split → patterns: of a pattern, a list of them, or a mapping or list of splits."""
    if described in _NOTHING:
        return {}
    if isinstance(described, list) and any(isinstance(item, dict) for item in described):
        pairs = [
            (item.get("split"), item.get("path")) if isinstance(item, dict) else (None, item)
            for item in described
        ]
    elif isinstance(described, dict):
        pairs = list(described.items())
    else:
        pairs = [("train", described)]
    found: dict[str, list[str]] = {}
    for split, paths in pairs:
        listed = [paths] if isinstance(paths, str) else paths
        is_valid = isinstance(listed, list) and all(isinstance(p, str) and p for p in listed)
        if not isinstance(split, str) or not listed or not is_valid:
            raise ValueError(
                f"{place}: {files.quote({split: paths})}, expected a split and its files"
            )
        if split in found:
            raise ValueError(f"{place}: the split {split!r} occurs twice. Write all files in one")
        found[split] = listed
    return found


def read_front_matter(path: str, *words: bytes) -> files.JsonObject:
    """Returns the front matter of a page, with text alone as values.

    Args:
        path: the page.
        words: without any of them it is {}, because a page may be of something else.

    Raises:
        ValueError: it is damaged or very long; the message names the page and the line.
    """
    found = _FRONT_MATTER.match(files.read_bytes(path))
    if found is None or not any(word in found[1] for word in words):
        return {}
    if len(found[1]) > _MAX_FRONT_MATTER:
        raise ValueError(
            f"{path}: its front matter has {len(found[1]):,} bytes, expected up to "
            f"{_MAX_FRONT_MATTER:,}. Leave only configs and dataset_info in it"
        )
    page = _parse_yaml(files.decode_utf8(found[1], path, first_line=2), path)
    if not isinstance(page, dict):
        raise ValueError(f"{path}: the front matter is {files.quote(page)}, expected names: values")
    return page


def _parse_yaml(text: str, path: str) -> files.Json:
    """Returns what YAML that begins on line 2 of a file contains."""
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
