"""Numbered checkpoints are written atomically, and damaged ones are named."""

from __future__ import annotations

import errno
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints import run_folder, store
from albert_tf.checkpoints.run_folder import DATA_SUFFIX, RunFolder
from albert_tf.checkpoints.store import find_damage, newest, save_checkpoint
from albert_tf.files import writing
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


def test_a_full_disk_leaves_the_checkpoint_that_would_be_replaced_by_a_copy(tmp_path, monkeypatch):
    old, new = write(tmp_path, 3), write(tmp_path, 20)
    copy = shutil.copyfileobj

    def fail_at_the_data(source, target):
        if source.name.endswith(DATA_SUFFIX):
            raise_full_disk_at_last(None)
        copy(source, target)

    monkeypatch.setattr(shutil, "copyfileobj", fail_at_the_data)
    with pytest.raises(OSError, match="checkpoint cannot be written: No space left on"):
        store.copy_checkpoint(new, old)
    assert_same(read_all(old), tensors_of(3))
    assert names_in(tmp_path) == files_of("model.ckpt-20", "model.ckpt-3")


def test_replacing_a_checkpoint_never_mixes_the_two(tmp_path, monkeypatch):
    old, new = write(tmp_path, 3), write(tmp_path, 20)
    rename, save = writing.rename, tf.raw_ops.SaveV2

    def fail_at_the_index(source, target):
        if target.endswith(".index"):
            raise KeyboardInterrupt
        rename(source, target)

    def fail_after_the_data(prefix, **arguments):
        save(prefix=f"{prefix}.new", **arguments)
        os.replace(f"{prefix}.new{DATA_SUFFIX}", prefix + DATA_SUFFIX)
        assert not os.path.exists(f"{prefix}.index")
        raise KeyboardInterrupt

    monkeypatch.setattr(writing, "rename", fail_at_the_index)
    with pytest.raises(KeyboardInterrupt):
        store.copy_checkpoint(new, old)
    assert checkpoints_in(tmp_path) == [20]
    monkeypatch.setattr(tf.raw_ops, "SaveV2", fail_after_the_data)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(new, {"a": np.ones(3)})
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
