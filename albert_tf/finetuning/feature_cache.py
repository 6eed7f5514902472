"""Caches features of fine-tuning examples in `.npz` files.

A cache holds the features as NumPy arrays, and the settings and checksums that they depend on. It
is used only if these have not changed; the official programs use any file of the right name.

Letters: N examples.
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

FORMAT = 3  # to be increased when features are made in another way
_MADE_OF = "made_of"  # name of the array with the settings and checksums, as JSON
_ARRAYS = "arrays"  # key of the names of all others in that JSON: a damaged file may lack some


class Cacheable(Protocol):
    """Features that can be converted to arrays and back."""

    def __len__(self) -> int:
        """Returns N."""

    def to_arrays(self) -> Mapping[str, NDArray[Any]]:
        """Returns all arrays by name."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """Returns features, given the arrays that `to_arrays` returned."""


Kind = TypeVar("Kind", bound=Cacheable)


def _save(path: str, features: Cacheable, made_of: Mapping[str, Any]) -> None:
    buffer = io.BytesIO()  # a remote file cannot be written out of order
    arrays = features.to_arrays()
    text = json.dumps({**made_of, _ARRAYS: sorted(arrays)})
    contents: dict[str, Any] = {_MADE_OF: np.array(text), **arrays}
    np.savez(buffer, **contents)
    with files.write_atomically(path, "wb") as stream:
        stream.write(buffer.getvalue())


class _NoCacheError(Exception):
    """A file that is something else, or damaged."""


def _load(path: str, wanted: Mapping[str, Any], kind: type[Kind]) -> Kind | None:
    """Returns the features of a cache; None where there is no file, or a stale cache.

    Raises:
        _NoCacheError: the file is no cache.
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
            # NumPy checks no array that it does not read to its end, as its header may be damaged.
            is_damaged = bool(opened.zip.testzip())
        found = files.parse_own_json(str(arrays.pop(_MADE_OF)), {}, path)
        names = found.pop(_ARRAYS, None)
        if found == wanted:
            if is_damaged or names != sorted(arrays):
                raise _NoCacheError
            features: Kind = kind.from_arrays(arrays)
            logging.info("%s: %d examples, as cached", path, len(features))
            return features
    except Exception:  # what NumPy raises for damaged files is not documented
        raise _NoCacheError from None
    changed = [key for key in sorted({*wanted, *found}) if wanted.get(key) != found.get(key)]
    logging.info("%s is made anew: %s changed", path, ", ".join(changed))
    return None


def load_or_make(
    path: str,
    made_of: Mapping[str, Any],
    make: Callable[[], Kind],
    kind: type[Kind],
) -> Kind:
    """Returns features from the cache if it is current; otherwise makes and caches them.

    A stale cache is overwritten. A file of this name that is no cache, such as the TFRecord file of
    an official program, is left as it is, and nothing is cached.

    Args:
        path: the cache; "" for none. Its folder is created if it does not exist.
        made_of: settings and checksums that the features depend on; JSON values.
        make: makes the features.
        kind: their class.

    Raises:
        ValueError: the folder cannot be written to.
    """
    if not path:
        return make()
    wanted = {"format": FORMAT, **made_of}
    wanted = json.loads(json.dumps(wanted))  # as it will be read back
    try:
        features, is_cache = _load(path, wanted, kind), True
    except _NoCacheError:
        features, is_cache = None, False
    if features is not None:
        return features
    files.make_directory(os.path.dirname(path), f"cache of features {path}")
    features = make()
    if is_cache:
        _save(path, features, wanted)
    else:
        logging.warning(
            "%s is no feature cache (an .npz file of this program), or damaged: it is left as it "
            "is, and nothing is cached. Remove it, or name another file.",
            path,
        )
    return features
