"""Numbered checkpoints are written atomically, and damaged ones are skipped."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import files
from albert_tf.checkpoints import store
from albert_tf.checkpoints.containers import open_checkpoint
from albert_tf.checkpoints.names import DATA_SUFFIX
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.store import find_damage, newest_usable, save_checkpoint
from tests.checkpoints.checkpoint_samples import random_arrays

SHAPES = {"a": (5, 3), "b": (7,), "c": (0, 2)}


def write(tmp_path, step, name=None):
    prefix = str(tmp_path / (name or f"model.ckpt-{step}"))
    step = {"global_step": np.int64(step), "half": np.ones(3, np.float16)}
    save_checkpoint(prefix, random_arrays(SHAPES, step["global_step"]) | step)
    return prefix


def read_all(prefix):
    reader = open_checkpoint(prefix)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def checkpoints_in(folder):
    return list(RunFolder(str(folder)).checkpoints())


def keep_newest(folder, count):
    store.remove_old_checkpoints(RunFolder(str(folder)), count)


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


def test_a_saved_checkpoint_has_exactly_the_saved_tensors(tmp_path):
    prefix = write(tmp_path, 20)
    assert names_in(tmp_path) == [f"model.ckpt-20{DATA_SUFFIX}", "model.ckpt-20.index"]
    assert find_damage(prefix) == ""
    for name, value in random_arrays(SHAPES, 20).items():
        np.testing.assert_array_equal(read_all(prefix)[name], value)
    assert read_all(prefix)["half"].dtype == np.float16


def test_a_failed_save_leaves_only_the_old_checkpoint(tmp_path):
    prefix = write(tmp_path, 3)
    with pytest.raises(ValueError, match=r"non-rectangular"):
        save_checkpoint(prefix, {"a": [[1.0], [2.0, 3.0]]})
    assert read_all(prefix)["global_step"] == 3
    assert len(names_in(tmp_path)) == 2


@pytest.mark.parametrize("trouble", ["while writing", "while syncing"])
def test_the_error_for_a_full_disk_says_what_to_do(tmp_path, monkeypatch, trouble):
    prefix = write(tmp_path, 3)
    newer = str(tmp_path / "model.ckpt-20")

    def fail_to_write(prefix, **_):
        (tmp_path / f"{prefix}{DATA_SUFFIX}.tempstate1").write_bytes(b"half")
        message = f"{{{{node}}}} {prefix}{DATA_SUFFIX}; No space left on device [Op:SaveV2]"
        raise tf.errors.ResourceExhaustedError(None, None, message)

    def fail_to_sync(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if trouble == "while writing":
        monkeypatch.setattr(tf.raw_ops, "SaveV2", fail_to_write)
    else:
        monkeypatch.setattr(os, "fsync", fail_to_sync)
    with pytest.raises(
        OSError, match=r"20: the checkpoint cannot be written: No space l.* Free some"
    ):
        save_checkpoint(newer, {"a": np.ones(3)})
    assert checkpoints_in(tmp_path) == [3]
    assert len(names_in(tmp_path)) == 2
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
    shapes = {name: list(shape) for name, shape in SHAPES.items()}
    shapes |= {"global_step": [], "half": [3]}
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


def test_a_folder_with_a_name_like_a_glob_can_contain_checkpoints(tmp_path):
    folder = tmp_path / "[a] *"
    folder.mkdir()
    prefix = write(folder, 3)
    store.copy_checkpoint(prefix, str(folder / store.BEST))
    assert newest_usable(RunFolder(str(folder))) == prefix
    names = [
        name + suffix for name in ("model.ckpt-3", store.BEST) for suffix in (DATA_SUFFIX, ".index")
    ]
    assert names_in(folder) == sorted(names)


def test_copies_have_all_shards_and_are_atomic(tmp_path):
    prefix = write(tmp_path, 3)
    best = str(tmp_path / store.BEST)
    store.copy_checkpoint(prefix, best)
    ours, theirs = read_all(best), read_all(prefix)
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value)
    assert len(names_in(tmp_path)) == 4


def test_checkpoints_are_saved_copied_listed_and_removed_in_remote_folders(tmp_path):
    folder = f"file://{tmp_path}"
    for step in (1, 20, 3):
        save_checkpoint(f"{folder}/model.ckpt-{step}", random_arrays(SHAPES, step))
    store.copy_checkpoint(f"{folder}/model.ckpt-20", f"{folder}/{store.BEST}")
    keep_newest(folder, 2)
    assert RunFolder(folder).checkpoints() == {n: f"{folder}/model.ckpt-{n}" for n in (3, 20)}
    change(tmp_path / f"model.ckpt-20{DATA_SUFFIX}", flip)
    assert newest_usable(RunFolder(folder)) == f"{folder}/model.ckpt-3"
    np.testing.assert_array_equal(
        read_all(f"{folder}/{store.BEST}")["a"], random_arrays(SHAPES, 20)["a"]
    )
    prefixes = ("model.ckpt-20.damaged", "model.ckpt-3", store.BEST)
    suffixes = (DATA_SUFFIX, ".index")
    assert names_in(tmp_path) == [prefix + suffix for prefix in prefixes for suffix in suffixes]


def test_the_error_of_a_file_system_is_one_line(tmp_path, monkeypatch):
    def fail(**arguments):
        raise tf.errors.UnavailableError(None, None, "connection lost [Op:SaveV2]")

    monkeypatch.setattr(tf.raw_ops, "SaveV2", fail)
    with pytest.raises(
        OSError, match=r"ckpt-1: the checkpoint cannot be written: connection lost\."
    ):
        save_checkpoint(f"file://{tmp_path}/model.ckpt-1", random_arrays(SHAPES))


def test_the_newest_checkpoints_are_kept(tmp_path):
    for step in (0, 3, 20, 100):
        write(tmp_path, step)
    best = write(tmp_path, 20, store.BEST)
    assert checkpoints_in(tmp_path) == [0, 3, 20, 100]
    keep_newest(tmp_path, 0)
    assert checkpoints_in(tmp_path) == [0, 3, 20, 100]
    keep_newest(tmp_path, 2)
    assert checkpoints_in(tmp_path) == [20, 100]
    assert read_all(best)["global_step"] == 20


def test_the_newest_checkpoint_is_used_if_it_is_not_damaged(tmp_path):
    assert newest_usable(RunFolder(str(tmp_path))) is None
    assert newest_usable(RunFolder(str(tmp_path / "none"))) is None
    for step in (3, 20, 100):
        write(tmp_path, step)
    before = names_in(tmp_path)
    assert newest_usable(RunFolder(str(tmp_path))) == str(tmp_path / "model.ckpt-100")
    assert names_in(tmp_path) == before


@pytest.mark.parametrize("edit", [cut, flip, empty, None])
@pytest.mark.parametrize("suffix", [DATA_SUFFIX, ".index"])
def test_a_damaged_newest_checkpoint_is_skipped(tmp_path, caplog, edit, suffix):
    for step in (3, 20, 100):
        prefix = write(tmp_path, step)
    if edit:
        change(prefix + suffix, edit)
    else:
        os.remove(prefix + suffix)
    is_gone = edit is None and suffix == ".index"  # it is none any more, so there is no warning
    with caplog.at_level("WARNING", logger="absl"):
        assert newest_usable(RunFolder(str(tmp_path))) == str(tmp_path / "model.ckpt-20")
    assert (f"{prefix} is damaged" in caplog.text) != is_gone
    # Later ones are kept in its place, and nothing of the user is gone.
    assert checkpoints_in(tmp_path) == [3, 20]
    write(tmp_path, 60)
    keep_newest(tmp_path, 1)
    assert checkpoints_in(tmp_path) == [60]
    damaged = [name for name in names_in(tmp_path) if name.startswith("model.ckpt-100.")]
    assert len(damaged) == (2 if edit else 1)


def test_damaged_checkpoints_are_set_aside_unless_there_are_no_others(tmp_path, caplog):
    prefixes = [write(tmp_path, step) for step in (3, 20, 100)]
    change(prefixes[0] + DATA_SUFFIX, flip)
    assert store.set_aside_damaged(prefixes[1:], has_others=False) == prefixes[1:]
    assert store.set_aside_damaged(prefixes, has_others=False) == prefixes[1:]
    assert f"{prefixes[0]} is damaged (" in caplog.text
    change(prefixes[1] + ".index", cut)
    before = names_in(tmp_path)
    with pytest.raises(ValueError, match=r"(?s)no checkpoint can be read:.*model\.ckpt-20: "):
        store.set_aside_damaged(prefixes[1:2], has_others=False)
    assert names_in(tmp_path) == before
    assert store.set_aside_damaged(prefixes[1:2], has_others=True) == []
    assert checkpoints_in(tmp_path) == [100]


def test_damaged_checkpoints_are_skipped_unless_all_are_damaged(tmp_path):
    for step in (3, 20, 100):
        write(tmp_path, step)
    for step in (20, 100):
        change(tmp_path / f"model.ckpt-{step}.index", empty)
    assert newest_usable(RunFolder(str(tmp_path))) == str(tmp_path / "model.ckpt-3")
    change(tmp_path / f"model.ckpt-3{DATA_SUFFIX}", flip)
    with pytest.raises(ValueError, match=r"(?s)no checkpoint can be read:.*ckpt-3: .*backup"):
        newest_usable(RunFolder(str(tmp_path)))
    assert checkpoints_in(tmp_path) == [3]
