"""The file of a split is found in the folder of a dataset."""

import pytest

from albert_tf.finetuning import split_files


def test_a_split_has_one_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"contains no dev\.txt or dev\.tsv"):
        split_files.find_file(str(tmp_path), "dev", (".txt", ".tsv"))
    (tmp_path / "dev.tsv").write_text("a")
    assert split_files.find_file(str(tmp_path), "dev", (".txt", ".tsv")) == str(
        tmp_path / "dev.tsv"
    )
    (tmp_path / "dev.txt").write_text("a")
    with pytest.raises(ValueError, match=r"dev\.txt and dev\.tsv: keep only one"):
        split_files.find_file(str(tmp_path), "dev", (".txt", ".tsv"))


def test_the_first_of_several_files_is_only_taken_where_it_is_meant(tmp_path):
    names = ("CoLA/dev.tsv", "dev.tsv")
    assert split_files.find_name(str(tmp_path), names) is None
    (tmp_path / "dev.tsv").write_text("a")
    assert split_files.find_name(str(tmp_path), names) == "dev.tsv"
    (tmp_path / "CoLA").mkdir()
    (tmp_path / "CoLA" / "dev.tsv").write_text("a")
    assert split_files.find_name(str(tmp_path), names, takes_first=True) == "CoLA/dev.tsv"
    with pytest.raises(ValueError, match=r"contains CoLA/dev\.tsv and dev\.tsv: keep only one"):
        split_files.find_name(str(tmp_path), names)
