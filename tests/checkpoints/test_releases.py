"""Released models: recognized by their checksums, downloaded, and found by their names."""

from __future__ import annotations

import dataclasses
import filecmp
import fnmatch
import os
import re
import shutil
import struct
import sys
import tarfile
import types
import zipfile

import numpy as np
import pytest
import tf_keras

import albert_tf
from albert_tf.checkpoints import download as program
from albert_tf.checkpoints import loading, releases
from albert_tf.checkpoints.download import download
from albert_tf.checkpoints.model_folder import ModelPath, find_checkpoint
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.cli import flags
from albert_tf.export import convert
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertEncoder
from albert_tf.training.settings import RunSettings
from tests.checkpoints.checkpoint_samples import ALBERT_ZH, GOOGLE, random_arrays, random_weights
from tests.file_events import folders_at_each_event
from tests.inference.conftest import write_folder

NAME, MODULE = "albert_base_v2", "google/albert_base/1"
BIAS = "bert/pooler/dense/bias"
SHAPES = {"google": GOOGLE, "albert_zh": ALBERT_ZH}


# The table and its checksums


def test_the_table_has_the_sizes_of_the_configs_and_each_name_once():
    rows = releases.downloadable()
    names = [name for row in rows for name in (row.name, *row.aliases)]
    assert len(names) == len(set(names))
    assert len({row.url for row in rows}) == len(rows) == 18 + 12
    for row in rows:
        assert all(releases.named(name) == row for name in (row.name, *row.aliases))
        assert row.url.startswith(("https://storage.googleapis.com/albert_", "https://tfhub.dev/"))
        if row.config:
            config = AlbertConfig.from_json_file(row.config)
            assert row.parameters == config.num_weights
    assert releases.named("albert_tiny_brightmart") is None  # it has no archive


def test_the_table_has_the_checksums_of_the_released_index_files(shared):
    known = [release for release in releases.table() if release.tensors]
    assert len(known) == 9
    for release in known:
        folders = (shared / "released" / name for name in (release.name, *release.aliases))
        (folder,) = (folder for folder in folders if folder.exists())
        rows = dict(
            re.findall(r"^(\S+) \[.*(0x\w+)$", (folder / "variables.txt").read_text(), re.M)
        )
        weights = {name for name in rows if not re.search("adam_[mv]$|^global_step$", name)}
        assert release.tensors == {name: int(rows[name], 16) for name in weights}


def test_a_checksum_is_that_of_tensorflows_index(tmp_path):
    values = random_arrays({"a": (5, 3)})
    save_checkpoint(str(tmp_path / "a"), values)
    crc32c = 6 << 3 | 5  # field 6 of BundleEntryProto, of 32 bits
    entry = struct.pack("<BI", crc32c, releases.checksum(values["a"]))
    assert entry in (tmp_path / "a.index").read_bytes()


# Recognizing


@pytest.fixture(name="known")
def replace_table(monkeypatch):
    """Weights of two releases, one of each family, which are the table."""
    weights = {name: random_weights(config) for name, config in SHAPES.items()}
    table = tuple(
        releases.Release(name, f"ALBERT {name}", {n: releases.checksum(x) for n, x in w.items()})
        for name, w in weights.items()
    )
    monkeypatch.setattr(releases, "table", lambda: table)
    return weights


def saved(folder, weights):
    folder.mkdir(exist_ok=True)
    save_checkpoint(str(folder / "model.ckpt-best"), weights)
    return str(folder)


def test_a_release_is_named_where_it_is_loaded_or_inspected(known, tmp_path, caplog):
    caplog.set_level("INFO", "absl")
    encoder = {name: value for name, value in known["google"].items() if name.startswith("bert/")}
    others = {f"{name}/adam_m": np.zeros_like(value) for name, value in encoder.items()}
    others["global_step"] = np.int64(125000)
    for weights, is_release in (
        (known["google"] | others, True),
        (encoder, True),
        (encoder | {BIAS: encoder[BIAS] + 1}, False),
    ):
        caplog.clear()
        loading.load_checkpoint(AlbertEncoder(GOOGLE), saved(tmp_path, weights))
        assert ("They are those of ALBERT google, google" in caplog.text) == is_release
    saved(tmp_path, known["google"])
    GOOGLE.to_json_file(str(tmp_path / "albert_config.json"))
    *_, last = convert.run(convert.Settings(str(tmp_path), inspect=True))
    assert last == "  all weights are those of ALBERT google, google"


def test_a_small_tensor_tells_other_weights_from_a_release(known, monkeypatch):
    compared, original = [], releases.checksum
    monkeypatch.setattr(releases, "checksum", lambda x: compared.append(x.size) or original(x))
    others = {name: value + 1 for name, value in known["google"].items()}
    large_first = dict(sorted(others.items(), key=lambda item: -item[1].size))
    assert releases.containing(large_first) is None
    assert compared == [min(value.size for value in others.values())]


def test_a_config_that_is_not_that_of_the_release_is_named(known, monkeypatch, tmp_path, caplog):
    GOOGLE.to_json_file(str(tmp_path / "google.json"))
    rows = [dataclasses.replace(r, config=f"{tmp_path}/{r.name}.json") for r in releases.table()]
    monkeypatch.setattr(releases, "table", lambda: rows)
    folder = saved(tmp_path / "model", known["google"])
    for heads in (GOOGLE.num_attention_heads, 2):
        assert not caplog.messages
        config = dataclasses.replace(GOOGLE, num_attention_heads=heads)
        loading.load_checkpoint(AlbertEncoder(config), folder)
    (message,) = caplog.messages
    assert message.startswith("num_attention_heads is 4 in ALBERT google, google (--albert_config")


# Downloading


@pytest.fixture(scope="module", name="model")
def make_model(tmp_path_factory, config_file, toy_spm_model):
    """The folder of a tiny model."""
    return write_folder(tmp_path_factory.mktemp("model"), config_file, toy_spm_model)


@pytest.fixture(name="cache")
def use_cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv(releases.CACHE, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


@pytest.fixture(name="served")
def serve_releases(tmp_path, monkeypatch, cache, model):
    """A folder with the archives of two releases, of which the first has checksums."""
    weights = loading.read_weights(str(model)).items()
    crcs = {name: releases.checksum(value) for name, value in weights}
    rows = (
        releases.Release(NAME, "ALBERT", crcs, f"file://{tmp_path}/served/tar"),
        releases.Release(MODULE, "ALBERT", {}, f"file://{tmp_path}/served/zip"),
    )
    (tmp_path / "served").mkdir()
    monkeypatch.setattr(releases, "table", lambda: rows)
    return tmp_path / "served"


def write_tar(path, folder, *members):
    """A .tar.gz as Google's, with a folder at the top; `members` are added."""
    with tarfile.open(path, mode="w:gz") as archive:
        archive.add(folder, "albert_base")
        for member in members:
            archive.addfile(member)


def write_zip(path, folder):
    """A .zip as albert_zh's, without a folder at the top, but with one that macOS adds."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, file.name)
        archive.writestr("__MACOSX/._albert_config.json", b"fork")


def test_archives_are_downloaded_and_unpacked_once(served, cache, model, caplog, capsys):
    caplog.set_level("INFO", "absl")
    write_tar(served / "tar", model)
    write_zip(served / "zip", model)
    assert program.run(program.Settings(name=NAME)) == str(cache / NAME)
    assert "all 32 tensors match the release" in caplog.text
    assert download(MODULE) == str(cache / MODULE)
    (served / "tar").unlink()
    assert download(NAME) == str(cache / NAME)
    for folder in (cache / NAME, cache / MODULE):
        difference = filecmp.dircmp(folder, model)
        assert difference.same_files == sorted(os.listdir(folder)) == sorted(os.listdir(model))
    assert {path.name for path in cache.iterdir()} == {NAME, "google"}
    assert not capsys.readouterr().out  # where the program prints the folder


def test_other_tensors_than_those_of_the_release_are_not_installed(served, cache, model, tmp_path):
    weights = loading.read_weights(str(model))
    weights[BIAS] = np.nextafter(weights[BIAS], np.float32(9))
    write_tar(served / "tar", saved(tmp_path / "other", weights))
    with pytest.raises(ValueError, match=rf"1 of 32 tensors are .* {BIAS}\n.*nothing was in"):
        download(NAME)
    assert not list(cache.iterdir())


def test_an_archive_of_two_models_is_not_installed(served, cache, model):
    with tarfile.open(served / "tar", mode="w:gz") as archive:
        archive.add(model, "albert_base")
        archive.add(model, "albert_large")
    with pytest.raises(ValueError, match="nothing was installed"):
        download(NAME)
    assert not list(cache.iterdir())


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda good: b"<html>Not Found</html>", "unsafe or damaged archive"),
        (lambda good: good[: len(good) // 2], "unsafe or damaged archive"),
        (lambda good: good[:-6] + b"other?", "unsafe or damaged archive"),  # the checksum
        (
            None,
            r"^URL fetch failure on file://\S+/tar: .*\nWithout .* unpack file:.* so that .*cache/",
        ),
    ],
)
def test_a_damaged_archive_is_not_installed(served, cache, model, damage, said):
    write_tar(served / "tar", model)
    content = (served / "tar").read_bytes()
    (served / "tar").unlink()
    if damage:
        (served / "tar").write_bytes(damage(content))
    with pytest.raises((ValueError, OSError), match=said):
        download(NAME)
    assert not list(cache.iterdir())


@pytest.mark.parametrize(
    ("name", "kind", "target"),
    [
        ("albert_base/../../evil", tarfile.REGTYPE, ""),
        ("albert_base/evil", tarfile.SYMTYPE, "/etc"),
        ("albert_base/evil", tarfile.LNKTYPE, "../../evil"),
    ],
)
def test_an_archive_with_files_outside_of_its_folder_is_not_installed(
    served, cache, model, tmp_path, name, kind, target
):
    outside = tarfile.TarInfo(name)
    outside.type, outside.linkname = kind, target
    write_tar(served / "tar", model, outside)
    with pytest.raises(ValueError, match="unsafe or damaged archive"):
        download(NAME)
    assert not list(cache.iterdir())
    assert not (tmp_path / "evil").exists()


def test_a_model_comes_from_the_hugging_face_hub_on_request(monkeypatch):
    def snapshot_download(repo_id, *, allow_patterns, cache_dir):
        assert (repo_id, cache_dir) == ("albert/albert-base-v2", "here")
        files = ("config.json", "model.safetensors", "spiece.model", "vocab.txt", "tf_model.h5")
        matched = [name for name in files if any(fnmatch.fnmatch(name, p) for p in allow_patterns)]
        assert matched == [*files[:-1]]  # not the same weights in other formats
        return "/cache/snapshot"

    library = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    arguments = ["albert/albert-base-v2", "--hub", "--cache_dir=here"]
    assert program.run(flags.parse(program.Settings, arguments)) == "/cache/snapshot"


# Finding


@pytest.fixture(name="cached")
def cache_model(cache, model):
    """The cached folder of NAME."""
    shutil.copytree(model, cache / NAME)
    return str(cache / NAME)


def test_a_name_of_which_four_fifths_are_those_of_a_release_is_taken_for_it():
    assert "'albert_base_v2'" in releases.suggestion("albert_base_mrpc")  # 0.8
    assert releases.suggestion("my_albert_base") == ""  # 0.79


def test_a_downloaded_model_is_found_by_its_name(cached, caplog):
    caplog.set_level("INFO", "absl")
    model, tokenizer = albert_tf.from_pretrained(NAME)
    assert model(tokenizer(["The river"]))["pooled_output"].shape == (1, 12)
    assert albert_tf.load_predictor(NAME)("The river").shape == (12,)
    assert albert_tf.load_checkpoint(model, NAME).fits
    assert caplog.messages.count(f"{NAME}: using the downloaded model in {cached}") == 1
    assert find_checkpoint(NAME) == f"{cached}/model.ckpt-best"
    for name in (NAME, "albert-base-v2", "albert/albert-base-v2"):
        assert ModelPath(name).folder.path == download(name) == cached
    found = FineTuningSettings(output_dir="out", init_checkpoint=NAME).completed()
    assert found.albert_config_file == f"{cached}/albert_config.json"
    assert found.spm_model_file == f"{cached}/toy.model"
    run = RunSettings(output_dir="out", init_checkpoint=NAME)
    assert run.source.folder == cached


def test_a_module_is_found_by_its_address(cache, model):
    handle = f"https://tfhub.dev/{MODULE}"
    settings = FineTuningSettings(output_dir="out", albert_hub_module_handle=handle)
    with pytest.raises(FileNotFoundError, match=f"albert download {MODULE}"):
        settings.completed()
    shutil.copytree(model, cache / MODULE)
    assert settings.completed().init_checkpoint == str(cache / MODULE)


def test_a_folder_of_the_name_takes_precedence(cached, tmp_path, model):
    (tmp_path / NAME).symlink_to(model)
    assert find_checkpoint(NAME) == f"{NAME}/model.ckpt-best"


@pytest.mark.parametrize(
    ("name", "release"),
    [
        *(("albert/albert-base-v2", NAME), ("albert-base_v2/", NAME)),
        ("albert_tiny_zh", "albert_tiny_zh_google"),
    ],
)
def test_a_model_that_is_not_there_names_the_command(cache, name, release):
    message = rf"^{name}: no such file or folder.*Download it: albert download {release}$"
    for use in (
        find_checkpoint,
        albert_tf.from_pretrained,
        albert_tf.load_predictor,
        lambda name: RunSettings(output_dir="out", init_checkpoint=name).completed(),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            use(name)


def test_a_name_that_is_almost_that_of_a_release_leads_to_it():
    with pytest.raises(FileNotFoundError, match=r"Did you mean 'albert_base_v2'\? Download it: "):
        _ = ModelPath("albert_base_v3").path


def test_another_path_is_not_taken_for_a_name():
    for path in ("out/albert_base_v3", "model.ckpt-7", "albert_model.ckpt"):
        assert ModelPath(path).path == path


def test_the_list_has_each_name_once_and_says_what_is_in_the_cache(cached, cache):
    listed = program.run(program.Settings())
    (line,) = (line for line in listed.splitlines() if line.endswith(", in the cache"))
    assert line.startswith(NAME)
    assert line.endswith("11,683,584  ALBERT base v2, English (Google), in the cache")
    words = re.split(r"[\s,]+", listed)
    assert all(words.count(row.name) == 1 for row in releases.downloadable())
    assert listed.endswith(f"cache folder: {cache}")


def test_a_download_that_was_killed_ends_whole(served, cache, model, tmp_path):
    write_tar(served / "tar", model)
    kills = folders_at_each_event(cache, tmp_path / "at", lambda: download(NAME))
    assert len(kills) > 6
    for place in kills:
        found = download(NAME, cache_dir=str(place))
        assert sorted(os.listdir(found)) == sorted(os.listdir(model))
        assert os.listdir(place) == [NAME]


@pytest.mark.parametrize("is_zip", [False, True])
def test_an_archive_that_unpacks_to_more_than_a_release_has_is_not_installed(
    served, cache, model, tmp_path, is_zip
):
    large = shutil.copytree(model, tmp_path / "large")
    with open(large / "zeros", "wb") as stream:
        stream.truncate(70 << 20)
    name = MODULE if is_zip else NAME
    (write_zip if is_zip else write_tar)(served / ("zip" if is_zip else "tar"), large)
    with pytest.raises(ValueError, match=r"unpacks to 74 MB, and this release has at most 67 MB"):
        download(name)
    assert not [path for path in cache.rglob("*") if path.is_file()]


@pytest.mark.parametrize("is_shown", [False, True])
def test_an_empty_download_is_an_error(served, cache, monkeypatch, is_shown):
    def get_file(name, url, cache_dir, **_):
        with open(os.path.join(cache_dir, name), "wb"):
            pass
        if is_shown:
            raise OverflowError("cannot convert float infinity to integer")  # of Keras' bar
        return os.path.join(cache_dir, name)

    monkeypatch.setattr(tf_keras.utils, "get_file", get_file)
    with pytest.raises(OSError, match="served/tar: the download is empty, and nothing was ins"):
        download(NAME)
    assert not list(cache.iterdir())
