"""Kills of the programs that write folders: the same command ends whole, and nothing is left."""

from __future__ import annotations

import os

import pytest

import albert_tf
from albert_tf import files
from albert_tf.export import convert
from tests.file_events import folders_at_each_event
from tests.inference.conftest import write_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory, config_file, toy_spm_model):
    return write_folder(tmp_path_factory.mktemp("model"), config_file, toy_spm_model)


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("output_format", ["tensorflow", "huggingface"])
def test_a_conversion_that_was_killed_ends_whole(model, tmp_path, output_format):
    def run(folder):
        output = str(folder / "out")
        list(convert.run(convert.Settings(str(model), output, output_format)))

    (tmp_path / "new").mkdir()
    new = tmp_path / "new"
    *kills, whole = folders_at_each_event(new, tmp_path / "at", lambda: run(new))
    expected = content(whole)
    assert len(kills) > 6
    assert all(name.startswith("out/") for name in expected)
    for place in kills:
        if not (place / "out").exists():
            run(place)
        assert content(place) == expected, place
        assert os.listdir(place) == ["out"]


@pytest.mark.ci
def test_an_export_that_was_killed_ends_whole(model, tmp_path):
    def run(folder):
        return albert_tf.export_saved_model(str(model), str(folder), max_seq_length=9)

    (tmp_path / "new").mkdir()
    kills = folders_at_each_event(tmp_path / "new", tmp_path / "at", lambda: run(tmp_path / "new"))
    assert len(kills) > 6
    for place in (kills[0], kills[len(kills) // 2], kills[-2]):  # each takes seconds
        newest = run(place)
        assert albert_tf.load_predictor(newest)("A boat").shape == (12,)
        assert all(name.isdecimal() for name in os.listdir(place)), place


def test_a_directory_that_is_being_written_is_not_abandoned(tmp_path):
    with files.hidden_directory(str(tmp_path), "out", "--output") as first:
        with files.hidden_directory(str(tmp_path), "out", "--output") as second:
            assert os.path.isdir(first)
            assert os.path.isdir(second)
        (tmp_path / ".out-0123abcd.tmp").mkdir()
        (tmp_path / ".out-2-0123abcd.tmp").mkdir()
        (tmp_path / ".output-0123abcd.tmp").mkdir()
        (tmp_path / ".out-4567cdef.tmp").write_text("a file")
        files.remove_abandoned(str(tmp_path), "out")
        assert os.path.isdir(first)
    left = {".out-2-0123abcd.tmp", ".output-0123abcd.tmp", ".out-4567cdef.tmp"}
    assert set(os.listdir(tmp_path)) == left
