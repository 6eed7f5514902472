"""Files that are replaced together: what a kill leaves at any moment, and what is left alone."""

from __future__ import annotations

import os
import shutil

import pytest

from albert_tf import files
from tests.file_events import folders_at_each_event

NAMES = ("config", "labels", "weights")


def write(folder, text):
    with files.replacing(str(folder), ["notes.txt"]) as new:
        for name in NAMES:
            with open(f"{new}/{name}", "w", encoding="utf-8") as stream:
                stream.write(text)


def read(folder):
    """The contents of the files that count, all of which are there or none."""
    place = files.current(str(folder))
    texts = []
    for name in NAMES:
        if os.path.exists(f"{place}/{name}"):
            with open(f"{place}/{name}", encoding="utf-8") as stream:
                texts.append(stream.read())
    assert len(texts) in (0, len(NAMES))
    with open(f"{place}/notes.txt", encoding="utf-8") as stream:
        assert stream.read() == "mine"
    return set(texts)


@pytest.fixture(name="folder")
def make_folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    return folder


@pytest.fixture(params=[True, False], ids=["links", "copies"])
def links(request, monkeypatch):
    """Whether the file system gives a file a second name."""
    if not request.param:

        def link(source, target):
            raise PermissionError(1, "Operation not permitted", source)

        monkeypatch.setattr(os, "link", link)
    return request.param


def test_a_kill_leaves_all_old_files_or_all_new_ones(folder, tmp_path, links):
    write(folder, "old")
    found = []
    for place in folders_at_each_event(folder, tmp_path / "at", lambda: write(folder, "new")):
        unchanged, *more = folders_at_each_event(place, tmp_path / "read", lambda p=place: read(p))
        assert not more, "reading writes nothing"
        found.append(read(unchanged))
        finish = lambda p=place: files.finish_replacing(str(p))  # noqa: E731
        for again in folders_at_each_event(place, tmp_path / "again", finish):
            assert read(again) == found[-1]
        assert read(place) == found[-1]
        write(place, "third")  # removes what is left
        assert sorted(path.name for path in place.iterdir()) == [*NAMES[:2], "notes.txt", NAMES[2]]
        shutil.rmtree(tmp_path / "again")
        shutil.rmtree(tmp_path / "read")
    assert found.count({"old"}) >= 4
    assert found.count({"new"}) >= 4
    assert len(found) == found.count({"old"}) + found.count({"new"})
    assert found == sorted(found, key=[{"old"}, {"new"}].index)


def test_files_that_stay_are_not_written_again(folder, links):
    before = (folder / "notes.txt").stat()
    write(folder, "new")
    after = (folder / "notes.txt").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_an_error_leaves_the_old_files(folder):
    write(folder, "old")

    def fail():
        with files.replacing(str(folder)) as new:
            (folder / new / "config").write_text("new")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert read(folder) == {"old"}
    assert len(list(folder.iterdir())) == 4


def test_what_an_earlier_version_has_half_moved_is_not_read_but_finished(folder):
    write(folder, "old")
    (folder / "config").write_text("new")
    hidden = folder / ".replacing-0a1b2c3d"
    hidden.mkdir()
    for name in NAMES[1:]:
        (hidden / name).write_text("new")
    (hidden / "complete").touch()
    with pytest.raises(ValueError, match=r"model: saving a model here was interrupted.*-0a1b2c3d"):
        read(folder)
    files.finish_replacing(str(folder))
    assert read(folder) == {"new"}
    assert not hidden.exists()
