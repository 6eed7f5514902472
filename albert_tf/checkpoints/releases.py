"""The table of released models, which are found by name, and recognized by their tensors.

A row of `releases.json` describes a model and the archive that contains it. For nine checkpoints it
also has the CRC-32C of each tensor, masked as in the `.index` files of their archives. Since a
checksum depends only on the values, a release is recognized in any format and under any file name,
as long as conversions preserved the values.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Mapping

import numpy as np
from absl import logging

from albert_tf import files, record_frames
from albert_tf.checkpoints.arrays import LazyArrays
from albert_tf.spelling import closest

_TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "releases.json")
_HUB = "https://tfhub.dev/"
HUGGING_FACE = "https://huggingface.co/"
_OF_GOOGLE = "albert/"  # Google's organization on the Hugging Face Hub
CACHE = "ALBERT_CACHE"  # environment variable: the folder with the downloaded models
_LIKENESS = 0.8  # of a misspelled name; a path is not taken for one


@dataclasses.dataclass(frozen=True)
class Release:
    """A released checkpoint.

    Attributes:
        name: the name of the release in this project: usually that of its archive.
        title: the model, its language and its authors.
        tensors: variable name → masked CRC-32C of its values, float32 in C order. Optimizer slots
            are not included. Empty if the checksums are not known.
        url: where its archive is; "" if it has none.
        aliases: other names.
        config: the name of its config in this package; "" if that is only in the archive.
        parameters: number of parameters of encoder and pooler; 0 if it has no archive.
    """

    name: str
    title: str
    tensors: Mapping[str, int]
    url: str = ""
    aliases: tuple[str, ...] = ()
    config: str = ""
    parameters: int = 0

    def __str__(self) -> str:
        return f"{self.title}, {self.name}"

    @property
    def is_hub_module(self) -> bool:
        """Whether it is the TF-Hub module of a model that also has an archive of its own."""
        return self.url.startswith(_HUB)


@functools.cache
def table() -> tuple[Release, ...]:
    """Returns all rows of the table."""
    with open(_TABLE, encoding="utf-8") as stream:
        rows = json.load(stream)
    releases = []
    for name, row in rows.items():
        tensors = {key: int(crc, 16) for key, crc in row.get("tensors", {}).items()}
        aliases = tuple(row.get("aliases", ()))
        releases.append(Release(name, **row | {"tensors": tensors, "aliases": aliases}))
    return tuple(releases)


def downloadable() -> tuple[Release, ...]:
    """Returns the releases that have an archive."""
    return tuple(release for release in table() if release.url)


def named(name: str) -> Release | None:
    """Returns the downloadable release with a name, an alias or an address, or None.

    The address is that on TF-Hub, or the name on the Hugging Face Hub, where the same weights are.

    >>> named("albert/albert-base-v2").name
    'albert_base_v2'
    >>> named("https://tfhub.dev/google/albert_base/1").title
    'ALBERT base v1, English (Google, TF-Hub)'
    >>> named("my_model") is None
    True
    """
    name = canonical(name)
    releases = (row for row in downloadable() if name == row.name or name in row.aliases)
    return next(releases, None)


def canonical(name: str) -> str:
    """Returns a name or an address as they are compared."""
    name = name.removeprefix(_HUB).removeprefix(HUGGING_FACE).rstrip("/")
    return name.removeprefix(_OF_GOOGLE).replace("-", "_")


def suggestion(name: str) -> str:
    """Returns a hint at the downloadable release whose name is similar; "" if none is.

    >>> suggestion("albert_base_v3")
    "Did you mean 'albert_base_v2'? Download it: albert download albert_base_v2"
    >>> suggestion("albert_base")  # not a Chinese model
    "Did you mean 'albert_base_v2'? Download it: albert download albert_base_v2"
    """
    meant = canonical(name)
    names = [known for row in downloadable() for known in (row.name, *row.aliases)]
    as_deep = [known for known in names if known.count("/") == meant.count("/")]
    same_language = [known for known in as_deep if ("zh" in known) == ("zh" in meant)]
    similar = closest(meant, same_language, _LIKENESS) or closest(meant, as_deep, _LIKENESS)
    return f"Did you mean {similar!r}? Download it: albert download {similar}" if similar else ""


def checksum(values: np.ndarray) -> int:
    """Returns the masked CRC-32C of a tensor's values, as stored in TensorFlow's `.index` files."""
    data = np.ascontiguousarray(values, np.float32)
    return int.from_bytes(record_frames.checksum(data), "little")


def checksums(tensors: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Returns variable name → `checksum`."""
    return {name: checksum(value) for name, value in tensors.items()}


def containing(tensors: Mapping[str, np.ndarray]) -> Release | None:
    """Returns the release that has all these tensors, with the same values; None if none has.

    Args:
        tensors: variable name → value, such as those of the encoder. They are compared until no
            release is left, the small ones first.
    """
    tensors = LazyArrays.of(tensors)
    possible = [release for release in table() if tensors.keys() <= release.tensors.keys()]
    for name in tensors:
        if not possible:
            return None
        here = checksum(tensors[name])
        possible = [release for release in possible if release.tensors[name] == here]
    return possible[0] if tensors and possible else None


def cache_directory() -> str:
    """Returns the folder with the downloaded models."""
    return os.environ.get(CACHE) or os.path.join(os.path.expanduser("~"), ".cache", "albert_tf")


def downloaded(release: Release, name: str) -> str:
    """Returns the folder of a downloaded model.

    Args:
        release: the model.
        name: what it was called, for messages.

    Raises:
        FileNotFoundError: it is not in the cache. The message has the command to download it.
    """
    folder = os.path.join(cache_directory(), release.name)
    if not files.is_directory(folder):
        raise FileNotFoundError(
            f"{name}: no such file or folder, and the released model of that name is not in "
            f"{cache_directory()}. Download it: albert download {release.name}"
        )
    logging.log_first_n(logging.INFO, "%s: using the downloaded model in %s", 1, name, folder)
    return folder
