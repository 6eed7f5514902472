"""Numbered checkpoints are written atomically, and damaged ones are named."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import files
from albert_tf.checkpoints import run_folder, store
from albert_tf.checkpoints.run_folder import DATA_SUFFIX, RunFolder
from albert_tf.checkpoints.store import find_damage, newest, save_checkpoint
from tests.checkpoints.checkpoint_samples import assert_same, random_arrays, read_all

SHAPES = {"a": (5, 3), "b": (7,), "c": (0, 2)}


def tensors_of(step):
    counter = {"global_step": np.int64(step), "half": np.ones(3, np.float16)}
    return random_arrays(SHAPES, step) | counter


def write(folder, step):
    prefix = f"{folder}/model.ckpt-{step}"
    save_checkpoint(prefix, tensors_of(step))
    return prefix


def checkpoints_in(folder):
    return list(RunFolder(str(folder)).checkpoints())


def change(path, edit):
    with open(path, "rb") as stream:
        content = bytearray(stream.read())
    edit(content)
    with open(path, "wb") as stream:
        stream.write(content)


def flip(content):
    content[len(content) // 3] ^= 1


def cut(content):
    del content[-1]


def empty(content):
    content.clear()


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def files_of(*prefixes):
    return [prefix + suffix for prefix in prefixes for suffix in (DATA_SUFFIX, ".index")]


def test_a_saved_checkpoint_has_exactly_the_saved_tensors(tmp_path):
    prefix = write(tmp_path, 20)
    assert names_in(tmp_path) == files_of("model.ckpt-20")
    assert find_damage(prefix) == ""
    assert_same(read_all(prefix), tensors_of(20))
    assert read_all(prefix)["half"].dtype == np.float16


def raise_full_disk(prefix="", **_):
    with open(f"{prefix}{DATA_SUFFIX}.tempstate1", "wb") as stream:
        stream.write(b"half")
    message = f"{{{{node}}}} {prefix}{DATA_SUFFIX}; No space left on device [Op:SaveV2]"
    raise tf.errors.ResourceExhaustedError(None, None, message)


def raise_full_disk_at_last(_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("module", "name", "fail"),
    [(tf.raw_ops, "SaveV2", raise_full_disk), (os, "fsync", raise_full_disk_at_last)],
)
def test_a_full_disk_leaves_the_older_checkpoints(tmp_path, monkeypatch, module, name, fail):
    prefix = write(tmp_path, 3)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, fail)
        with pytest.raises(OSError, match="checkpoint cannot be written: No space left on"):
            write(tmp_path, 20)
    assert names_in(tmp_path) == files_of("model.ckpt-3")
    assert find_damage(prefix) == ""


@pytest.mark.parametrize("edit", [cut, flip, empty])
@pytest.mark.parametrize("suffix", [DATA_SUFFIX, ".index"])
def test_a_checkpoint_written_incorrectly_is_not_renamed(tmp_path, monkeypatch, edit, suffix):
    prefix = write(tmp_path, 3)
    save = tf.raw_ops.SaveV2

    def save_badly(prefix, **arguments):
        save(prefix=prefix, **arguments)
        change(prefix + suffix, edit)

    monkeypatch.setattr(tf.raw_ops, "SaveV2", save_badly)
    if (edit, suffix) == (flip, DATA_SUFFIX):  # sizes agree: only reading all of it would tell
        save_checkpoint(prefix, {"a": np.ones(3)})
        assert "Checksum does not match" in find_damage(prefix)
        return
    with pytest.raises(OSError, match=r"model\.ckpt-3: .* not written correctly"):
        save_checkpoint(prefix, {"a": np.ones(3)})
    assert read_all(prefix)["global_step"] == 3
    assert len(names_in(tmp_path)) == 2


def test_an_index_of_other_tensors_is_detected(tmp_path):
    prefix = write(tmp_path, 3)
    shapes = {name: list(np.shape(value)) for name, value in tensors_of(3).items()}
    assert find_damage(prefix, shapes) == ""
    assert "for example b" in find_damage(prefix, {k: v for k, v in shapes.items() if k != "b"})
    assert "does not match what was saved" in find_damage(prefix, shapes | {"a": [3, 5]})


def test_replacing_a_checkpoint_never_mixes_the_two(tmp_path, monkeypatch):
    prefix = write(tmp_path, 3)
    rename = files.rename

    def fail_at_the_index(source, target):
        if target.endswith(".index"):
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(files, "rename", fail_at_the_index)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(prefix, {"a": np.ones(3)})
    assert checkpoints_in(tmp_path) == []


@pytest.mark.parametrize(("scheme", "name"), [("", "[a] *\\b"), ("file://", "folder")])
def test_checkpoints_are_saved_copied_listed_and_removed(tmp_path, scheme, name):
    place = tmp_path / name
    place.mkdir()
    folder = f"{scheme}{place}"
    assert newest(RunFolder(folder)) is None
    for step in (0, 1, 20, 3):
        save_checkpoint(f"{folder}/model.ckpt-{step}", tensors_of(step))
    store.copy_checkpoint(f"{folder}/model.ckpt-20", f"{folder}/{run_folder.BEST}")
    store.remove_old_checkpoints(RunFolder(folder), 0)
    assert checkpoints_in(folder) == [0, 1, 3, 20]
    store.remove_old_checkpoints(RunFolder(folder), 2)
    assert checkpoints_in(folder) == [3, 20]
    assert newest(RunFolder(folder)) == f"{folder}/model.ckpt-20"
    assert_same(read_all(f"{folder}/{run_folder.BEST}"), tensors_of(20))
    assert names_in(place) == files_of("model.ckpt-20", "model.ckpt-3", run_folder.BEST)


def test_a_checkpoint_has_the_name_of_its_step():
    for name in ("model.ckpt-20", "model.ckpt-best", "albert"):
        store.check_name(name, 20)
    for step in (19, 21):
        with pytest.raises(ValueError, match=f"ckpt-20 has the global_step {step}: it was renamed"):
            store.check_name("model.ckpt-20", step)


@pytest.mark.parametrize("edit", [cut, flip, empty, None])
@pytest.mark.parametrize("suffix", [DATA_SUFFIX, ".index"])
def test_a_damaged_newest_checkpoint_is_named_with_the_last_good_one(tmp_path, edit, suffix):
    prefixes = [write(tmp_path, step) for step in (3, 20, 100, 101)]
    for prefix in prefixes[2:]:
        if edit:
            change(prefix + suffix, edit)
        else:
            os.remove(prefix + suffix)
    before = names_in(tmp_path)
    if (edit, suffix) == (None, ".index"):  # it is none any more
        assert newest(RunFolder(str(tmp_path))) == prefixes[1]
        return
    said = rf"ckpt-101.*The last good checkpoint is {prefixes[1]}\. Restore {prefixes[3]} "
    with pytest.raises(ValueError, match=said):
        newest(RunFolder(str(tmp_path)))
    for prefix in prefixes[:2]:
        change(prefix + DATA_SUFFIX, flip)
    with pytest.raises(ValueError, match=r"ckpt-101.* checkpoint is \(none\)\. Restore"):
        newest(RunFolder(str(tmp_path)))
    assert names_in(tmp_path) == before
