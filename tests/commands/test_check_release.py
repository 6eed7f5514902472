"""The release of a checkpoint, and its recipe run beside the published result."""

from __future__ import annotations

import re
import shutil

import pytest

from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.commands import check_release
from albert_tf.commands.check_release import Settings, command_line, measured, read_recipe
from albert_tf.config import AlbertConfig
from tests.checkpoints.checkpoint_samples import random_weights
from tests.conftest import ROOT, TINY_SHAPE

RECIPES = sorted(path.stem for path in (ROOT / "configs" / "recipes").glob("*.flags"))


@pytest.fixture(name="model")
def make_model(tmp_path):
    """A folder as albert_zh's archives, with a toy model."""
    folder = tmp_path / "albert_tiny"
    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"今天气好吗不"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    shape = {"vocab_size": len(words), "max_position_embeddings": 128, "type_vocab_size": 2}
    config = AlbertConfig(**TINY_SHAPE | shape)
    config.to_json_file(str(folder / "albert_config_tiny.json"))
    save_checkpoint(str(folder / "albert_model.ckpt"), random_weights(config))
    return folder


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_read(name):
    recipe = read_recipe(name)
    assert (ROOT / f"{recipe.command}.py").is_file()
    assert re.search(r"\d", recipe.published)
    assert "output_dir" in recipe.flags


def test_no_recipe_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"a recipe of albert_tf, which has .*glue_mrpc"):
        read_recipe("mrpc")
    (tmp_path / "x.flags").write_text("--task_name=mrpc\n")
    with pytest.raises(ValueError, match=r"x\.flags is not a recipe: its comments must name"):
        read_recipe(str(tmp_path / "x.flags"))


def test_a_folder_of_data_needs_a_task():
    with pytest.raises(ValueError, match="--data_dir and --output_dir require --task"):
        Settings(input="x", data_dir="lcqmc")


def test_the_recipe_is_run_with_this_model_and_these_folders(model):
    settings = Settings(input=str(model), task="lcqmc_tiny", data_dir="d", output_dir="o")
    command = command_line(settings, read_recipe("lcqmc_tiny"))
    assert command[1:3] == ["-m", "albert_tf.commands.run_classifier"]
    assert command[-5:] == [
        f"--init_checkpoint={model}/albert_model.ckpt",
        f"--albert_config_file={model}/albert_config_tiny.json",
        f"--vocab_file={model}/vocab.txt",
        "--output_dir=o",
        "--data_dir=d",
    ]
    assert "--learning_rate=1e-4" in command
    assert len([flag for flag in command if flag.startswith("--init_checkpoint")]) == 1


def test_the_files_of_squad_are_taken_from_the_folder(model):
    settings = Settings(input=str(model), task="squad_v1_base_v1", data_dir="d")
    command = command_line(settings, read_recipe("squad_v1_base_v1"))
    assert command[-2:] == ["--train_file=d/train-v1.1.json", "--predict_file=d/dev-v1.1.json"]


def test_results_are_those_of_the_run(tmp_path):
    run_record.record_results(str(tmp_path), {"eval": {"eval_accuracy": 0.854321, "step": 3}})
    assert measured(str(tmp_path)) == "eval: eval_accuracy 0.8543"


@pytest.mark.slow
def test_published_and_measured_are_printed_side_by_side(model, tmp_path, capsys):
    data = tmp_path / "lcqmc"
    data.mkdir()
    rows = "".join(f"今天{'好' * (n % 5)}\t天气{'不' * (n % 3)}\t{n % 2}\n" for n in range(70))
    for split in ("train", "dev", "test"):
        (data / f"{split}.txt").write_text(rows, encoding="utf-8")
    out = tmp_path / "out"
    text = check_release.run(
        Settings(input=str(model), task="lcqmc_tiny", data_dir=str(data), output_dir=str(out))
    )
    assert "no tensor matches a known release" in capsys.readouterr().out
    published, result = text.splitlines()
    assert published.startswith("published  accuracy 85.4 on the test set (albert_zh")
    assert re.search(r"^measured   .*eval: .*eval_accuracy 0\.\d+", result)
    assert "test" in result
    shutil.rmtree(data)
    with pytest.raises(ChildProcessError, match="the run failed"):
        check_release.run(Settings(input=str(model), task="lcqmc_tiny", data_dir=str(data)))
