"""Looks at local and remote paths: what exists, what a directory contains, what a pattern matches.

Local files are matched by Python itself, because the patterns of fsspec match hidden files.

This package includes configs and recipes. In a checkout, they are in `configs/`, beside the
package; an installed package contains a copy of this folder.
"""

from __future__ import annotations

import glob
import os
import re
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeAlias

from albert_tf.files.messages import quote
from albert_tf.spelling import closest, did_you_mean

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


PathLike: TypeAlias = "str | os.PathLike[str]"
_LIKENESS = 0.7  # of names with the same ending, which are alike already
_LOST_SLASH = re.compile(r"(\w[\w+.-]+):/(?!/)")  # of gs://bucket, which `pathlib` takes for a path


def path_text(path: PathLike, what: str) -> str:
    """Returns a path as a text, which all functions of this folder take.

    Args:
        path: a text or a path of `pathlib`.
        what: the argument with the path, for the message.

    Raises:
        ValueError: it is something else, such as bytes.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise ValueError(
            f"{what}={path!r:.60}: expected a path as str or pathlib.Path, got a "
            f"{type(path).__name__}"
        )
    return str(text)


def check_path(path: str, what: str = "") -> None:
    """Checks that `~` was expanded in a path: a shell does not do it in `--output_dir=~/run`.

    Args:
        path: a file, a folder or a pattern.
        what: the flag or argument with the path, for the message.

    Raises:
        ValueError: the path begins with the home directory of a user, as `~` or `~name`.
    """
    if path.startswith("~") and (expanded := os.path.expanduser(path)) != path:
        raise ValueError(
            f"{what and what + ': '}{path}: the shell has not replaced ~. Write {expanded}, or "
            f"./{path} for a name that begins with ~"
        )


def unset_variable(path: str) -> str:
    """Returns what may be wrong with a missing path, such as `$FOLDER/model.ckpt`; or ""."""
    is_at_root = os.path.dirname(path) == "/"
    if found := _LOST_SLASH.match(path):
        return f". pathlib has made :/ of ://: pass {found[1]}://… as a str"
    return ". The shell variable before the first slash may not be set" if is_at_root else ""


def similar_path(path: str, kind: str = "", ending: str = "") -> str:
    """Returns the existing path that a misspelled one is most similar to; "" if none is similar.

    Of each name that does not exist, the most similar one in its place is taken. Nothing is looked
    for in stores, where a folder may have millions of files.

    Args:
        path: a path that does not exist.
        kind: what is wanted, "file" or "directory"; "" for both.
        ending: what the name of the path may lack.
    """
    if is_remote(path):
        return ""
    here = ""
    names = PurePath(path).parts
    for depth, name in enumerate(names, 1):
        there = os.path.join(here, name)
        if not os.path.exists(there):
            wanted = kind if depth == len(names) else "directory"
            names_here = _names_of_kind(here, wanted, ending, name.startswith("."))
            meant = closest(name, names_here, _LIKENESS)
            if meant is None:
                return ""
            there = os.path.join(here, meant)
        here = there
    return here


def _names_of_kind(folder: str, kind: str, ending: str, with_hidden: bool) -> set[str]:
    """Returns the names in a local folder, as they are compared by `similar_path`."""
    try:
        types = list_types(folder or os.curdir)
    except OSError:  # it may be a file, or not ours to read
        return set()
    found = (name for name, kind_of in types.items() if kind_of and kind in ("", kind_of))
    return {name.removesuffix(ending) for name in found if with_hidden or name[0] != "."}


def looked_from(path: str, kind: str = "") -> str:
    """Returns, for a message, what a missing path may mean, or where it was looked for.

    Args:
        path: the path, or a pattern.
        kind: what is wanted; see `similar_path`.
    """
    if is_remote(path):
        return ""
    begin = _without_magic(path)
    if begin and not os.path.exists(begin) and (meant := similar_path(begin, kind)):
        return f". Did you mean {meant + path[len(begin) :]!r}?"
    return unset_variable(path) or f" (current directory: {os.getcwd()})"


def is_remote(path: str) -> bool:
    """Returns whether `path` has a scheme, such as `gs://…`."""
    return "://" in path


def file_system(path: str) -> tuple[AbstractFileSystem, str]:
    """Returns the file system of a path, and the path in it.

    It is not kept, because a forked process must not use that of its parent; fsspec has a cache
    that knows.

    Raises:
        ValueError: the scheme is unknown, or its package is not installed.
    """
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    if not is_remote(path):  # `url_to_fs` would expand "~" and "file:", which may be names
        return LocalFileSystem(), os.path.join(os.getcwd(), path)
    try:
        system, name = url_to_fs(path, use_listings_cache=False)  # other processes add files
    except (ImportError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return system, name


def _type_of(path: str) -> str:
    """Returns fsspec's type of a remote path: "file" or "directory"; "" if it does not exist."""
    system, name = file_system(path)
    try:
        return str(system.info(name)["type"])
    except FileNotFoundError:
        return ""


def exists(path: str) -> bool:
    """Returns whether a file or directory exists."""
    return bool(_type_of(path)) if is_remote(path) else os.path.exists(path)


def is_file(path: str) -> bool:
    """Returns whether a file exists; a pipe or a device is not a file."""
    return _type_of(path) == "file" if is_remote(path) else os.path.isfile(path)


def is_directory(path: str) -> bool:
    """Returns whether `path` is an existing directory; on an object store, whether it has files."""
    return _type_of(path) == "directory" if is_remote(path) else os.path.isdir(path)


def list_directory(path: str) -> list[str]:
    """Returns the sorted names of the entries of a directory; see `list_types`."""
    return list(list_types(path))


def list_types(path: str) -> dict[str, str]:
    """Returns name → type of the entries of a directory, sorted, by a single listing.

    The type is "file", "directory" or "other", for a link that of what it leads to, or "" if that
    does not exist.

    Raises:
        FileNotFoundError: the directory does not exist.
        ValueError: `check_path` refuses it.
    """
    if is_remote(path):
        system, name = file_system(path)
        found = {entry["name"].rstrip("/"): entry["type"] for entry in system.ls(name, detail=True)}
        found.pop(name.rstrip("/"), None)  # an object may have this name with a slash
        types = {os.path.basename(entry): str(kind) for entry, kind in found.items()}
        links = [entry for entry, kind in types.items() if kind not in ("file", "directory")]
        types.update({entry: _type_of(os.path.join(path, entry)) for entry in links})
    else:
        if not os.path.exists(path):
            check_path(path)
        with os.scandir(os.path.join(os.getcwd(), path)) as entries:
            types = {entry.name: _type_of_entry(entry) for entry in entries}
    return dict(sorted(types.items()))


def _type_of_entry(entry: os.DirEntry[str]) -> str:
    if entry.is_dir():
        return "directory"
    if entry.is_file():
        return "file"
    return "other" if os.path.exists(entry.path) else ""


def list_sizes(path: str) -> dict[str, int]:
    """Returns name → size in bytes of the files of a directory, by a single listing.

    Raises:
        FileNotFoundError: the directory does not exist.
    """
    if not is_remote(path):
        with os.scandir(path or ".") as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
    system, name = file_system(path)
    found = (entry for entry in system.ls(name, detail=True) if entry["type"] == "file")
    return {os.path.basename(entry["name"]): int(entry["size"]) for entry in found}


def join(directory: str, path: str) -> str:
    """Joins `directory` and a relative `path`; returns absolute and remote paths unchanged."""
    return path if is_remote(path) else os.path.join(directory, path)


def inside(folder: str, path: str, source: str, *, is_name: bool = False) -> str:
    """Returns a path inside of a folder that the text of a file names.

    What a file says becomes a path in this way only, because anybody may have written the file.
    Links in the folder are followed: the caches of libraries consist of them.

    Args:
        folder: the folder.
        path: what the file says: a path relative to the folder, or "" for the folder itself.
        source: the file, for the message.
        is_name: whether it can only be the name of a file in the folder, not in a subfolder.

    Raises:
        ValueError: the path is absolute or remote, leads out of the folder, or is no name.
    """
    names = path.replace("\\", "/").split("/")
    is_outside = is_remote(path) or ".." in names or "\0" in path
    is_outside |= bool(path) and (not names[0] or bool(os.path.splitdrive(path)[0]))
    if is_outside or (is_name and (len(names) > 1 or path in ("", "."))):
        raise ValueError(
            f"{source} names {quote(path)}: expected {'a file' if is_name else 'a path'} in the "
            f"folder {folder or os.curdir}. Put it there and correct the name, or get the folder "
            "again"
        )
    return os.path.join(folder, path) if path else folder


def real_path(path: str) -> str:
    """Returns the canonical absolute path, without symbolic links; a remote path unchanged."""
    return path if is_remote(path) else os.path.realpath(path)


def expand_patterns(patterns: str | list[str], what: str) -> list[str]:
    """Returns the files that match a comma-separated list of file names and glob patterns.

    A file or folder that exists under the very name is meant, even if the name has a comma, or
    characters of patterns such as "[". Folders of any depth are meant by "**".

    Args:
        patterns: "a.txt,b/*.txt" or a list of such patterns.
        what: the flag or argument with the patterns, for the message.

    Returns:
        The files without duplicates, sorted within each pattern.

    Raises:
        ValueError: there is no pattern, or a pattern matches no file.
    """
    if isinstance(patterns, str):
        is_name = not is_remote(patterns) and os.path.exists(patterns)
        patterns = [patterns] if is_name else patterns.split(",")
    patterns = [pattern.strip() for pattern in patterns if pattern.strip()]
    if not patterns:
        raise ValueError(f"{what}: expected at least one file name, got none")
    paths: dict[str, None] = {}
    for pattern in patterns:
        matches = _remote_matches(pattern) if is_remote(pattern) else _local_matches(pattern)
        if not matches:
            check_path(pattern, what)
            raise ValueError(f"{what}: {pattern!r} matches no file{looked_from(pattern)}")
        paths.update(dict.fromkeys(sorted(matches)))
    return list(paths)


def _local_matches(pattern: str) -> list[str]:
    """Returns the local paths that match a glob pattern, whose beginning may be a path."""
    begin = _without_magic(pattern)
    return glob.glob(glob.escape(begin) + pattern[len(begin) :], recursive=True)


def _without_magic(pattern: str) -> str:
    """Returns the beginning of a local glob pattern that is a path."""
    begin = pattern
    while glob.has_magic(begin) and not os.path.exists(begin):
        begin = os.path.dirname(begin)
    return begin


def _remote_matches(pattern: str) -> list[str]:
    """Returns the remote paths that match a glob pattern."""
    if not glob.has_magic(pattern):  # `glob` takes any error of a store for a missing file
        return [pattern] if exists(pattern) else []
    if is_file(pattern):
        return [pattern]
    system, name = file_system(pattern)
    begin = pattern.rstrip("/").removesuffix(name)  # the scheme; with hdfs://, also the host
    return [begin + match for match in system.glob(name)]


def find_included(path: str, kind: str, folder: str, ending: str) -> str:
    """Returns the path of a file, given a path or the name of a file of this package.

    Args:
        path: a file, or a name. An existing file takes precedence.
        kind: what the file is, for the message.
        folder: the folder of a checkout that has such files.
        ending: what the name lacks.

    Raises:
        FileNotFoundError: a name without a dot or slash is neither a file nor one of this package.
            The message has the most similar name, or lists all.
    """
    is_name = path and not {".", "/", "\\"} & set(path)
    if not is_name or exists(path):
        return path
    folder = _included(folder)
    candidate = os.path.join(folder, path + ending)
    if os.path.isfile(candidate):
        return candidate
    names = sorted(
        name.removesuffix(ending) for name in os.listdir(folder) if name.endswith(ending)
    )
    meant = did_you_mean(path, names)
    known = f". {meant}" if meant else f", which has {', '.join(names)}"
    raise FileNotFoundError(f"{path}: neither a file nor a {kind} of albert_tf{known}")


def _included(path: str) -> str:
    """Returns where a file or folder of a checkout is, which an installed package contains."""
    installed = os.path.join(_PACKAGE, path)
    return installed if os.path.exists(installed) else os.path.join(os.path.dirname(_PACKAGE), path)
