"""The models in configs/, of Google's shapes and published sizes, and how their names are found."""

from __future__ import annotations

import pytest

from albert_tf.cli.flags import recipe_file
from albert_tf.files import paths
from albert_tf.model.config import AlbertConfig, config_file
from albert_tf.model.costs import count_parameters
from tests.conftest import ROOT

PATHS = sorted((ROOT / "configs").glob("*.json"))
SIZES = ("base", "large", "xlarge", "xxlarge")
ENGLISH = [f"albert_{size}{version}" for size in SIZES for version in ("", "_v2")]
CHINESE = [f"albert_{size}_zh" for size in ("tiny", "small", *SIZES)]

# (encoder and pooler) as published, and with the two pre-training heads where it was.
PUBLISHED = {
    "albert_base": (11_683_584, None),
    "albert_large": (17_683_968, None),
    "albert_xlarge": (58_724_864, None),
    "albert_xxlarge": (222_595_584, None),
    "albert_tiny_zh": (4_080_520, 4_142_594),
    "albert_small_zh": (4_742_272, 4_813_706),
    "albert_base_zh": (10_547_968, 10_669_322),
    "albert_large_zh": (16_548_352, 16_702_986),
    "albert_xlarge_zh": (57_589_248, 57_877_002),
    "albert_xxlarge_zh": (221_459_968, 222_013_962),
}


def load(name):
    return AlbertConfig.from_json_file(name)


def differences(first, second):
    """The values of the second config that are others in the first."""
    before, after = load(first).to_dict(), load(second).to_dict()
    return {key: after[key] for key in before if before[key] != after[key]}


def test_every_released_shape_is_there_with_googles_keys(tmp_path):
    own = ["albert_demo", "albert_mini_en", "albert_small_en"]
    assert {path.stem for path in PATHS} == {*ENGLISH, *CHINESE, *own}
    for path in PATHS:
        load(str(path)).to_json_file(str(tmp_path / "again.json"))
        assert path.read_text() == (tmp_path / "again.json").read_text()


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_counts_are_the_published_ones(name):
    encoder, with_heads = PUBLISHED[name]
    assert load(name).num_weights == encoder
    assert with_heads in (None, count_parameters(load(name)))


@pytest.mark.parametrize("size", SIZES)
def test_version_2_and_the_chinese_models_differ_where_googles_do(size):
    first, second, chinese = f"albert_{size}", f"albert_{size}_v2", f"albert_{size}_zh"
    assert load(first).vocab_size == 30000
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    assert differences(first, second) == ({} if size == "xxlarge" else no_dropout)
    own = {"base": {"hidden_act": "relu"}, "xxlarge": {"num_attention_heads": 16}}
    assert differences(second, chinese) == {"vocab_size": 21128, **own.get(size, {})}
    for name in CHINESE:
        assert no_dropout.items() <= load(name).to_dict().items(), name


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("albert_base", "albert_base_en_v1"),
        ("albert_large", "albert_large_en_v1"),
        ("albert_base_zh", "albert_base_zh_google"),
        ("albert_small_zh", "albert_small_zh_google"),
    ],
)
def test_configs_agree_with_the_files_inside_the_released_models(name, folder, shared):
    released = shared / "released" / folder / "albert_config.json"
    assert load(name) == load(str(released))


def test_a_name_is_that_of_an_included_file_unless_there_is_such_a_file(tmp_path, monkeypatch):
    configs = ROOT / "configs"
    assert config_file("albert_tiny_zh") == str(configs / "albert_tiny_zh.json")
    assert recipe_file("glue_mrpc") == str(configs / "recipes" / "glue_mrpc.flags")
    for path in ("", "model/albert_base", "albert_base.json", "./albert_base"):
        assert config_file(path) == recipe_file(path) == path
    monkeypatch.chdir(tmp_path)
    (tmp_path / "albert_base").write_text("{}")
    assert config_file("albert_base") == "albert_base"


def test_an_installed_package_has_its_own_copy_and_lists_it(tmp_path, monkeypatch):
    recipes = tmp_path / "configs" / "recipes"
    recipes.mkdir(parents=True)
    (recipes.parent / "albert_new.json").write_text("{}")
    (recipes / "new_task.flags").write_text("")
    monkeypatch.setattr(paths, "_PACKAGE", str(tmp_path))
    assert config_file("albert_new") == str(recipes.parent / "albert_new.json")
    assert recipe_file("new_task") == str(recipes / "new_task.flags")
    for find in (config_file, recipe_file):
        with pytest.raises(FileNotFoundError, match=r"bse: neither .* has (albert_new|new_task)$"):
            find("bse")
