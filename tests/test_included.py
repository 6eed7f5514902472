"""Tests that included configs and recipes are found in a checkout and in an installed package."""

from __future__ import annotations

import pytest

from albert_tf import included
from tests.conftest import ROOT

CONFIGS = ROOT / "configs"


@pytest.fixture(name="installed")
def install(tmp_path, monkeypatch):
    """The folder of an installed package, which contains its configs."""
    recipes = tmp_path / "albert_tf" / "configs" / "recipes"
    recipes.mkdir(parents=True)
    (recipes.parent / "albert_new.json").write_text("{}")
    (recipes / "new_task.flags").write_text("")
    monkeypatch.setattr(included, "_PACKAGE", str(tmp_path / "albert_tf"))
    return recipes.parent


def test_a_name_refers_to_a_file_in_configs():
    assert included.config_file("albert_tiny_zh") == str(CONFIGS / "albert_tiny_zh.json")
    assert included.recipe_file("glue_mrpc") == str(CONFIGS / "recipes" / "glue_mrpc.flags")


def test_an_installed_package_contains_the_files(installed):
    assert included.config_file("albert_new") == str(installed / "albert_new.json")
    assert included.recipe_file("new_task") == str(installed / "recipes" / "new_task.flags")


@pytest.mark.parametrize("path", ["", "model/albert_base", "albert_base.json", "./albert_base"])
def test_a_path_is_unchanged(path):
    assert included.config_file(path) == path
    assert included.recipe_file(path) == path


def test_an_existing_file_takes_precedence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "albert_base").write_text("{}")
    (tmp_path / "albert_large").mkdir()
    assert included.config_file("albert_base") == "albert_base"
    assert included.config_file("albert_large") == "albert_large"


def test_an_error_for_an_unknown_name_lists_the_known_ones(installed):
    reason = "albert_bse: neither a file nor a config of albert_tf, which has albert_new"
    with pytest.raises(FileNotFoundError, match=reason):
        included.config_file("albert_bse")
    with pytest.raises(FileNotFoundError, match="glue: neither a file nor a recipe of albert_tf"):
        included.recipe_file("glue")
