"""Caches features of fine-tuning examples in `.npz` files.

A cache contains the features as NumPy arrays, and the settings and checksums they depend on. It is
used only if these have not changed, while Google's programs use any file with the right name.

Shapes: N examples.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
from absl import logging
from numpy.typing import NDArray

from albert_tf import files

FORMAT = 4  # to be incremented when the way of creating features changes
_MADE_OF = "made_of"  # name of the array with the settings and checksums, as JSON
_ARRAYS = "arrays"  # key in this JSON with the names of all arrays, to detect missing ones


class Cacheable(Protocol):
    """Features that can be converted to and from NumPy arrays."""

    def __len__(self) -> int:
        """Returns N."""

    def to_arrays(self) -> Mapping[str, NDArray[Any]]:
        """Returns all arrays by name."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """Restores features from the arrays of `to_arrays`."""


Kind = TypeVar("Kind", bound=Cacheable)


def _save(path: str, features: Cacheable, made_of: Mapping[str, Any]) -> None:
    buffer = io.BytesIO()  # np.savez seeks, which remote files do not support
    arrays = features.to_arrays()
    text = json.dumps({**made_of, _ARRAYS: sorted(arrays)})
    contents: dict[str, Any] = {_MADE_OF: np.array(text), **arrays}
    np.savez(buffer, **contents)
    with files.write_atomically(path, "wb") as stream:
        stream.write(buffer.getvalue())


class _NoCacheError(Exception):
    """The file is not a feature cache, or is corrupt."""


def _load(path: str, wanted: Mapping[str, Any], kind: type[Kind]) -> Kind | None:
    """Returns the features in a cache, or None if the file does not exist or is stale.

    Raises:
        _NoCacheError: the file is not a cache, or is corrupt.
    """
    if not files.exists(path):
        return None
    with files.open_binary(path) as stream:
        if not zipfile.is_zipfile(stream):
            raise _NoCacheError
        stream.seek(0)
        content = io.BytesIO(stream.read())
    try:
        with np.load(content, allow_pickle=False) as opened:
            arrays = dict(opened)
            # NumPy may stop before the end of an array if its header is corrupt, and so before
            # the CRC check.
            is_damaged = bool(opened.zip.testzip())
        made_of = files.parse_json(str(arrays.pop(_MADE_OF)), path)
        names = made_of.pop(_ARRAYS, None)
        if made_of == wanted:
            if is_damaged or names != sorted(arrays):
                raise _NoCacheError
            features: Kind = kind.from_arrays(arrays)
            logging.info("%s: loaded %d cached examples", path, len(features))
            return features
    except Exception:  # NumPy does not document what it raises for corrupt files
        raise _NoCacheError from None
    changed = [key for key in sorted({*wanted, *made_of}) if wanted.get(key) != made_of.get(key)]
    logging.info("%s is recreated, because %s changed", path, ", ".join(changed))
    return None


def load_or_make(
    path: str,
    made_of: Mapping[str, Any],
    make: Callable[[], Kind],
    kind: type[Kind],
) -> Kind:
    """Returns features from the cache if it is up to date; otherwise creates and caches them.

    A stale cache is overwritten. A file that is not a cache, such as a TFRecord file of Google's
    programs, is left unchanged, and nothing is cached.

    Args:
        path: the cache file, or "" for no cache. Its folder is created if it does not exist.
        made_of: the settings and checksums that the features depend on; JSON values.
        make: creates the features.
        kind: the class of the features.

    Raises:
        ValueError: the folder cannot be created or is not writable.
    """
    if not path:
        return make()
    wanted = {"format": FORMAT, **made_of}
    wanted = json.loads(json.dumps(wanted))  # as it will be read back
    try:
        features = _load(path, wanted, kind)
        is_cache = True
    except _NoCacheError:
        features = None
        is_cache = False
    if features is not None:
        return features
    files.make_directory(os.path.dirname(path), f"cache of features {path}")
    features = make()
    if is_cache:
        _save(path, features, wanted)
    else:
        logging.warning(
            "%s is not a feature cache (an .npz file of this program), or is damaged. It is left "
            "unchanged and nothing is cached: remove it, or choose another file.",
            path,
        )
    return features
