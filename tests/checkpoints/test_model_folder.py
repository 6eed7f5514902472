"""Finding checkpoints, configs and vocabularies by their names."""

from __future__ import annotations

import pytest

from albert_tf.checkpoints.model_folder import SHARDS, ModelFolder, ModelPath, find_checkpoint
from albert_tf.checkpoints.run_folder import DATA_SUFFIX


def make(folder, *names):
    """Creates empty files; for a name without a suffix, those of a checkpoint.

    A name with a slash is that of a file in a subfolder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        is_checkpoint = not path.suffix or path.suffix.startswith(".ckpt")
        for suffix in (DATA_SUFFIX, ".index") if is_checkpoint else ("",):
            (folder / (name + suffix)).touch()
    return str(folder / names[0])


@pytest.mark.parametrize("ending", ["", ".index", DATA_SUFFIX, ".meta"])
def test_a_prefix_is_found_by_any_of_its_files(tmp_path, ending):
    prefix = make(tmp_path, "model.ckpt-7")
    assert find_checkpoint(prefix + ending) == prefix


def test_the_only_checkpoint_of_a_folder_is_found_despite_the_text_file(tmp_path):
    prefix = make(tmp_path, "model.ckpt-7", ".model.ckpt-8-1a2b3c4d.index")
    text = 'model_checkpoint_path: "/home/somebody/model.ckpt-125000"\n'
    (tmp_path / "checkpoint").write_text(text)
    assert find_checkpoint(str(tmp_path)) == prefix
    assert find_checkpoint(f"file://{tmp_path}") == f"file://{prefix}"


def test_the_best_or_else_the_newest_checkpoint_of_a_run_is_used(tmp_path):
    assert make(tmp_path, "model.ckpt-10", "model.ckpt-7") == find_checkpoint(str(tmp_path))
    assert make(tmp_path, "model.ckpt-best") == find_checkpoint(str(tmp_path))


def test_a_run_that_was_stopped_after_the_checkpoint_that_is_used_is_said(tmp_path, caplog):
    first = make(tmp_path, "model.ckpt-0")
    make(tmp_path, "model.ckpt-interrupted_62")
    for _ in range(2):
        assert find_checkpoint(str(tmp_path)) == first
    said = "model.ckpt-0 is used, but the run went on to model.ckpt-interrupted_62"
    assert caplog.text.count(said) == 1
    for later in ("model.ckpt-100", "model.ckpt-best"):
        assert make(tmp_path, later) == find_checkpoint(str(tmp_path))
    assert caplog.text.count("is used") == 1


@pytest.mark.parametrize("inside", ["", "saved_model"])
def test_the_newest_export_is_used(tmp_path, inside):
    for name in ("99", "100", "tensors"):
        make(tmp_path / inside / name / "variables", "variables")
        make(tmp_path / inside / name, "saved_model.pb")
    (tmp_path / inside / "101").mkdir()  # not an export
    newest = f"{tmp_path / inside}/100"
    assert find_checkpoint(str(tmp_path)) == f"{newest}/variables/variables"
    assert ModelPath(str(tmp_path)).folder.path == newest
    checkpoint = make(tmp_path, "model.ckpt-7")
    assert find_checkpoint(str(tmp_path)) == checkpoint
    assert ModelPath(str(tmp_path)).folder.path == str(tmp_path)


def test_of_a_model_in_several_formats_safetensors_is_used(tmp_path):
    others = ("pytorch_model.bin", "training_args.bin", "optimizer.pt", "rng_state.pth")
    shards = make(tmp_path, SHARDS, *others)
    assert find_checkpoint(str(tmp_path)) == shards
    assert make(tmp_path, "model.safetensors") == find_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("names", "path", "said"),
    [
        (["albert_model.ckpt", "x.safetensors"], "", "choose one: albert_model.ckpt, x.safetens"),
        (["notes.txt"], "", r"contains no checkpoint\. Expected: a TensorFlow"),
        (
            ["checkpoint-9/x", "checkpoint-20/x", "checkpoint-last/x"],
            "",
            r"checkpoint itself, but in 2 folders, checkpoint-9 to checkpoint-20: pass .*-20\. ",
        ),
        (
            ["model.safetensors", "adapter_model.safetensors"],
            "",
            r"has an adapter, .* next to model\.safetensors\. Merge .*, or choose model\.saf",
        ),
        (
            ["a.keras"],
            "a.keras",
            r"a\.keras is a file of Keras, .* Load it with .* and save it with",
        ),
        (["a.h5"], "", r"contains no checkpoint, but a\.h5, a file of Keras, .*save it with"),
        (
            ["notes.txt"],
            "model.ckpt-9",
            r"ckpt-9: no such checkpoint\. .* has none\. Expected: a Te",
        ),
        (["b.ckpt.index"], "model.ckpt-9", r"ckpt-9: no such checkpoint\. .* has 'b\.ckpt'$"),
        (
            ["notes.txt"],
            "none/model.ckpt-9",
            r"There is no folder .*none either\. Expected: a TensorFlow",
        ),
    ],
)
def test_no_checkpoint_or_several_are_refused(tmp_path, names, path, said):
    make(tmp_path, *names)
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        find_checkpoint(str(tmp_path / path))


def test_an_unset_variable_and_a_name_of_the_hub_are_recognized(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"/ has none\. The shell variable before the"):
        find_checkpoint("/no.ckpt-best")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"albert download me/my-model\.v2 --hub"):
        find_checkpoint("me/my-model.v2")


def test_files_with_other_settings_and_old_configs_are_no_further_configs(tmp_path):
    (tmp_path / "config_mine.json").write_text('{"hidden_size": 8}')
    (tmp_path / "config_sentence_transformers.json").write_text('{"prompts": {}}')
    assert ModelFolder(str(tmp_path)).config_file == f"{tmp_path}/config_mine.json"
    (tmp_path / "config_old.json").write_text('{"hidden_size": 12}')
    with pytest.raises(ValueError, match=r"several configs; .*_mine\.json, .*_old\.json$"):
        _ = ModelFolder(str(tmp_path)).config_file
    (tmp_path / "config.json").write_text('{"hidden_size": 16}')
    assert ModelFolder(str(tmp_path)).config_file == f"{tmp_path}/config.json"


def test_config_and_vocabulary_are_found_in_a_folder_or_its_assets(tmp_path):
    make(tmp_path / "assets", "30k-clean.model")
    (tmp_path / "assets" / "albert_config.json").write_text("{}")
    assert ModelFolder(str(tmp_path)).vocabulary == (None, f"{tmp_path}/assets/30k-clean.model")
    remote = f"file://{tmp_path}"
    assert ModelFolder(remote).config_file == f"{remote}/assets/albert_config.json"
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: .*none"):
        _ = ModelFolder(f"{tmp_path}/none").config_file


def test_the_folder_of_a_model_and_its_records_are_found(tmp_path):
    export = tmp_path / "1700000000"
    (export / "assets.extra").mkdir(parents=True)
    prefix = make(export / "variables", "variables")
    assert ModelPath(prefix).folder.path == str(export / "variables")
    make(export, "saved_model.pb")
    assert ModelPath(prefix).folder.path == ModelPath(str(export)).folder.path == str(export)
    assert ModelFolder(str(export)).records.path == str(export / "assets.extra")
    run = make(tmp_path, "model.ckpt-7")
    assert ModelPath(run).folder.path == str(tmp_path) == ModelFolder(str(tmp_path)).records.path
