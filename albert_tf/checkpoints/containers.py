"""Opens weight files: TensorFlow checkpoints, safetensors and PyTorch.

For each format, `open_weights` returns a `WeightFile` with names, shapes, and a function that reads
an array. Nothing is ever unpickled here, because pickles can execute arbitrary code. Only opening a
TensorFlow checkpoint imports TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import run_folder, safetensors_file
from albert_tf.checkpoints.arrays import Array
from albert_tf.checkpoints.model_folder import (
    ACCEPTED,
    PYTORCH,
    SAFETENSORS,
    SHARDS,
    ModelPath,
    is_exported,
    weight_format,
)

if TYPE_CHECKING:
    import tensorflow as tf
    import torch

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


class Reader(Protocol):
    """A function that reads an array of a file."""

    def __call__(self, name: str, is_transposed: bool = False) -> Array:
        """Returns the array with a given name, or the transpose of that matrix.

        It is read-only if it is not the caller's alone.

        Raises:
            ValueError: the file is damaged, or was changed since it was opened.
        """


@dataclasses.dataclass(frozen=True)
class WeightFile:
    """An open weight file.

    Attributes:
        path: path of the file, or prefix of a TensorFlow checkpoint.
        container: name of the file format, for messages.
        shapes: name → shape of every array.
        read: returns an array.
    """

    path: str
    container: str
    shapes: dict[str, tuple[int, ...]]
    read: Reader


def digest(path: str) -> str:
    """Returns a short hash of the content of a checkpoint.

    Args:
        path: a path returned by `find_checkpoint`; see `run_folder.digest` for one of TensorFlow.

    Raises:
        FileNotFoundError, ValueError: a shard is missing, or the list of shards is damaged.
    """
    if files.exists(path + ".index"):
        return run_folder.digest(path)
    shards = _shards(path) if path.endswith(SHARDS) else []
    return run_folder.digest_of_files(shards or [path])


@contextlib.contextmanager
def _naming_damage(what: str) -> Iterator[None]:
    """Converts the errors of TensorFlow's reader for damaged files, which may claim any size."""
    import tensorflow as tf

    try:
        yield
    except (tf.errors.OpError, IndexError, ValueError, RuntimeError, MemoryError) as error:
        raise ValueError(f"{what} ({error})") from None


def open_checkpoint(prefix: str) -> tf.train.CheckpointReader:
    r"""Opens the TensorFlow checkpoint of a prefix.

    TensorFlow treats the prefix as a glob pattern without a way to escape "[" and "\". If a folder
    has these characters in its name, or is remote, the checkpoint is read from a copy, which exists
    as long as the reader.

    Raises:
        ValueError: the index cannot be read.
    """
    import tensorflow as tf

    directory, base = os.path.split(prefix)
    damage = f"{prefix}: damaged or not a TensorFlow checkpoint"
    with _naming_damage(damage), contextlib.ExitStack() as stack:
        if not (files.is_remote(prefix) or re.search(r"[\[\\]", directory)):
            return tf.train.load_checkpoint(prefix)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="albert_tf_"))
        for name in files.list_directory(directory):
            if name == f"{base}.index" or name.startswith(f"{base}.data-"):
                files.copy(files.join(directory, name), os.path.join(folder, name))
        reader = tf.train.load_checkpoint(os.path.join(folder, base))
        weakref.finalize(reader, stack.pop_all().close)  # it reads lazily
        return reader


def read_tensor(reader: tf.train.CheckpointReader, name: str, prefix: str) -> Array:
    """Reads one array of a checkpoint.

    Raises:
        ValueError: the data file is cut short or damaged.
    """
    with _naming_damage(f"{prefix}: cannot read {name!r}, the data are damaged. Copy them again"):
        array: Array = reader.get_tensor(name)
        return array


def open_weights(path: str | ModelPath) -> WeightFile:
    """Opens a weight file in any of the supported formats.

    Nothing is mapped: what happens to a file does not change the arrays that were read, and does
    not end the process. They all have the content that the file had when it was opened.

    Args:
        path: as in `find_checkpoint`, or where that leads.

    Returns:
        The file. Reading an array of it raises ValueError if it has been changed since.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is damaged, has another format, or is a pickle.
    """
    path = ModelPath.of(path).checkpoint
    state = _state(path)
    weights = _open(path)

    def read(name: str, is_transposed: bool = False) -> Array:
        try:
            return weights.read(name, is_transposed)
        finally:
            if _state(path) != state:
                raise ValueError(
                    f"{path} was changed while it was read. Open the model again when all of its "
                    "files are written"
                ) from None

    return dataclasses.replace(weights, read=read)


def _state(path: str) -> list[tuple[int, ...]]:
    """Returns what changes whenever a process writes to a local weight file, or replaces it."""
    if files.is_remote(path):  # read from a copy
        return []
    parts = [path]
    if files.exists(path + ".index"):
        parts = [f"{path}.index", *glob.glob(f"{glob.escape(path)}.data-*")]
    found = map(os.stat, parts)
    return [(entry.st_ino, entry.st_size, entry.st_mtime_ns) for entry in found]


def _open(path: str) -> WeightFile:
    if files.exists(path + ".index"):
        return _open_tensorflow(path)
    if is_exported(path):
        raise ValueError(
            f"{path} is for another runtime, and no weights are read from it: only albert predict "
            "and load_predictor open it. Pass the folder that it was converted from"
        )
    if path.endswith(SHARDS):
        return _open_shards(path)
    if files.is_remote(path):
        return _open_local_copy(path)
    found = weight_format(path)
    if found == SAFETENSORS:
        return _open_safetensors(path)
    if found == PYTORCH:
        return _open_pytorch(path)
    raise ValueError(
        f"{path} looks like a pickle. Pickles are never loaded because they can execute "
        f"arbitrary code. Expected: {ACCEPTED}"
    )


def _open_local_copy(path: str) -> WeightFile:
    """Reads a remote weight file completely, because the libraries only open local files."""
    with files.local_copy(path) as local:
        try:
            weights = open_weights(local)
            arrays = {name: np.array(weights.read(name)) for name in weights.shapes}
        except ValueError as error:
            raise ValueError(str(error).replace(local, path)) from None
    return dataclasses.replace(weights, path=path, read=_held(arrays))


def _held(arrays: Mapping[str, Array]) -> Reader:
    """Returns a function that returns arrays that are in memory, read-only."""
    for array in arrays.values():
        array.flags.writeable = False
    return _transposing(arrays.__getitem__)


def _transposing(read: Callable[[str], Array]) -> Reader:
    """Returns a function that also returns transposes, which are views."""
    return lambda name, is_transposed=False: read(name).T if is_transposed else read(name)


def _open_tensorflow(prefix: str) -> WeightFile:
    reader = open_checkpoint(prefix)
    shapes = reader.get_variable_to_shape_map()
    keys = {name: name for name in shapes}
    container = "TensorFlow checkpoint"
    if OBJECT_GRAPH in shapes:
        keys = _object_names(read_tensor(reader, OBJECT_GRAPH, prefix))
        container = "object-based TensorFlow 2 checkpoint"
    return WeightFile(
        prefix,
        container,
        {name: tuple(shapes[key]) for name, key in keys.items() if key in shapes},
        _transposing(lambda name: read_tensor(reader, keys[name], prefix)),
    )


def _object_names(graph: Array) -> dict[str, str]:
    """Returns variable name → key for an object-based checkpoint, whose keys are object paths."""
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    nodes = trackable_object_graph_pb2.TrackableObjectGraph.FromString(bytes(graph)).nodes
    attributes = [attribute for node in nodes for attribute in node.attributes]
    keys: dict[str, str] = {}
    for attribute in attributes:
        if attribute.full_name and ".OPTIMIZER_SLOT" not in attribute.checkpoint_key:
            keys.setdefault(attribute.full_name, attribute.checkpoint_key)
    return keys


def _open_safetensors(path: str) -> WeightFile:
    places = safetensors_file.places(path)
    shapes = {name: place.shape for name, place in places.items()}
    return WeightFile(
        path,
        "safetensors",
        shapes,
        lambda name, is_transposed=False: places[name].read(path, is_transposed),
    )


def _shards(path: str) -> list[str]:
    """Returns the paths of the files in Hugging Face's list of shards.

    Raises:
        ValueError: the list is damaged.
    """
    weight_map = files.read_json(path, {"weight_map": dict})["weight_map"]
    names = sorted(set(map(str, weight_map.values())))
    for name in names:
        if name.endswith(SHARDS):
            raise ValueError(f"{path} names {files.quote(name)}: expected a file of weights")
    return [files.inside(os.path.dirname(path), name, path, is_name=True) for name in names]


def _open_shards(path: str) -> WeightFile:
    opened = [open_weights(shard) for shard in _shards(path)]
    shards = {weight: shard for shard in opened for weight in shard.shapes}
    return WeightFile(
        path,
        f"safetensors, {len(opened)} files",
        {weight: shard.shapes[weight] for weight, shard in shards.items()},
        lambda weight, is_transposed=False: shards[weight].read(weight, is_transposed),
    )


_SAVE_TENSORS = "Save the tensors alone, by torch.save(model.state_dict(), path)"
# Keys under which a checkpoint of a training has the weights of the model, beside others.
_STATES = ("state_dict", "model_state_dict", "model", "module", "net", "weights")


def _tensors_in(state: object, path: str) -> dict[str, torch.Tensor]:
    """Returns the tensors in what a PyTorch file has: a dict of them, maybe in a dict of others.

    Raises:
        ValueError: there are none, or several dicts of tensors may be meant.
    """
    if isinstance(state, Mapping) and state and all(map(_is_tensor, state.values())):
        return dict(state)
    found = [
        key
        for key, value in (state.items() if isinstance(state, Mapping) else ())
        if isinstance(value, Mapping) and value and all(map(_is_tensor, value.values()))
    ]
    known = [key for key in found if key in _STATES]
    if len(known) != 1 or not isinstance(state, Mapping):
        what = f"{files.quote_all(list(state))}" if isinstance(state, Mapping) else "no dict"
        raise ValueError(
            f"{path}: expected a plain dict of PyTorch tensors, or one of them in "
            f"{' or '.join(map(repr, _STATES))}; found {what}. {_SAVE_TENSORS}"
        )
    logging.info("%s: the weights are in %r", path, known[0])
    return dict(state[known[0]])


def _is_tensor(value: object) -> bool:
    return hasattr(value, "detach") and hasattr(value, "numpy")


def _open_pytorch(path: str) -> WeightFile:
    try:
        import torch
    except ImportError:
        raise ValueError(
            f"{path}: a PyTorch file is a pickle, which only PyTorch can read without running code "
            "in it. pip install torch, or save the model as model.safetensors with transformers"
        ) from None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # errors for damaged or malicious files are not documented
        raise ValueError(
            f"{path}: damaged or not a plain dict of PyTorch tensors ({type(error).__name__}). "
            f"{_SAVE_TENSORS}"
        ) from None
    arrays = {
        name: tensor.detach().float().numpy() for name, tensor in _tensors_in(state, path).items()
    }
    shapes = {name: array.shape for name, array in arrays.items()}
    return WeightFile(path, "PyTorch", shapes, _held(arrays))
