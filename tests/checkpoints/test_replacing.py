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


def hide(folder, complete, name=".replacing-0a1b2c3d"):
    """A hidden folder as a kill leaves it: complete, with the files "config" and "labels"."""
    hidden = folder / name
    hidden.mkdir()
    for file in NAMES[:2]:
        (hidden / file).write_text("theirs")
    (hidden / "complete").write_text(complete)
    return hidden


def write_again(folder):
    write(folder, "new")


@pytest.mark.parametrize("use", [files.current, files.finish_replacing, write_again])
@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("../bashrc", r"0a1b2c3d/complete names '\.\./bashrc': expected a file in the folder"),
        ("../../bashrc", r"complete names '\.\./\.\./bashrc'"),
        ("{outside}/bashrc", r"complete names '/"),
        ("sub/labels", r"complete names 'sub/labels'"),
        ("..", r"complete names '\.\.'"),
        ("link", r"0a1b2c3d/link: expected a file of an interrupted save, got a link or a folder"),
        ("sub", r"0a1b2c3d/sub: expected a file of an interrupted save, got a link"),
    ],
)
def test_a_damaged_hidden_folder_replaces_nothing(folder, tmp_path, use, named, said):
    write(folder, "old")
    bashrc = tmp_path / "bashrc"
    bashrc.write_text("mine")
    hidden = hide(folder, "config\n" + named.format(outside=tmp_path))
    (hidden / "bashrc").write_text("theirs")
    (hidden / "link").symlink_to(bashrc)
    (hidden / "sub").mkdir()
    (hidden / "sub" / "labels").write_text("theirs")
    with pytest.raises(ValueError, match=said):
        use(str(folder))
    assert bashrc.read_text() == "mine"
    assert (folder / "config").read_text() == "old"
    shutil.rmtree(hidden)
    assert read(folder) == {"old"}


@pytest.mark.parametrize("is_link", [True, False])
def test_only_a_folder_is_a_hidden_folder(folder, tmp_path, is_link):
    """A link to another one is not followed, and neither is removed."""
    write(folder, "old")
    (tmp_path / "other").mkdir()
    elsewhere = hide(tmp_path / "other", "config\nlabels")
    place = folder / ".replacing-99999999"
    if is_link:
        place.symlink_to(elsewhere)
    else:
        place.write_text("mine")
    assert read(folder) == {"old"}
    files.finish_replacing(str(folder))
    write(folder, "new")
    assert read(folder) == {"new"}
    assert place.is_symlink() == is_link
    assert place.exists()
    assert (elsewhere / "labels").read_text() == "theirs"
