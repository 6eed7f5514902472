"""Caches features of fine-tuning examples in `.npz` files.

A cache holds the features as NumPy arrays, and the settings and checksums that they depend on. It
is used only if these have not changed; the official programs use any file of the right name.

Letters: N examples.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
from absl import logging
from numpy.typing import NDArray

from albert_tf import files

FORMAT = 2  # to be increased when features are made in another way
_MADE_OF = "made_of"  # name of the array with the settings and checksums, as JSON

Arrays = dict[str, NDArray[Any]]


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
    arrays: dict[str, Any] = {_MADE_OF: np.array(json.dumps(made_of)), **features.to_arrays()}
    np.savez(buffer, **arrays)
    with files.write_atomically(path, "wb") as stream:
        stream.write(buffer.getvalue())


def _read(path: str) -> Arrays | None:
    """Returns the arrays of a cache; {} if there is no file, None if it is no cache."""
    try:
        with files.open_binary(path) as stream:
            if not zipfile.is_zipfile(stream):
                return None
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as content:
                arrays = dict(content)
    except FileNotFoundError:
        return {}
    except (zipfile.BadZipFile, ValueError, EOFError, pickle.UnpicklingError):
        return None
    return arrays if _MADE_OF in arrays else None


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
    arrays = _read(path)
    if arrays:
        found = json.loads(str(arrays.pop(_MADE_OF)))
        if found == wanted:
            features: Kind = kind.from_arrays(arrays)
            logging.info("%s: %d examples, as cached", path, len(features))
            return features
        changed = [key for key in sorted({*wanted, *found}) if wanted.get(key) != found.get(key)]
        logging.info("%s is made anew: %s changed", path, ", ".join(changed))
    files.make_directory(os.path.dirname(path), f"cache of features {path}")
    features = make()
    if arrays is None:
        logging.warning(
            "%s is no feature cache (an .npz file of this program): it is left as it is, and "
            "nothing is cached. Remove it, or name another file.",
            path,
        )
    else:
        _save(path, features, wanted)
    return features
