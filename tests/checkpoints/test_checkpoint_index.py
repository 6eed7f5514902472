"""Places in the index of a TensorFlow checkpoint, beside what TensorFlow's reader returns."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints import checkpoint_index, containers, store
from albert_tf.checkpoints.run_folder import DATA_SUFFIX

LARGE = (131, 257)  # 131 kB: is mapped


def save(prefix, tensors):
    names = list(tensors)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tensors[name] for name in names],
    )


def arrays_of_many_blocks():
    """Arrays of all kinds: the entries of their names need several blocks of the index."""
    random = np.random.default_rng(11)
    shapes = [(), (3,), (0, 4), (5, 7), LARGE]
    return {
        f"bert/encoder/transformer/group_{i}/{'a' * (i % 9)}/kernel": random.standard_normal(
            shapes[i % 5], np.float32
        )
        for i in range(230)
    }


def test_every_array_is_where_its_place_says(tmp_path):
    arrays = arrays_of_many_blocks()
    others = {"global_step": np.int64(70000), "text": np.array(b"a text"), "half": np.float16(2)}
    save(tmp_path / "model", arrays | others)
    found = checkpoint_index.places(str(tmp_path / "model"))
    assert found.keys() == arrays.keys() | others.keys()
    data = (tmp_path / f"model{DATA_SUFFIX}").read_bytes()
    for name, array in arrays.items():
        place = found[name]
        assert data[place.offset : place.offset + place.size] == array.tobytes(), name
        if array.size:
            np.testing.assert_array_equal(place.map(str(tmp_path / "model"), array.shape), array)
    assert found["global_step"].size == 8


def test_what_cannot_be_mapped_has_no_place(tmp_path):
    prefix = str(tmp_path / "sliced")
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=["parts", "parts", "whole"],
        shape_and_slices=["4 6000 0,2:-", "4 6000 2,2:-", ""],
        tensors=[tf.ones((2, 6000)), tf.zeros((2, 6000)), tf.ones(4)],
    )
    assert "parts" not in checkpoint_index.places(prefix)
    assert "whole" in checkpoint_index.places(prefix)
    assert containers.open_weights(prefix).read("parts").mean() == 0.5
    for shard in range(2):
        save(tmp_path / f"part_{shard}", {f"x_{shard}": tf.ones(LARGE)})
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=[str(tmp_path / f"part_{shard}") for shard in range(2)],
        destination_prefix=str(tmp_path / "shards"),
    )
    assert checkpoint_index.places(str(tmp_path / "shards")) == {}
    opened = containers.open_weights(str(tmp_path / "shards"))
    assert (opened.read("x_1") == 1).all()


def test_damaged_data_are_noticed_when_they_are_mapped(tmp_path):
    prefix = tmp_path / "model.ckpt-best"
    store.save_checkpoint(str(prefix), {"a": np.ones(LARGE, np.float32), "b": np.zeros(3)})
    data = bytearray((tmp_path / f"{prefix.name}{DATA_SUFFIX}").read_bytes())
    data[70_001] ^= 1
    (tmp_path / f"{prefix.name}{DATA_SUFFIX}").write_bytes(data)
    with pytest.raises(ValueError, match="cannot read 'a', the data is damaged"):
        containers.open_weights(str(prefix)).read("a")
    (tmp_path / f"{prefix.name}{DATA_SUFFIX}").write_bytes(data[:70_000])
    with pytest.raises(ValueError, match="cannot read 'a', the data is damaged"):
        containers.open_weights(str(prefix)).read("a")


def test_an_index_with_any_damage_ends_in_an_error_or_in_places(tmp_path):
    prefix = tmp_path / "model"
    save(prefix, arrays_of_many_blocks())
    index = (tmp_path / "model.index").read_bytes()
    random = np.random.default_rng(3)
    refused = 0
    for _ in range(60):
        damaged = bytearray(index[: random.integers(1, len(index) + 1)])
        damaged[random.integers(len(damaged))] ^= 1 << random.integers(8)
        (tmp_path / "model.index").write_bytes(damaged)
        try:
            checkpoint_index.places(str(prefix))
        except ValueError:
            refused += 1
    assert refused > 40


def test_a_mapped_array_is_a_copy_of_its_own(tmp_path):
    prefix = str(tmp_path / "model.ckpt-best")
    store.save_checkpoint(prefix, {"a": np.ones(LARGE, np.float32)})
    before = (tmp_path / f"model.ckpt-best{DATA_SUFFIX}").read_bytes()
    array, other = (containers.open_weights(prefix).read("a") for _ in range(2))
    assert isinstance(array, np.memmap)
    array += 1
    assert (other == 1).all()
    assert (tmp_path / f"model.ckpt-best{DATA_SUFFIX}").read_bytes() == before
    store.save_checkpoint(prefix, {"a": np.zeros(LARGE, np.float32)})  # replaces the file
    assert (other == 1).all()
    assert (array == 2).all()
