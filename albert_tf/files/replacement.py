"""Replaces files that belong together, such as the weights and the labels of a model.

New files are written to a hidden folder inside of theirs, and an empty file there declares them
complete. From then on they count: they are moved to their places, and if a kill prevents that,
whoever opens the folder next does it. So at any moment, the folder has all old files or all new
ones. Other files in it are left alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterator

from absl import logging

from albert_tf.files.checks import ensure_directory
from albert_tf.files.paths import exists, is_directory, list_directory
from albert_tf.files.writing import remove, remove_tree, rename, write_atomically

_HIDDEN = ".replacing-{}"
_PATTERN = re.compile(re.escape(_HIDDEN).replace(r"\{\}", "[0-9a-f]{8}"))
_COMPLETE = "complete"


@contextlib.contextmanager
def replacing(folder: str) -> Iterator[str]:
    """Yields an empty folder whose files replace those of `folder` when the block succeeds.

    Args:
        folder: an existing folder, in which nobody else replaces files meanwhile.
    """
    finish_replacing(folder)
    for hidden in _list_hidden(folder):  # of a process that was killed before it was complete
        remove_tree(hidden)
    hidden = os.path.join(folder, _HIDDEN.format(uuid.uuid4().hex[:8]))
    ensure_directory(hidden)
    try:
        yield hidden
        with write_atomically(os.path.join(hidden, _COMPLETE)):
            pass
    except BaseException:
        with contextlib.suppress(OSError):
            remove_tree(hidden)
        raise
    _move_into_place(hidden, folder)


def finish_replacing(folder: str) -> None:
    """Moves complete files to their places in a folder, if a kill prevented that.

    Raises:
        OSError: the folder cannot be written to.
    """
    for hidden in _list_hidden(folder):
        if exists(os.path.join(hidden, _COMPLETE)):
            _move_into_place(hidden, folder)
            logging.info("%s: finished saving the model, which a kill had interrupted", folder)


def _list_hidden(folder: str) -> list[str]:
    names = list_directory(folder) if is_directory(folder) else []
    return [os.path.join(folder, name) for name in names if _PATTERN.fullmatch(name)]


def _move_into_place(hidden: str, folder: str) -> None:
    for name in list_directory(hidden):
        if name != _COMPLETE:
            with contextlib.suppress(FileNotFoundError):  # another process moved it
                rename(os.path.join(hidden, name), os.path.join(folder, name))
    with contextlib.suppress(FileNotFoundError):
        remove(os.path.join(hidden, _COMPLETE))
        remove_tree(hidden)
