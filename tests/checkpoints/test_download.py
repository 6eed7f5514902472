"""Released models are downloaded from a server on this machine, and found by their names."""

from __future__ import annotations

import dataclasses
import functools
import http.server
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile

import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints import finding, loading, releases
from albert_tf.checkpoints.download import download
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.cli import download as program
from albert_tf.cli import flags
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.training.settings import RunSettings
from tests.conftest import ROOT
from tests.inference.conftest import write_folder

NAME = "albert_base_v2"


@pytest.fixture(scope="module", name="model")
def make_model(tmp_path_factory, config_file, toy_spm_model):
    """The folder of a tiny model."""
    return write_folder(tmp_path_factory.mktemp("model"), config_file, toy_spm_model)


def tar(folder, *members):
    """A .tar.gz as Google's, with a folder at the top; `members` are added."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        archive.add(folder, "albert_base")
        for member in members:
            archive.addfile(member)
    return data.getvalue()


def zipped(folder):
    """A .zip as albert_zh's, without a folder at the top, but with one that macOS adds."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path in folder.iterdir():
            archive.write(path, path.name)
        archive.writestr("__MACOSX/._albert_config.json", b"fork")
    return data.getvalue()


@pytest.fixture(name="cache")
def use_cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv(finding.CACHE, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(name="served")
def serve_releases(tmp_path, monkeypatch, cache):
    """A folder with the archives of two releases of the table, on a local server."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        rows = (
            releases.Release(NAME, "ALBERT", {}, f"{address}/tar"),
            releases.Release("google/albert_base/1", "ALBERT", {}, f"{address}/zip?x=y"),
        )
        monkeypatch.setattr(releases, "table", lambda: rows)
        monkeypatch.setattr(releases, "known_releases", lambda: rows)
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield folder
        server.shutdown()


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.ci
def test_archives_are_downloaded_and_unpacked(served, cache, model, caplog, capsys):
    caplog.set_level("INFO", "absl")
    (served / "tar").write_bytes(tar(model))
    (served / "zip").write_bytes(zipped(model))
    assert download(NAME) == str(cache / NAME)
    assert f"{NAME}: all 32 tensors can be read, but the checksums" in caplog.text
    assert download("google/albert_base/1") == str(cache / "google/albert_base/1")
    (served / "tar").unlink()
    assert download(NAME) == str(cache / NAME)
    for folder in (cache / NAME, cache / "google/albert_base/1"):
        assert contents(folder) == contents(model)
    assert {path.name for path in cache.iterdir()} == {NAME, "google"}
    assert not capsys.readouterr().out  # where the program prints the folder


def test_the_tensors_of_a_release_are_compared(served, cache, model, monkeypatch, tmp_path, caplog):
    caplog.set_level("INFO", "absl")
    tensors = loading.read_weights(str(model))
    crcs = {name: releases.checksum(value) for name, value in tensors.items()}
    row = dataclasses.replace(releases.table()[0], tensors=crcs)
    monkeypatch.setattr(releases, "table", lambda: (row,))
    monkeypatch.setattr(releases, "known_releases", lambda: (row,))
    other = tmp_path / "other"
    other.mkdir()
    altered = np.nextafter(tensors["bert/pooler/dense/bias"], np.float32(9))
    save_checkpoint(str(other / "x"), tensors | {"bert/pooler/dense/bias": altered})
    (served / "tar").write_bytes(tar(other))
    message = r"altered bert/pooler/dense/bias\n.*nothing was installed"
    with pytest.raises(ValueError, match=message):
        download(NAME)
    assert not list(cache.iterdir())
    (served / "tar").write_bytes(tar(model))
    download(NAME)
    assert f"all {len(crcs)} tensors match the release" in caplog.text


def member(name, kind=tarfile.REGTYPE, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


UNSAFE = (
    member("albert_base/../../evil"),
    member("albert_base/evil", tarfile.SYMTYPE, "/etc"),
    member("albert_base/evil", tarfile.LNKTYPE, "../../evil"),
    member("albert_base/evil", tarfile.FIFOTYPE),
)


def test_a_damaged_or_unsafe_archive_is_not_installed(served, cache, model, tmp_path):
    good = tar(model)
    (tmp_path / "empty").mkdir()
    middle = len(good) // 2
    for archive, reason in (
        (b"<html>Not Found</html>", "unsafe or damaged archive"),
        (good[:middle], "unsafe or damaged archive"),
        (good[:-6] + b"other?", "unsafe or damaged archive"),  # the checksum
        (good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :], "unsafe or damaged"),
        (tar(tmp_path / "empty"), "contains no checkpoint"),
        *((tar(model, unsafe), "unsafe or damaged archive") for unsafe in UNSAFE),
    ):
        (served / "tar").write_bytes(archive)
        with pytest.raises(ValueError, match=reason):
            download(NAME)
        assert not list(cache.iterdir())
        assert not (tmp_path / "evil").exists()


def test_what_is_not_on_the_server_is_one_line_and_leaves_nothing(served, cache):
    with pytest.raises(OSError, match=r"^URL fetch failure on http://127\S+/tar: 404 -- File not"):
        download(NAME)
    assert not list(cache.iterdir())


def test_invalid_arguments_are_explained():
    with pytest.raises(ValueError, match=r"not a released model. Did you mean 'albert_base_v2'"):
        download("albert-base-v3")
    with pytest.raises(ValueError, match=r"is not a released model.*--hub"):
        download("textattack/albert-base-v2-imdb")
    with pytest.raises(ValueError, match=r"Expected one of albert_base_v1, .*google/albert_base/1"):
        download("gpt")
    with pytest.raises(ValueError, match="local folders only"):
        download(NAME, cache_dir="gs://bucket/cache")


@pytest.fixture(name="cached")
def cache_model(cache, model):
    """The cached folder of NAME."""
    shutil.copytree(model, cache / NAME)
    return str(cache / NAME)


def test_a_downloaded_model_is_found_by_its_name(cached, caplog):
    caplog.set_level("INFO", "absl")
    model, tokenizer = albert_tf.from_pretrained(NAME)
    assert model(tokenizer(["The river"]))["pooled_output"].shape == (1, 12)
    assert albert_tf.load_predictor(NAME)("The river").shape == (12,)
    assert albert_tf.load_checkpoint(model, NAME).fits
    line = f"{NAME}: using the downloaded model in {cached}"
    assert [record.message for record in caplog.records].count(line) == 1


def test_every_way_to_give_a_checkpoint_accepts_the_name(cached):
    assert finding.find_checkpoint(NAME) == f"{cached}/model.ckpt-best"
    assert finding.folder_of(NAME) == cached
    settings = FineTuningSettings(output_dir="out", init_checkpoint=NAME)
    found = settings.completed()
    assert found.albert_config_file == f"{cached}/albert_config.json"
    assert found.spm_model_file == f"{cached}/toy.model"
    run = RunSettings(output_dir="out", init_checkpoint=NAME)
    run.check_paths()
    assert run.model_folder == cached


def test_a_module_is_found_by_its_address(cache, model):
    handle = "https://tfhub.dev/google/albert_base/1"
    settings = FineTuningSettings(output_dir="out", albert_hub_module_handle=handle)
    with pytest.raises(FileNotFoundError, match="albert download google/albert_base/1"):
        settings.completed()
    shutil.copytree(model, cache / "google/albert_base/1")
    found = settings.completed()
    assert found.init_checkpoint == str(cache / "google/albert_base/1")


def test_a_folder_or_checkpoint_of_the_name_takes_precedence(cached, tmp_path, model, caplog):
    caplog.set_level("INFO", "absl")
    for path in model.iterdir():
        (tmp_path / path.name.replace("model.ckpt-best", NAME)).write_bytes(path.read_bytes())
    assert finding.find_checkpoint(NAME) == NAME
    (tmp_path / NAME).symlink_to(model)
    assert finding.find_checkpoint(NAME) == f"{NAME}/model.ckpt-best"
    assert "downloaded" not in caplog.text


def test_a_model_that_is_not_there_names_the_command(cache):
    message = rf"^{NAME}: no such file or folder, .* albert download {NAME}$"
    for use in (albert_tf.from_pretrained, albert_tf.load_predictor, finding.find_checkpoint):
        with pytest.raises(FileNotFoundError, match=message):
            use(NAME)
    with pytest.raises(FileNotFoundError, match=r"albert download albert_tiny_zh_google$"):
        finding.folder_of("albert_tiny_zh")


@pytest.mark.parametrize(
    "name",
    [
        *("albert-base-v2", "albert/albert-base-v2", "albert_base_v3", "albert-base_v2/"),
        *("albert_bas_v2", "albert/albert-base-v3"),
    ],
)
def test_names_that_people_type_lead_to_the_release(name, tmp_path, monkeypatch):
    monkeypatch.setenv(finding.CACHE, str(tmp_path))
    settings = FineTuningSettings(output_dir="out", init_checkpoint=name)
    for use in (
        lambda: albert_tf.from_pretrained(name),
        lambda: albert_tf.load_predictor(name),
        lambda: finding.find_checkpoint(name),
        settings.completed,
        RunSettings(output_dir="out", init_checkpoint=name).completed,
    ):
        with pytest.raises(FileNotFoundError, match=r"Download it: albert download albert_base_v2"):
            use()


def test_names_of_the_hugging_face_hub_are_those_of_the_downloaded_model(cached):
    for name in ("albert-base-v2", "albert/albert-base-v2"):
        assert finding.folder_of(name) == download(name) == cached


@pytest.mark.parametrize("path", ["out/albert_base_v3", "model.ckpt-7", "albert_model.ckpt"])
def test_another_path_is_not_taken_for_a_name(path):
    assert finding.find_model(path) == path


def test_the_list_says_what_is_in_the_cache(cached):
    lines = program.run(program.Settings()).splitlines()
    (line,) = (line for line in lines if line.startswith(NAME))
    assert line.endswith("11,683,584  ALBERT base v2, English (Google), in the cache")
    assert len([line for line in lines if line.endswith(", in the cache")]) == 1
    assert lines[-1] == f"cache folder: {os.path.dirname(cached)}"


def test_each_model_is_in_the_list_once_before_the_same_weights_on_tf_hub():
    listed = program.run(program.Settings())
    models, modules = (part.splitlines()[1:] for part in listed.split("\n\n")[:2])
    assert len(models) == 18
    assert [line.split()[0].count("/") for line in modules] == [2] * 12
    words = re.split(r"[\s,]+", listed)
    for row in releases.downloadable():
        assert all(words.count(name) == 1 for name in (row.name, *row.aliases))


def test_a_flag_may_follow_the_name():
    settings = flags.parse(program.Settings, [NAME, "--cache_dir=c"])
    assert settings == program.Settings(name=NAME, cache_dir="c")
    with pytest.raises(flags.flags.Error, match="'b' is not a flag"):
        flags.parse(program.Settings, ["a", "b"])


def albert(*arguments):
    command = [sys.executable, "-m", "albert_tf", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_missing_model_is_one_line_in_a_shell(cache):
    done = albert("check-release", f"--input={NAME}")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert done.stderr.endswith(f"Download it: albert download {NAME}\n")


@pytest.mark.ci
def test_the_commands_in_a_shell(cached):
    done = albert("download", NAME)
    assert done.stdout == f"{finding.cache_directory()}/{NAME}\n", done.stderr
    done = albert("predict", f"--model_dir={NAME}", "--text=The river")
    assert len(json.loads(done.stdout)["embedding"]) == 12, done.stderr
