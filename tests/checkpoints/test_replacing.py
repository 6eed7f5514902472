"""Files that are replaced together: what a kill leaves at any moment, and what is left alone."""

from __future__ import annotations

import shutil

import pytest

from albert_tf import files
from tests.file_events import folders_at_each_event

NAMES = ("config", "labels", "weights")


def write(folder, text):
    with files.replacing(str(folder)) as new:
        for name in NAMES:
            with open(f"{new}/{name}", "w", encoding="utf-8") as stream:
                stream.write(text)


def read(folder):
    """The contents of the files after whatever is left to do was done, and the hidden folders."""
    files.finish_replacing(str(folder))
    texts = {(folder / name).read_text() for name in NAMES if (folder / name).exists()}
    assert not texts or all((folder / name).exists() for name in NAMES)
    return texts


@pytest.fixture(name="folder")
def make_folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    return folder


def test_a_kill_leaves_all_old_files_or_all_new_ones(folder, tmp_path):
    write(folder, "old")
    found = []
    for place in folders_at_each_event(folder, tmp_path / "at", lambda: write(folder, "new")):
        for again in folders_at_each_event(place, tmp_path / "again", lambda p=place: read(p)):
            found.append(read(again))
        assert read(place) == found[-1]
        assert (place / "notes.txt").read_text() == "mine"
        write(place, "third")  # removes what is left
        assert sorted(path.name for path in place.iterdir()) == [*NAMES[:2], "notes.txt", NAMES[2]]
        shutil.rmtree(tmp_path / "again")
    assert found.count({"old"}) >= 4
    assert found.count({"new"}) >= 4
    assert len(found) == found.count({"old"}) + found.count({"new"})
    assert found == sorted(found, key=[{"old"}, {"new"}].index)


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
