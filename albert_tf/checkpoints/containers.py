"""Opens files of weights: TensorFlow checkpoints, safetensors, PyTorch, Keras HDF5.

`open_weights` returns a `WeightFile` for each of these formats: names, shapes, and a function that
reads one array. Pickles are never unpickled here, as they can run any code.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf import files
from albert_tf.checkpoints.finding import ACCEPTED, find_checkpoint

# What TensorFlow's checkpoint reader raises for damaged files, which may claim any size.
DAMAGE = (tf.errors.OpError, IndexError, ValueError, RuntimeError, MemoryError)
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_MOST_UNPACKED = 1100  # times the size of a file: deflate, the usual compression, packs 1032 to 1
_DIGEST_LENGTH = 16
_BLOCK_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class WeightFile:
    """An open file of weights.

    Attributes:
        path: the file; the prefix of a TensorFlow checkpoint.
        container: its format, for messages.
        shapes: name → shape of every array.
        read: function of a name that returns the array; raises ValueError if it is damaged.
    """

    path: str
    container: str
    shapes: dict[str, tuple[int, ...]]
    read: Callable[[str], np.ndarray]


def digest(path: str) -> str:
    """Returns a short hash of the content of a checkpoint: the same for copies of it.

    Args:
        path: as `find_checkpoint` returns it. The index of a TensorFlow checkpoint has a checksum
            of each tensor, so that nothing else of it is read.
    """
    is_prefix = files.exists(path + ".index")
    with files.open_binary(path + ".index" if is_prefix else path) as stream:
        content = hashlib.sha256()
        while block := stream.read(_BLOCK_BYTES):
            content.update(block)
    return content.hexdigest()[:_DIGEST_LENGTH]


def open_checkpoint(prefix: str) -> tf.train.CheckpointReader:
    """Opens a TensorFlow checkpoint, all shards of which are there.

    Raises:
        FileNotFoundError: as `find_checkpoint`.
        ValueError: the index cannot be read.
    """
    prefix = find_checkpoint(prefix)
    try:
        return open_reader(prefix)
    except DAMAGE as error:
        raise ValueError(f"{prefix}: damaged or no TensorFlow checkpoint ({error})") from None


def open_reader(prefix: str) -> tf.train.CheckpointReader:
    r"""Opens a TensorFlow checkpoint; raises whatever TensorFlow does if it is damaged.

    TensorFlow looks for the prefix as for a glob, so that it never finds one with "[" or "\" in
    it, and it knows no way to escape these: the reader takes a link to the folder instead.
    """
    directory, base = os.path.split(prefix)
    if re.search(r"[\[\\]", directory) and not files.is_remote(prefix):
        prefix = os.path.join(_link_to(os.path.abspath(directory)), base)
    return tf.train.load_checkpoint(prefix)


@functools.cache
def _link_to(directory: str) -> str:
    """Returns a symbolic link to a folder, which is there until the process ends."""
    place = tempfile.mkdtemp(prefix="albert_tf_")
    atexit.register(shutil.rmtree, place)
    link = os.path.join(place, "checkpoints")
    os.symlink(directory, link)
    return link


def read_tensor(reader: tf.train.CheckpointReader, name: str, prefix: str) -> np.ndarray:
    """Reads one array of a checkpoint.

    Raises:
        ValueError: the data file is cut short or damaged.
    """
    try:
        return reader.get_tensor(name)
    except DAMAGE as error:
        raise ValueError(f"{prefix}: cannot read {name!r}, the data is damaged ({error})") from None


def open_weights(path: str) -> WeightFile:
    """Opens a file of weights of any of the formats.

    Args:
        path: as in `find_checkpoint`.

    Raises:
        FileNotFoundError: as `find_checkpoint`.
        ValueError: it is damaged, of another format, or a pickle.
    """
    path = find_checkpoint(path)
    if files.exists(path + ".index"):
        return _open_tensorflow(path)
    if files.is_remote(path):
        return _open_local_copy(path)
    with files.open_binary(path) as stream:
        start = stream.read(9)
    if path.endswith(".safetensors") or start[8:] == b"{":
        return _open_safetensors(path)
    if start.startswith(b"\x89HDF"):
        return _open_hdf5(path)
    if path.endswith((".bin", ".pt", ".pth")):
        return _open_pytorch(path)
    if start.startswith((b"\x80", b"PK\x03\x04")):
        raise ValueError(
            f"{path} looks like a pickle. Pickles are never loaded, as they can run any code. "
            f"Expected: {ACCEPTED}"
        )
    raise ValueError(f"{path}: not a file of weights. Expected: {ACCEPTED}")


def _open_local_copy(path: str) -> WeightFile:
    """Reads a remote file of weights whole: the libraries for these formats open local files."""
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, os.path.basename(path))
        files.copy(path, local)
        try:
            weights = open_weights(local)
            arrays = {name: weights.read(name) for name in weights.shapes}
        except ValueError as error:
            raise ValueError(str(error).replace(local, path)) from None
    return dataclasses.replace(weights, path=path, read=arrays.__getitem__)


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
        lambda name: read_tensor(reader, keys[name], prefix),
    )


def _object_names(graph: Any) -> dict[str, str]:
    """Returns variable name → key of an object-based checkpoint, whose keys are object paths."""
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    nodes = trackable_object_graph_pb2.TrackableObjectGraph.FromString(bytes(graph)).nodes
    attributes = [attribute for node in nodes for attribute in node.attributes]
    keys: dict[str, str] = {}
    for attribute in attributes:
        if attribute.full_name and ".OPTIMIZER_SLOT" not in attribute.checkpoint_key:
            keys.setdefault(attribute.full_name, attribute.checkpoint_key)
    return keys


def _open_safetensors(path: str) -> WeightFile:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise ValueError(
            f"{path}: reading this needs the package safetensors: pip install 'albert-tf2[hf]'"
        ) from None

    def damaged(error: Exception) -> ValueError:
        return ValueError(f"{path}: damaged or no safetensors file ({error})")

    def read(name: str) -> np.ndarray:
        try:
            with safe_open(path, framework="numpy") as opened:
                return opened.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise damaged(error) from None

    try:
        with safe_open(path, framework="numpy") as opened:
            names = opened.keys()
            shapes = {name: tuple(opened.get_slice(name).get_shape()) for name in names}
    except (SafetensorError, OSError) as error:
        raise damaged(error) from None
    return WeightFile(path, "safetensors", shapes, read)


def _open_hdf5(path: str) -> WeightFile:
    places: dict[str, str] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    most_bytes = _MOST_UNPACKED * files.file_size(path)

    def collect(_: str, item: Any) -> None:
        for name in item.attrs.get("weight_names", ()):
            text = name.decode() if isinstance(name, bytes) else str(name)
            found = item[text]
            if found.dtype.kind not in "fiu":
                raise ValueError(f"{text!r} is no array of numbers")
            if found.nbytes > most_bytes:  # a few bytes can stand for any number of zeros
                raise ValueError(f"{text!r} would take {found.nbytes / 2**30:.3g} GiB unpacked")
            if text not in places:
                places[text], shapes[text] = found.name, found.shape

    def read(name: str) -> np.ndarray:
        with _opened_hdf5(path) as opened:
            return np.asarray(opened[places[name]])

    with _opened_hdf5(path) as opened:
        collect("", opened)
        opened.visititems(collect)
    return WeightFile(path, "Keras HDF5", shapes, read)


@contextlib.contextmanager
def _opened_hdf5(path: str) -> Iterator[Any]:
    """Yields an open HDF5 file; what h5py raises where it is damaged becomes a ValueError."""
    import h5py  # comes with TensorFlow

    try:
        with h5py.File(path, "r") as opened:
            yield opened
    except (OSError, LookupError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path}: damaged or no HDF5 file of Keras weights ({error})") from None


def _open_pytorch(path: str) -> WeightFile:
    try:
        import torch
    except ImportError:
        raise ValueError(
            f"{path}: files of PyTorch are pickles, which can run any code; they are read through "
            "PyTorch's weights_only loading alone, and PyTorch is not installed. Either pip "
            "install torch, or convert the file where PyTorch and transformers are: "
            "AutoModel.from_pretrained(folder).save_pretrained(new_folder) writes "
            "model.safetensors"
        ) from None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        arrays = {name: tensor.detach().float().numpy() for name, tensor in state.items()}
    except Exception as error:  # what a damaged or hostile file raises is not documented
        raise ValueError(
            f"{path}: damaged, or no plain dictionary of PyTorch tensors ({type(error).__name__})"
        ) from None
    shapes = {name: array.shape for name, array in arrays.items()}
    return WeightFile(path, "PyTorch", shapes, arrays.__getitem__)
