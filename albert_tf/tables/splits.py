"""Finds the files of a split in a folder, by the words in the names of files and folders.

These are the folders of the Hugging Face Hub and of `datasets`, as they are:

    mrpc/train-00000-of-00002.parquet       data/validation-00000-of-00001.parquet     dev.jsonl.gz
    train/data-00000-of-00001.arrow with train/state.json, as `save_to_disk` writes them

and those of Spark and Dask, `train.csv/part-00000-3c9a.csv`.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Collection, Iterator, Sequence

from albert_tf import files
from albert_tf.tables.card import Configuration, describes
from albert_tf.tables.compression import ending_of
from albert_tf.tables.table_files import PART

# Split → the words that mean it.
WORDS = {
    "train": ("train", "training"),
    "dev": ("dev", "validation", "valid", "val"),
    "test": ("test", "testing"),
}
ENDINGS = (".parquet", ".arrow", ".jsonl", ".ndjson", ".json", ".csv", ".tsv")
# Endings that mean a split themselves, as in eng.train, eng.testa and eng.testb of CoNLL-2003.
ENDINGS_OF_SPLITS = {
    ".train": "train",
    ".dev": "dev",
    ".valid": "dev",
    ".testa": "dev",
    ".test": "test",
    ".testb": "test",
}
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".zst")
_STATE = "state.json"  # of `save_to_disk`, with the files in order
_NOT_ROWS = {_STATE, "dataset_dict.json", "dataset_info.json", "dataset_infos.json"}
_DATA = "data"  # the folder with the files of many repositories
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})(?:-[0-9a-f]{8,})?")
_MAX_NAMED = 10  # names in a message


@dataclasses.dataclass(frozen=True)
class Group:
    """Files that belong together.

    Attributes:
        name: what tells the split: the name of the file, without shard and ending, or its folder's.
        split: "train", "dev" or "test".
        paths: the files in order, relative to the folder.
    """

    name: str
    split: str
    paths: tuple[str, ...]

    @property
    def shown(self) -> str:
        """The files, for a message."""
        return f"{self.paths[0]} … {self.paths[-1]}" if len(self.paths) > 1 else self.paths[0]


def find_split(
    folder: str, split: str, suffix: str = "", endings: Collection[str] = ENDINGS
) -> list[str]:
    """Returns the files of a split in order.

    Args:
        folder: the folder; local or remote.
        split: "train", "dev" or "test".
        suffix: a further word in the name of the split if it has several sets, such as "matched".
        endings: the endings of files to look for.

    Raises:
        FileNotFoundError: there is none; the message says what the folder has.
        ValueError: several sets of files may be meant, or a shard is missing.
    """
    groups = find_groups(folder, endings)
    names = best_names([group.name for group in groups], split, suffix)
    chosen = [group for group in groups if group.name in names]
    if not chosen:
        raise FileNotFoundError(f"no {split} data in {folder}: {describe(folder, groups)}")
    if len(chosen) > 1:
        shown = " and ".join(group.shown for group in chosen[:_MAX_NAMED])
        raise ValueError(
            f"{folder} contains {shown}: keep only one of them, or name the files of the split"
        )
    _check_shards(folder, chosen[0].paths)
    return [os.path.join(folder, path) for path in chosen[0].paths]


def find_described(
    described: Configuration, split: str, suffix: str = "", endings: Collection[str] = ENDINGS
) -> list[str]:
    """Returns the files of a split that the card of a repository names, [] if it names none.

    Args:
        described: what the card says, with patterns.
        split: see `find_split`.
        suffix: see `find_split`.
        endings: see `find_split`.

    Raises:
        FileNotFoundError: a file that the card names is missing.
        ValueError: several splits may be meant, or a shard is missing.
    """
    names = best_names(list(described.patterns), split, suffix)
    if len(names) > 1:
        raise ValueError(
            f"{described.card} has the splits {' and '.join(names)}: keep only one of them, or "
            "name the files of the split"
        )
    paths = described.files_of(names[0], endings) if names else []
    if paths:
        _check_shards(os.path.dirname(paths[0]), [os.path.basename(path) for path in paths])
    return paths


def find_folder(folder: str, names: Sequence[str], endings: Collection[str] = ENDINGS) -> str:
    """Returns the folder of a data set: the first of some folders in a folder that has files of it.

    Args:
        folder: the folder, which is returned if none of the others has files.
        names: their names, whose letter case does not count.
        endings: see `find_split`.
    """
    entries = files.list_directory(folder) if names else []
    for name in names:
        alike = [entry for entry in entries if entry.lower() == name.lower()]
        for entry in sorted(alike, key=lambda entry: entry != name):  # the very name first
            inner = os.path.join(folder, entry)
            if files.is_directory(inner) and _has_data(inner, endings):
                return inner
    return folder


def _has_data(folder: str, endings: Collection[str] = ENDINGS) -> bool:
    return bool(find_groups(folder, endings)) or describes(folder)


def has_splits(folder: str, inner: Collection[str] = ()) -> bool:
    """Returns whether a folder has files of splits, itself or in one of some folders in it."""
    places = [folder, *(os.path.join(folder, name) for name in inner)]
    return any(files.is_directory(place) and _has_data(place) for place in places)


def best_names(names: Sequence[str], split: str, suffix: str = "") -> list[str]:
    """Returns which of some names mean a split: one, none, or several that may be meant.

    Args:
        names: such as "train" or "validation_matched".
        split: "train", "dev" or "test".
        suffix: see `find_split`.
    """
    others = {n: set(_words(n)) - {*WORDS[split]} for n in names if _split_of(n) == split}
    exact = [name for name in others if not others[name]]
    if suffix:
        exact = [name for name in others if others[name] == {suffix}] or exact
    return exact or list(others)


def find_files(pattern: str, what: str) -> list[str]:
    """Returns the files that a flag names, in order.

    Args:
        pattern: files or patterns, separated by commas; or a folder that `save_to_disk` of a
            `Dataset`, Spark or Dask has written.
        what: the flag, for messages.

    Raises:
        ValueError, FileNotFoundError: there is none, or a shard is missing.
    """
    if files.is_directory(pattern):
        saved = _saved_order(pattern, "") or _parts_in(pattern)
        if not saved:
            raise ValueError(
                f"{what}: {pattern} is a folder, but not one that `save_to_disk` of a Dataset, "
                "Spark or Dask has written. Pass the files in it, as in 'folder/*.parquet'"
            )
        return [os.path.join(pattern, name) for name in saved]
    paths = files.expand_patterns(pattern, what)
    _check_shards(os.path.dirname(paths[0]), [os.path.basename(path) for path in paths])
    return paths


def find_groups(folder: str, endings: Collection[str] = ENDINGS) -> list[Group]:
    """Returns all files of splits in a folder, those of each set together."""
    sets: dict[tuple[str, str, str], list[str]] = {}
    for path in _files_in(folder, endings):
        name = _name_of(path)
        if name is not None:
            key = (os.path.dirname(path), name, ending_of(path))
            sets.setdefault(key, []).append(path)
    groups = []
    for (place, name, _), paths in sets.items():
        split = _split_of(name)
        if split is not None:
            ordered = _saved_order(folder, place) or sorted(paths)
            groups.append(Group(name, split, tuple(ordered)))
    return groups


def describe(folder: str, groups: Sequence[Group] = ()) -> str:
    """Returns what a folder contains, for a message about what it does not."""
    if groups:
        return "it has " + ", ".join(f"{group.split} ({group.shown})" for group in groups)
    names = [name for name in files.list_directory(folder) if not name.startswith(".")]
    configurations = [
        name
        for name in names
        if files.is_directory(os.path.join(folder, name))
        and find_groups(os.path.join(folder, name))
    ]
    if configurations:
        return (
            f"it has the folders {_listed(configurations)}, which have splits: pass one of them as "
            "--data_dir"
        )
    archives = [name for name in names if name.lower().endswith(_ARCHIVES)]
    advice = f". Unpack {_listed(archives)}" if archives else ""
    return f"it has {_listed(names)}{advice}" if names else "it is empty"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_NAMED]) + (", …" if len(names) > _MAX_NAMED else "")


def _files_in(folder: str, endings: Collection[str], inside: str = "") -> Iterator[str]:
    """Yields the files of rows in a folder, in its folder `data`, and in folders of splits."""
    for name, kind in files.list_types(os.path.join(folder, inside)).items():
        path = os.path.join(inside, name)
        if name.startswith((".", "_", "cache-")) or name in _NOT_ROWS:
            continue
        if kind != "directory":
            if ending_of(name) in endings:
                yield path
        elif (name == _DATA and not inside) or _split_of(name):
            yield from _files_in(folder, endings, path)
        elif _split_of(inside) and "=" in name:
            raise ValueError(
                f"{os.path.join(folder, path)}: the rows are divided by the values of a column, "
                "which the files do not have. Write them again without partitions"
            )


def _parts_in(folder: str) -> list[str]:
    """Returns the files that Spark or Dask has written to a folder; [] if it has others as well."""
    found = [name for name in _files_in(folder, ENDINGS) if os.path.dirname(name) == ""]
    return found if all(name.startswith(PART) for name in found) else []


def _name_of(path: str) -> str | None:
    """Returns the name that tells the split of a file: its own, or else that of its folder."""
    stem = _stem_of(path)
    shard = _SHARD.fullmatch(stem)
    stem = shard[1] if shard else stem
    by_ending = ENDINGS_OF_SPLITS.get(ending_of(path))
    if by_ending is not None:
        stem = f"{stem}.{by_ending}"
    folder = _stem_of(os.path.dirname(path))
    return next((name for name in (stem, folder) if _split_of(name)), None)


def _stem_of(path: str) -> str:
    """Returns the name of a file or folder without its endings."""
    name = os.path.basename(path)
    return name[: name.lower().rindex(ending_of(path))]


def _words(name: str) -> list[str]:
    return re.findall("[a-z]+", name.lower())


def _split_of(name: str) -> str | None:
    """Returns the split that a name means; None if it has words of none or of several."""
    words = set(_words(name))
    meant = [split for split, known in WORDS.items() if not words.isdisjoint(known)]
    return meant[0] if len(meant) == 1 else None


def _saved_order(folder: str, place: str) -> list[str]:
    """Returns the files that `save_to_disk` has written to a folder, in order; [] if it has not."""
    state = os.path.join(folder, place, _STATE)
    if not files.is_file(state):
        return []
    listed = files.read_json(state, {"_data_files": list})["_data_files"]
    for entry in listed:
        files.check_fields({"_data_files": entry}, f"{state}: an entry", {"_data_files": dict})
        files.check_fields(entry, state, {"filename": str})
    names = [entry["filename"] for entry in listed]
    for name in names:
        if not files.is_file(files.inside(os.path.join(folder, place), name, state)):
            path = os.path.join(place, name)
            raise FileNotFoundError(f"{state}: {path} is missing. Copy the whole folder again")
    return [os.path.join(place, name) for name in names]


def _check_shards(folder: str, paths: Sequence[str]) -> None:
    """Raises ValueError if shards are missing: `-00001-of-00003` means that there are three."""
    shards = {}
    for path in paths:
        shard = _SHARD.fullmatch(_stem_of(path))
        if shard:
            shards[int(shard[2])] = int(shard[3])
    counts = set(shards.values())
    if len(counts) > 1:
        raise ValueError(f"{folder}: {paths[0]} … {paths[-1]} are shards of several sets of files")
    missing = [number for number in range(max(counts, default=0)) if number not in shards]
    if missing:
        names = _listed([f"-{number:05}-of-{max(counts):05}" for number in missing])
        raise ValueError(
            f"{os.path.join(folder, paths[0])}: the shards {names} are missing. Download them as "
            "well"
        )
