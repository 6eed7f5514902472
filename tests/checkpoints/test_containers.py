"""Opening weight files, and the errors for damaged ones."""

from __future__ import annotations

import json
import pickle
import struct
import sys
import types

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import save_file

from albert_tf.checkpoints.containers import digest, open_weights
from albert_tf.checkpoints.finding import find_checkpoint
from albert_tf.checkpoints.store import save_checkpoint
from tests.checkpoints.checkpoint_samples import random_arrays

ARRAYS = random_arrays({"bert/a/kernel": (5, 3), "bert/b/bias": (7,)})
THREE = random_arrays({"a": (5, 3), "b": (7,), "c": (2, 11)})


@pytest.fixture
def saved(tmp_path):
    """Returns the prefix of a small checkpoint."""
    prefix = str(tmp_path / "model.ckpt-7")
    save_checkpoint(prefix, ARRAYS)
    return prefix


def assert_holds(weights, arrays):
    assert weights.shapes == {name: value.shape for name, value in arrays.items()}
    for name, value in arrays.items():
        np.testing.assert_array_equal(weights.read(name), value)


def write_sharded(prefix, shards):
    """Writes a checkpoint with several data files."""
    parts = []
    for i, (name, value) in enumerate(ARRAYS.items()):
        part = f"{prefix}-part{i % shards}"
        tf.raw_ops.SaveV2(
            prefix=part, tensor_names=[name], shape_and_slices=[""], tensors=[tf.constant(value)]
        )
        parts.append(part)
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=prefix)


def test_a_digest_only_depends_on_the_content(saved, tmp_path):
    copy, other = str(tmp_path / "copy"), str(tmp_path / "other")
    save_checkpoint(copy, ARRAYS)
    save_checkpoint(other, {name: value + 1 for name, value in ARRAYS.items()})
    assert digest(saved) == digest(copy) != digest(other)
    save_file(ARRAYS, tmp_path / "a.safetensors")
    save_file(ARRAYS, tmp_path / "b.safetensors")
    save_file({"x": ARRAYS["bert/a/kernel"]}, tmp_path / "c.safetensors")
    a, b, c = (digest(str(tmp_path / f"{name}.safetensors")) for name in "abc")
    assert a == b != c


@pytest.fixture
def shards(tmp_path):
    """Returns a folder with three arrays in three files, as Hugging Face divides a model."""
    folder = tmp_path / "shards"
    folder.mkdir()
    weight_map = {}
    for number, (name, value) in enumerate(THREE.items(), 1):
        file_name = f"model-0000{number}-of-00003.safetensors"
        save_file({name: value}, folder / file_name)
        weight_map[name] = file_name
    index = {"metadata": {"total_size": 200}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_the_shards_of_hugging_face_are_one_checkpoint(shards):
    assert_holds(open_weights(str(shards)), THREE)
    before = digest(find_checkpoint(str(shards)))
    save_file({"c": THREE["c"] + 1}, shards / "model-00003-of-00003.safetensors")
    assert digest(find_checkpoint(str(shards))) != before


def test_a_missing_shard_of_hugging_face_is_named(shards):
    (shards / "model-00002-of-00003.safetensors").unlink()
    for read in (open_weights, lambda path: digest(find_checkpoint(path))):
        with pytest.raises(FileNotFoundError, match=r"model-00002-of-00003\.safetensors: no such"):
            read(str(shards))
    (shards / "model.safetensors.index.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"Expected: .*model\.safetensors\.index\.json"):
        open_weights(str(shards))


def test_a_list_of_shards_that_is_wrong_is_an_error(shards):
    index = shards / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    save_file({"x": THREE["c"]}, shards / "model-00003-of-00003.safetensors")
    with pytest.raises(ValueError, match=r"00003-of-00003\.safetensors: it has no weight 'c'"):
        open_weights(str(shards))
    for wrong in ({}, {"weight_map": []}, {"weight_map": listed["weight_map"] | {"c": "../x"}}):
        index.write_text(json.dumps(wrong))
        with pytest.raises(ValueError, match=r'index\.json: expected "weight_map"'):
            open_weights(str(shards))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_weights_in_half_precision_are_read(tmp_path, dtype):
    arrays = {name: value.astype(dtype) for name, value in ARRAYS.items()}
    save_file(arrays, tmp_path / "model.safetensors")
    weights = open_weights(str(tmp_path))
    for name, value in arrays.items():
        np.testing.assert_array_equal(weights.read(name).astype(np.float32), np.float32(value))


def test_files_of_their_trainer_beside_a_model_are_ignored(tmp_path):
    save_file(ARRAYS, tmp_path / "model.safetensors")
    for name in ("training_args.bin", "optimizer.pt", "rng_state.pth"):
        (tmp_path / name).write_bytes(b"")
    assert_holds(open_weights(str(tmp_path)), ARRAYS)


def test_an_index_without_data_is_reported(saved, tmp_path):
    (tmp_path / "model.ckpt-7.data-00000-of-00001").unlink()
    with pytest.raises(FileNotFoundError, match=r"7.index has no data: .*00000-of-00001 is miss"):
        open_weights(saved)


def test_all_shards_are_read(tmp_path):
    prefix = str(tmp_path / "model.ckpt-3")
    write_sharded(prefix, 2)
    assert (tmp_path / "model.ckpt-3.data-00001-of-00002").exists()
    assert_holds(open_weights(prefix), ARRAYS)


def test_a_missing_shard_is_reported(tmp_path):
    prefix = str(tmp_path / "model.ckpt-3")
    write_sharded(prefix, 2)
    (tmp_path / "model.ckpt-3.data-00001-of-00002").unlink()
    with pytest.raises(FileNotFoundError, match=r"lacks files: .*ckpt-3.data-00001-of-00002"):
        open_weights(prefix)


def test_a_truncated_shard_is_reported(saved, tmp_path):
    data = tmp_path / "model.ckpt-7.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-5])
    weights = open_weights(saved)
    with pytest.raises(ValueError, match=r"ckpt-7: cannot read 'bert/b/bias', the data is damaged"):
        weights.read("bert/b/bias")


def test_a_changed_byte_is_reported(saved, tmp_path):
    data = tmp_path / "model.ckpt-7.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[2] ^= 1
    data.write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot read 'bert/a/kernel', the data is damaged"):
        open_weights(saved).read("bert/a/kernel")


@pytest.mark.parametrize("name", ["a[b]c", "a\\b", "[", "*?"])
def test_a_folder_with_a_name_like_a_glob_can_be_read(tmp_path, monkeypatch, name):
    (tmp_path / name).mkdir()
    arrays = random_arrays({"a": (5, 3)})
    save_checkpoint(str(tmp_path / name / "model.ckpt-3"), arrays)
    monkeypatch.chdir(tmp_path)
    assert_holds(open_weights(f"{name}/model.ckpt-3"), arrays)


@pytest.mark.parametrize("change", [lambda data: b"no table at all" * 9, lambda data: data[20:]])
def test_an_invalid_index_is_reported(saved, tmp_path, change):
    index = tmp_path / "model.ckpt-7.index"
    index.write_bytes(change(index.read_bytes()))
    with pytest.raises(ValueError, match=r"ckpt-7: damaged or not a TensorFlow checkpoint"):
        open_weights(saved)


def test_object_based_checkpoints_are_read_by_variable_names(tmp_path):
    variables = {name: tf.Variable(value, name=name) for name, value in ARRAYS.items()}
    checkpoint = tf.train.Checkpoint(first=variables["bert/a/kernel"], x=variables["bert/b/bias"])
    weights = open_weights(checkpoint.save(str(tmp_path / "ckpt")))
    counter = {"save_counter": np.int64(1)}
    assert_holds(weights, ARRAYS | counter)
    assert weights.container == "object-based TensorFlow 2 checkpoint"


def test_a_saved_model_is_found_in_its_folder(tmp_path):
    root = tf.train.Checkpoint(w=tf.Variable(ARRAYS["bert/b/bias"], name="bert/b/bias"))
    tf.saved_model.save(root, str(tmp_path / "hub"))
    np.testing.assert_array_equal(
        open_weights(str(tmp_path / "hub")).read("bert/b/bias"), ARRAYS["bert/b/bias"]
    )


def test_safetensors_are_read(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file(ARRAYS, path)
    assert_holds(open_weights(str(path)), ARRAYS)


def test_half_precision_safetensors_are_read(tmp_path):
    values = tf.constant([[1.5, -2.25]], tf.bfloat16)
    header = json.dumps({"x": {"dtype": "BF16", "shape": [1, 2], "data_offsets": [0, 4]}})
    path = tmp_path / "model.safetensors"
    size = struct.pack("<Q", len(header))
    path.write_bytes(size + header.encode() + values.numpy().tobytes())
    read = open_weights(str(path)).read("x")
    np.testing.assert_array_equal(np.asarray(read, np.float32), [[1.5, -2.25]])


@pytest.mark.parametrize("kept", [4, 40, -3])
def test_damaged_safetensors_are_reported(tmp_path, kept):
    path = tmp_path / "model.safetensors"
    save_file(ARRAYS, path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"model.safetensors: damaged or not a safetensors file"):
        open_weights(str(path))


def test_the_error_without_safetensors_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    save_file(ARRAYS, path)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ValueError, match=r"pip install 'albert-tf2\[hf\]'"):
        open_weights(str(path))


class Bomb:
    """An object that leaves a trace when it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return (open, (self.trace, "w"))


@pytest.mark.parametrize("name", ["weights.pkl", "weights", "weights.ckpt"])
def test_pickles_are_rejected_and_never_loaded(tmp_path, name):
    path, trace = tmp_path / name, tmp_path / "trace"
    path.write_bytes(pickle.dumps({"w": Bomb(str(trace))}))
    with pytest.raises(ValueError, match=r"looks like a pickle. Pickles are never loaded"):
        open_weights(str(path))
    assert not trace.exists()


def test_the_error_without_pytorch_says_how_to_convert(tmp_path, monkeypatch):
    path, trace = tmp_path / "pytorch_model.bin", tmp_path / "trace"
    path.write_bytes(pickle.dumps({"w": Bomb(str(trace))}))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match=r"pip install torch, or save .*model\.safetensors"):
        open_weights(str(path))
    assert not trace.exists()


class Tensor:
    """The used part of `torch.Tensor`."""

    def __init__(self, value):
        self.numpy = lambda: value
        self.float = self.detach = lambda: self


def test_pytorch_files_are_read_with_weights_only(tmp_path, monkeypatch):
    calls = []

    def load(path, **options):
        calls.append((path, options))
        return {name: Tensor(value) for name, value in ARRAYS.items()}

    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(b"PK\3\4 and so on")
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(load=load))
    assert_holds(open_weights(str(path)), ARRAYS)
    assert calls == [(str(path), {"map_location": "cpu", "weights_only": True})]


def test_files_rejected_by_pytorch_are_reported(tmp_path, monkeypatch):
    def load(path, **options):
        raise pickle.UnpicklingError("Unsupported global: GLOBAL posix.system")

    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(b"PK\3\4 and so on")
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(load=load))
    with pytest.raises(ValueError, match=r"not a plain dict .* \(UnpicklingError\)"):
        open_weights(str(path))


def test_other_files_are_rejected(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n[UNK]\n")
    with pytest.raises(ValueError, match=r"vocab.txt: not a weight file"):
        open_weights(str(path))


def test_remote_files_of_other_formats_are_read_from_a_copy(tmp_path):
    save_file(ARRAYS, tmp_path / "model.safetensors")
    weights = open_weights(f"file://{tmp_path}")
    assert weights.path == f"file://{tmp_path}/model.safetensors"
    assert_holds(weights, ARRAYS)


def test_a_damaged_remote_file_is_reported(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"x" * 20)
    with pytest.raises(ValueError, match=r"^file://.*/model.safetensors: damaged"):
        open_weights(f"file://{tmp_path}/model.safetensors")


def test_remote_checkpoints_can_be_opened(saved, tmp_path):
    assert_holds(open_weights(f"file://{tmp_path}"), ARRAYS)
