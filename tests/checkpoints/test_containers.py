"""Opening weight files, and the errors for damaged ones."""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
import types

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.containers import digest, open_weights
from albert_tf.checkpoints.model_folder import find_checkpoint
from albert_tf.checkpoints.store import save_checkpoint
from tests.checkpoints.checkpoint_samples import assert_same, random_arrays
from tests.huggingface_folders import save_file

KERNEL = "bert/a/kernel"
ARRAYS = random_arrays({KERNEL: (5, 3), "bert/b/bias": (7,)})
SHARD = "model-0000{}-of-00002.safetensors"


def write_shards(folder):
    """A checkpoint in two data files."""
    prefix = str(folder / "model.ckpt-3")
    parts = [f"{prefix}-part0", f"{prefix}-part1"]
    for part, (name, value) in zip(parts, ARRAYS.items(), strict=True):
        tensors = [tf.constant(value)]
        tf.raw_ops.SaveV2(prefix=part, tensor_names=[name], shape_and_slices=[""], tensors=tensors)
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=prefix)
    return prefix


def write_hugging_face_shards(folder):
    """Two files of Hugging Face and the list of what is in which."""
    files = {name: SHARD.format(number) for number, name in enumerate(ARRAYS, 1)}
    for name, file in files.items():
        save_file({name: ARRAYS[name]}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    return str(folder)


def write_object_based(folder):
    first, second = (tf.Variable(value, name=name) for name, value in ARRAYS.items())
    return tf.train.Checkpoint(first=first, second=second).save(str(folder / "ckpt"))


def write_safetensors(folder):
    save_file(ARRAYS, folder / "model.safetensors")
    return f"file://{folder}"


@pytest.mark.parametrize(
    "write", [write_shards, write_hugging_face_shards, write_object_based, write_safetensors]
)
def test_every_container_has_the_arrays_by_name(write, tmp_path):
    weights = open_weights(write(tmp_path))
    shapes = {name: shape for name, shape in weights.shapes.items() if name != "save_counter"}
    assert shapes == {name: value.shape for name, value in ARRAYS.items()}
    assert_same({name: weights.read(name) for name in shapes}, ARRAYS)
    np.testing.assert_array_equal(weights.read(KERNEL, is_transposed=True), ARRAYS[KERNEL].T)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_weights_in_half_precision_are_read(tmp_path, dtype):
    arrays = {name: value.astype(dtype) for name, value in ARRAYS.items()}
    save_file(arrays, tmp_path / "model.safetensors")
    weights = open_weights(str(tmp_path))
    for name, value in arrays.items():
        np.testing.assert_array_equal(weights.read(name).astype(np.float32), np.float32(value))


def test_a_digest_depends_on_all_of_a_large_file(tmp_path):
    path = tmp_path / "model.safetensors"
    found = set()
    for last in b"ab":
        path.write_bytes(bytes(1 << 21) + bytes([last]))
        found.add(digest(str(path)))
    assert len(found) == 2


def test_a_digest_only_depends_on_the_content(tmp_path):
    folders = [tmp_path / name for name in ("first", "copy", "changed")]
    digests = []
    for number, folder in enumerate(folders):
        folder.mkdir()
        arrays = {name: value + number // 2 for name, value in ARRAYS.items()}
        save_checkpoint(str(folder / "model.ckpt-3"), arrays)
        write_hugging_face_shards(folder)
        save_file({"bert/b/bias": arrays["bert/b/bias"]}, folder / SHARD.format(2))
        files = ("model.ckpt-3", SHARD.format(2), "model.safetensors.index.json")
        digests.append([digest(find_checkpoint(str(folder / file))) for file in files])
    assert digests[0] == digests[1]
    assert not set(digests[0]) & set(digests[2])


def test_a_list_of_shards_that_is_wrong_is_refused(tmp_path):
    folder = write_hugging_face_shards(tmp_path)
    (tmp_path / SHARD.format(2)).unlink()
    for read in (open_weights, lambda path: digest(find_checkpoint(path))):
        with pytest.raises(FileNotFoundError, match=r"model-00002-of-00002\.safetensors: no such"):
            read(folder)
    shards = tmp_path / "model.safetensors.index.json"
    for name in (shards.name, f"a-{shards.name}", "../model.safetensors", "/x/y.safetensors", ".."):
        shards.write_text(json.dumps({"weight_map": {"x": name}}))
        with pytest.raises(ValueError, match=rf"json names '{re.escape(name)}': expected a file"):
            open_weights(folder)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": ["x"]}))
    with pytest.raises(ValueError, match=r"index\.json: 'weight_map' is \['x'\], expected dict"):
        open_weights(folder)


@pytest.mark.parametrize(
    ("file", "end", "said"),
    [
        ("ckpt-3.data-00001-of-00002", 0, r"'bert/b/bias'.* .*data-00001-of-00002; No such file"),
        ("ckpt-3.data-00001-of-00002", -5, "ckpt-3: cannot read 'bert/b/bias', the data are dama"),
        ("ckpt-3.index", -5, "ckpt-3: damaged or not a TensorFlow checkpoint"),
    ],
)
def test_damaged_checkpoints_are_refused(tmp_path, file, end, said):
    prefix, path = write_shards(tmp_path), tmp_path / f"model.{file}"
    content = path.read_bytes()[:end]
    path.unlink()
    if content:
        path.write_bytes(content)
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        list(map(open_weights(prefix).read, ARRAYS))


def write_named(folder, factor=1):
    """The arrays in the name-based format, as programs write them."""
    folder.mkdir(exist_ok=True)
    save_checkpoint(str(folder / "ckpt"), {name: factor * x for name, x in ARRAYS.items()})


def write_file(folder, factor=1):
    folder.mkdir(exist_ok=True)
    save_file({name: factor * x for name, x in ARRAYS.items()}, folder / "model.safetensors")


def truncate(path, _):
    path.write_bytes(b"")


def copy_over(path, other):
    path.write_bytes(other.read_bytes())


def rename(path, other):
    other.rename(path)


@pytest.mark.parametrize("change", [truncate, copy_over, rename])
@pytest.mark.parametrize("write", [write_named, write_file, write_hugging_face_shards])
def test_a_file_that_is_changed_while_it_is_read_gives_no_mixture(write, change, tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
        write(folder)
    if write is not write_hugging_face_shards:
        write(theirs, factor=2)
    for path in ours.iterdir():
        os.utime(path, (1e9, 1e9))  # the clock of the file system may be slow
    weights = open_weights(str(ours))
    first, *_, last = weights.shapes
    weights.read(first)
    for path in ours.iterdir():
        change(path, theirs / path.name)
    with pytest.raises(ValueError, match=rf"^{ours}/.* was changed while it was read"):
        weights.read(last)


class Bomb:
    """An object that leaves a trace when it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return (open, (self.trace, "w"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("weights", "looks like a pickle. Pickles are never loaded"),
        ("pytorch_model.bin", r"pip install torch, or save .*model\.safetensors"),
    ],
)
def test_pickles_are_refused_and_never_loaded(tmp_path, monkeypatch, name, said):
    path, trace = tmp_path / name, tmp_path / "trace"
    path.write_bytes(pickle.dumps({"w": Bomb(str(trace))}))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match=said):
        open_weights(str(path))
    assert not trace.exists()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("vocab.txt", b"[PAD]\n[UNK]\n", r"vocab.txt: not a weight file"),
        ("model.safetensors", b"x" * 20, "model.safetensors: damaged or not a safetensors file"),
    ],
)
def test_other_files_are_refused(tmp_path, name, content, said):
    if name.endswith(".safetensors"):
        pytest.importorskip("safetensors", reason="needs the extra hf")
    (tmp_path / name).write_bytes(content)
    for place in (str(tmp_path), f"file://{tmp_path}"):
        with pytest.raises(ValueError, match=f"^{place}/{said}"):
            open_weights(f"{place}/{name}")


class Tensor:
    """The used part of `torch.Tensor`."""

    def __init__(self, value):
        self.numpy = lambda: value
        self.float = self.detach = lambda: self


@pytest.mark.parametrize("key", ["state_dict", "model", "model_state_dict"])
def test_the_weights_in_a_checkpoint_of_a_training_are_read(tmp_path, monkeypatch, key):
    weights = {"a": Tensor(np.ones(3)), "b": Tensor(np.zeros(2))}
    optimizer = {"state": {0: {"exp_avg": Tensor(np.ones(3))}}, "param_groups": [{"lr": 0.1}]}
    content = {"epoch": 3, "optimizer": optimizer, "ema": weights, key: weights}
    monkeypatch.setitem(
        sys.modules, "torch", types.SimpleNamespace(load=lambda *_, **__: dict(content))
    )
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(b"PK\3\4 and so on")
    opened = open_weights(str(path))
    assert_same(
        {name: opened.read(name) for name in opened.shapes}, {"a": np.ones(3), "b": np.zeros(2)}
    )
    for wrong, said in (
        ({"model": weights, "net": weights}, "found 'model', 'net'. Save the tensors alone, by"),
        ({"ema": weights}, "or one of them in 'state_dict' or .*; found 'ema'"),
        ({"epoch": 1, **weights}, "found 'epoch', 'a', 'b'"),
        ({}, "expected a plain dict of PyTorch tensors"),
        ([weights], "found no dict"),
    ):
        monkeypatch.setattr(sys.modules["torch"], "load", lambda *_, found=wrong, **__: found)
        with pytest.raises(ValueError, match=rf"checkpoint\.pt: .*{said}"):
            open_weights(str(path))


def test_pytorch_reads_its_files_with_weights_only(tmp_path, monkeypatch):
    def load(path, map_location, weights_only):
        assert (path, map_location, weights_only) == (str(file), "cpu", True)
        if file.read_bytes() == b"code":
            raise pickle.UnpicklingError("Unsupported global: GLOBAL posix.system")
        return {"a": Tensor(np.ones(3))}

    file = tmp_path / "pytorch_model.bin"
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(load=load))
    file.write_bytes(b"PK\3\4 and so on")
    assert_same({"a": open_weights(str(file)).read("a")}, {"a": np.ones(3)})
    file.write_bytes(b"code")
    with pytest.raises(ValueError, match=r"not a plain dict .* \(UnpicklingError\)"):
        open_weights(str(file))
