"""Replaces files that belong together, such as the weights and the labels of a model.

New files are written to a hidden folder inside of theirs, and a file there declares them complete.
From then on they count: a reader takes all of them from the hidden folder (`current`), until each
of them is in its place as well. If a kill prevents that, the next writer does it. So at any moment
there are all old files or all new ones, and reading writes nothing. Other files in the folder are
left alone.

A hidden folder may have been downloaded with its folder. So it is one, no link, and has files of
its own, no links, which can only replace files of the folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterable, Iterator

from absl import logging

from albert_tf.files.checks import ensure_directory
from albert_tf.files.paths import (
    exists,
    inside,
    is_directory,
    is_remote,
    list_directory,
    list_sizes,
)
from albert_tf.files.reading import read_text
from albert_tf.files.writing import copy, remove, remove_tree, rename, write_file

_HIDDEN = ".replacing-{}"
_PATTERN = re.compile(re.escape(_HIDDEN).replace(r"\{\}", "[0-9a-f]{8}"))
_COMPLETE = "complete"  # the names of the new files, one a line


@contextlib.contextmanager
def replacing(folder: str, kept: Iterable[str] | None = None) -> Iterator[str]:
    """Yields an empty folder whose files replace those of `folder` when the block succeeds.

    Args:
        folder: an existing folder, in which nobody else replaces files meanwhile.
        kept: names of files of the folder that stay, and are needed with the new ones; None for all
            that are not hidden.

    Raises:
        ValueError: see `finish_replacing`.
        OSError: the folder cannot be written to.
    """
    finish_replacing(folder)
    for hidden in _list_hidden(folder):  # of a process that was killed before it was complete
        remove_tree(hidden)
    hidden = os.path.join(folder, _HIDDEN.format(uuid.uuid4().hex[:8]))
    ensure_directory(hidden)
    try:
        yield hidden
        names = list_directory(hidden)
        if kept is None:
            kept = [name for name in list_sizes(folder) if not name.startswith(".")]
        for name in set(kept).difference(names):
            _link(os.path.join(folder, name), os.path.join(hidden, name))
        write_file(os.path.join(hidden, _COMPLETE), "\n".join(names))
    except BaseException:
        with contextlib.suppress(OSError):
            remove_tree(hidden)
        raise
    _put_into_place(hidden, folder)


def current(folder: str, names: Iterable[str] | None = None) -> str:
    """Returns the folder from which the files of a folder are read: itself, or the hidden one.

    Args:
        folder: the folder.
        names: what it holds; None to list it.

    Raises:
        ValueError: the hidden folder is damaged.
    """
    for hidden in _list_hidden(folder, names):
        if exists(os.path.join(hidden, _COMPLETE)):
            _read_names(hidden)
            return hidden
    return folder


def finish_replacing(folder: str) -> None:
    """Puts complete files into their places in a folder, if a kill prevented that.

    This writes to the folder, so that it is for those who have found that they may do so.

    Raises:
        ValueError: the hidden folder is damaged; nothing was replaced.
        OSError: the folder cannot be written to.
    """
    for hidden in _list_hidden(folder):
        if exists(os.path.join(hidden, _COMPLETE)):
            _put_into_place(hidden, folder)
            logging.info("%s: finished saving the model, which a kill had interrupted", folder)


def _list_hidden(folder: str, names: Iterable[str] | None = None) -> list[str]:
    if names is None:
        names = list_directory(folder) if is_directory(folder) else []
    paths = [os.path.join(folder, name) for name in names if _PATTERN.fullmatch(name)]
    return [path for path in paths if is_directory(path) and not os.path.islink(path)]


def _read_names(hidden: str) -> list[str]:
    """Returns the names of the complete files in a hidden folder.

    Raises:
        ValueError: one is not the name of a file in there.
        FileNotFoundError: another process has put them into their places.
    """
    source = os.path.join(hidden, _COMPLETE)
    names = read_text(source).splitlines()
    for name in names:
        path = inside(hidden, name, source, is_name=True)
        if os.path.islink(path) or is_directory(path):
            raise ValueError(
                f"{path}: expected a file of an interrupted save, got a link or a folder. Remove "
                f"{hidden} to keep the model that was in the folder before"
            )
    return names


def _put_into_place(hidden: str, folder: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # another process did it
        for name in _read_names(hidden):
            _publish(os.path.join(hidden, name), os.path.join(folder, name))
        remove(os.path.join(hidden, _COMPLETE))
        remove_tree(hidden)


def _publish(source: str, target: str) -> None:
    """Replaces `target` by a file, which stays where it is as well."""
    if is_remote(source):
        copy(source, target)
        return
    temporary = f"{source}.{uuid.uuid4().hex[:8]}.tmp"
    _link(source, temporary)
    rename(temporary, target)


def _link(source: str, target: str) -> None:
    """Gives a file a second name, or copies it where the file system has no such names."""
    if not is_remote(source):
        with contextlib.suppress(OSError):
            os.link(os.path.realpath(source), target)
            return
    copy(source, target)
