"""Released models are downloaded from a server on this machine, and found by their names."""

from __future__ import annotations

import concurrent.futures
import errno
import http.server
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
import zipfile

import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints import download as module
from albert_tf.checkpoints import finding, loading, releases
from albert_tf.checkpoints.download import download
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.cli import download as program
from albert_tf.cli import flags
from albert_tf.finetuning import model_files
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.training import session
from albert_tf.training.settings import RunSettings
from tests.conftest import ROOT, free_ports
from tests.inference.conftest import write_folder

NAME, PATH = "albert_base_v2", "/albert_models/albert_base_v2.tar.gz"
CHECKED = "albert_base_v1"  # its checksums are in the table


class Server(http.server.ThreadingHTTPServer):
    """Serves `contents`, path → bytes, and counts the bytes that it sends."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.contents = {}
        self.has_ranges = True
        self.cuts = []  # after how many bytes to close the next connections
        self.requests = []  # (path, Range, bytes sent)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        content, wanted, start = self.server.contents.get(self.path), self.headers.get("Range"), 0
        if content is None:
            return self.send_error(404)
        if wanted and self.server.has_ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206 if start < len(content) else 416)
            shown = f"{start}-{len(content) - 1}" if start < len(content) else "*"
            self.send_header("Content-Range", f"bytes {shown}/{len(content)}")
        else:
            self.send_response(200)
        body = content[start:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        sent = body[: self.server.cuts.pop(0)] if self.server.cuts else body
        self.wfile.write(sent)
        self.server.requests.append((self.path, wanted, len(sent)))
        return None


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


def zipped(folder, **others):
    """A .zip as albert_zh's, without a folder at the top, but with one that macOS adds."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path in folder.iterdir():
            archive.write(path, path.name)
        archive.writestr("__MACOSX/._albert_config.json", b"fork")
        for name, content in others.items():
            archive.writestr(name, content)
    return data.getvalue()


@pytest.fixture(name="server")
def run_server(tmp_path, monkeypatch, model):
    """A mirror, which is used by default, and an empty cache folder."""
    monkeypatch.setenv(finding.CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0)
    monkeypatch.chdir(tmp_path)
    with Server() as server:
        server.contents[PATH] = tar(model)
        monkeypatch.setenv(module.BASE_URL, server.url)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def installed(tmp_path):
    """What is in the cache folder, lock files aside."""
    return {path.name for path in (tmp_path / "cache").iterdir() if path.suffix != ".lock"}


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_model_is_downloaded_once(server, tmp_path, model, caplog):
    caplog.set_level("INFO", "absl")
    folder = download(NAME)
    assert folder == str(tmp_path / "cache" / NAME)
    assert contents(tmp_path / "cache" / NAME) == contents(model)
    assert f"{NAME}: all 32 tensors can be read, but the checksums" in caplog.text
    assert installed(tmp_path) == {NAME}
    assert download(NAME) == folder
    assert server.requests == [(PATH, None, len(server.contents[PATH]))]


def test_a_zip_and_a_module_of_tf_hub_are_unpacked(server, tmp_path, model):
    server.contents["/albert_zh/albert_tiny_489k.zip"] = zipped(model)
    server.contents["/google/albert_base/1"] = tar(model)
    assert contents(tmp_path / download("albert_tiny_489k")) == contents(model)
    folder = download("https://tfhub.dev/google/albert_base/1")
    assert folder == str(tmp_path / "cache" / "google/albert_base/1")
    assert contents(tmp_path / folder) == contents(model)


def test_a_mirror_may_be_a_local_folder(tmp_path, model):
    archive = tmp_path / "mirror" / PATH[1:]
    archive.parent.mkdir(parents=True)
    archive.write_bytes(tar(model))
    folder = download(NAME, cache_dir=str(tmp_path / "c"), base_url=f"file://{tmp_path}/mirror/")
    assert contents(tmp_path / folder) == contents(model)


def test_only_the_rest_is_requested_after_a_cut_connection(server, tmp_path, model):
    server.cuts = [1000, 500]
    download(NAME)
    size = len(server.contents[PATH])
    assert server.requests == [
        (PATH, None, 1000),
        (PATH, "bytes=1000-", 500),
        (PATH, "bytes=1500-", size - 1500),
    ]
    assert contents(tmp_path / "cache" / NAME) == contents(model)


def test_a_later_call_continues_where_an_earlier_one_stopped(server, tmp_path, model):
    server.cuts = [100] * module._ATTEMPTS
    with pytest.raises(ConnectionError, match=r"cut 5 times. Run the same command again"):
        download(NAME)
    assert installed(tmp_path) == {f".{NAME}.part"}
    download(NAME)
    assert server.requests[-1] == (PATH, "bytes=500-", len(server.contents[PATH]) - 500)
    assert contents(tmp_path / "cache" / NAME) == contents(model)


@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_complete_archive_is_not_received_again(server, tmp_path, has_ranges):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / f".{NAME}.part").write_bytes(server.contents[PATH])
    server.has_ranges = has_ranges
    download(NAME)
    size = len(server.contents[PATH])
    assert [sent for *_, sent in server.requests] == [0 if has_ranges else size]


def test_a_server_without_ranges_restarts_the_file(server, tmp_path, model):
    server.cuts, server.has_ranges = [1000], False
    download(NAME)
    assert [sent for *_, sent in server.requests] == [1000, len(server.contents[PATH])]
    assert contents(tmp_path / "cache" / NAME) == contents(model)


def test_a_part_longer_than_the_file_is_dropped(server, tmp_path, model):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / f".{NAME}.part").write_bytes(server.contents[PATH] + b"x")
    download(NAME)
    assert contents(tmp_path / "cache" / NAME) == contents(model)


@pytest.fixture(name="known")
def make_known(server, model, monkeypatch):
    """A table in which the checksums of the tiny model are those of a release."""
    tensors = loading.read_weights(str(model))
    crcs = {name: releases.checksum(value) for name, value in tensors.items()}
    row = releases.Release(CHECKED, "ALBERT", crcs, f"https://example.org{PATH}")
    monkeypatch.setattr(releases, "table", lambda: (row,))
    return tensors


def test_the_tensors_of_a_release_are_compared(known, tmp_path, caplog):
    caplog.set_level("INFO", "absl")
    download(CHECKED)
    assert f"{CHECKED}; all {len(known)} tensors match the release" in caplog.text


def test_other_tensors_are_refused_and_downloaded_again(server, known, tmp_path, model):
    good, other = server.contents[PATH], tmp_path / "other"
    other.mkdir()
    altered = known["bert/pooler/dense/bias"]
    save_checkpoint(
        str(other / "model.ckpt-best"),
        known | {"bert/pooler/dense/bias": np.nextafter(altered, np.float32(9))},
    )
    server.contents[PATH] = tar(other)
    message = r"altered bert/pooler/dense/bias\n.*archive was removed, and nothing was installed"
    with pytest.raises(ValueError, match=message):
        download(CHECKED)
    assert installed(tmp_path) == set()
    server.contents[PATH] = good
    assert contents(tmp_path / download(CHECKED)) == contents(model)
    assert [wanted for _, wanted, _ in server.requests] == [None, None]


def test_another_model_is_not_the_release(server, tmp_path):
    server.contents["/albert_models/albert_base_v1.tar.gz"] = server.contents[PATH]
    with pytest.raises(ValueError, match="no tensor matches a known release"):
        download(CHECKED)
    assert installed(tmp_path) == set()


def member(name, kind=tarfile.REGTYPE, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    ("unsafe", "reason"),
    [
        (member("albert_base/../../evil"), "outside of the folder"),
        (member("/tmp/evil"), "outside of the folder"),
        (member("albert_base/evil", tarfile.SYMTYPE, "/etc"), "a link"),
        (member("albert_base/evil", tarfile.LNKTYPE, "albert_base/toy.model"), "a link"),
        (member("albert_base/evil", tarfile.CHRTYPE), "a device"),
        (member("albert_base/evil", tarfile.FIFOTYPE), "a device"),
    ],
)
def test_an_unsafe_archive_is_refused_before_anything_is_written(
    server, tmp_path, model, monkeypatch, unsafe, reason
):
    server.contents[PATH] = tar(model, unsafe)
    monkeypatch.setattr(module.shutil, "copyfileobj", None)
    with pytest.raises(ValueError, match=f"refused to unpack '{unsafe.name}', which is {reason}"):
        download(NAME)
    assert installed(tmp_path) == set()


@pytest.mark.parametrize(
    ("name", "mode", "reason"),
    [("../evil", 0o100644, "outside of the folder"), ("evil", 0o120777, "a link")],
)
def test_an_unsafe_zip_is_refused(server, tmp_path, model, name, mode, reason):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    data = io.BytesIO(zipped(model))
    with zipfile.ZipFile(data, "a") as archive:
        archive.writestr(info, "/etc")
    server.contents["/albert_zh/albert_tiny_489k.zip"] = data.getvalue()
    with pytest.raises(ValueError, match=f"refused to unpack '{name}', which is {reason}"):
        download("albert_tiny_489k")
    assert installed(tmp_path) == set()


@pytest.mark.parametrize("damage", ["text", "cut", "flipped"])
def test_a_damaged_archive_is_refused(server, tmp_path, damage):
    good = server.contents[PATH]
    middle = len(good) // 2
    server.contents[PATH] = {
        "text": b"<html>Not Found</html>",
        "cut": good[:middle],
        "flipped": good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :],
    }[damage]
    with pytest.raises(ValueError, match=r"damaged.*\n.*nothing was installed"):
        download(NAME)
    assert installed(tmp_path) == set()


def test_an_archive_without_a_model_is_refused(server, tmp_path):
    (tmp_path / "empty").mkdir()
    server.contents[PATH] = tar(tmp_path / "empty")
    with pytest.raises(ValueError, match="contains no checkpoint"):
        download(NAME)
    assert installed(tmp_path) == set()


def raise_full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_while_downloading(patch):
    class Full(io.BytesIO):
        write = raise_full

    patch.setattr(module, "open", lambda *_: Full(), raising=False)
    return "downloading"


def full_while_unpacking(patch):
    def write_half(source, target, _):
        target.write(source.read(10))
        raise_full()

    patch.setattr(module.shutil, "copyfileobj", write_half)
    return "unpacking"


def little_space(patch):
    usage = module.shutil.disk_usage("/")._replace(free=1000)
    patch.setattr(module.shutil, "disk_usage", lambda _: usage)
    return "downloading"


@pytest.mark.parametrize("fill", [full_while_downloading, full_while_unpacking, little_space])
def test_a_full_disk_leaves_no_model(server, tmp_path, model, fill):
    with pytest.MonkeyPatch.context() as patch:
        message = rf"No space left.*: {fill(patch)} {NAME} needs [\d,]+ bytes, [\d,]+ were free"
        with pytest.raises(OSError, match=message) as caught:
            download(NAME)
    assert caught.value.filename.startswith(str(tmp_path / "cache"))
    assert installed(tmp_path) <= {f".{NAME}.part"}
    assert contents(tmp_path / download(NAME)) == contents(model)


def test_an_absent_archive_and_an_absent_server_are_one_line(server, tmp_path):
    with pytest.raises(OSError, match=rf"^{server.url}/albert_models/\S+: the server answered 404"):
        download("albert_large_v2")
    (port,) = free_ports(1)
    with pytest.raises(ConnectionError, match=r"^cannot reach \S+: Connection refused\. .+$"):
        download(NAME, base_url=f"http://127.0.0.1:{port}")
    assert installed(tmp_path) == set()


def test_two_calls_at_once_download_a_model_once(server):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first, second = pool.map(download, [NAME, NAME])
    assert first == second
    assert len(server.requests) == 1


def test_invalid_arguments_are_explained(tmp_path):
    with pytest.raises(ValueError, match=r"not a released model. Did you mean 'albert_base_v2'"):
        download("albert-base-v3")
    with pytest.raises(ValueError, match=r"is not a released model.*--hub"):
        download("textattack/albert-base-v2-imdb")
    with pytest.raises(ValueError, match=r"Expected one of albert_base_v1, .*google/albert_base/1"):
        download("gpt")
    with pytest.raises(ValueError, match="local folders only"):
        download(NAME, cache_dir="gs://bucket/cache")
    with pytest.raises(ValueError, match="expected http://, https:// or file://"):
        download(NAME, cache_dir=str(tmp_path), base_url="mirror")


@pytest.fixture(name="cached")
def cache_model(server, model):
    """The cached folder of NAME; another download would fail."""
    folder = download(NAME)
    server.contents.clear()
    return folder


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
    found = model_files.complete(settings)
    assert found.albert_config_file == f"{cached}/albert_config.json"
    assert found.spm_model_file == f"{cached}/toy.model"
    run = RunSettings(output_dir="out", init_checkpoint=NAME)
    run.check_paths()
    assert session.weights_folder(run) == cached


def test_a_module_is_found_by_its_address(server, model, tmp_path):
    handle = "https://tfhub.dev/google/albert_base/1"
    settings = FineTuningSettings(output_dir="out", albert_hub_module_handle=handle)
    with pytest.raises(FileNotFoundError, match="albert download google/albert_base/1"):
        model_files.find_model_files(settings)
    server.contents["/google/albert_base/1"] = tar(model)
    download(handle)
    found = model_files.find_model_files(settings)
    assert found.init_checkpoint == str(tmp_path / "cache/google/albert_base/1")


def test_a_folder_or_checkpoint_of_the_name_takes_precedence(cached, tmp_path, model, caplog):
    caplog.set_level("INFO", "absl")
    for path in model.iterdir():
        (tmp_path / path.name.replace("model.ckpt-best", NAME)).write_bytes(path.read_bytes())
    assert finding.find_checkpoint(NAME) == NAME
    (tmp_path / NAME).symlink_to(model)
    assert finding.find_checkpoint(NAME) == f"{NAME}/model.ckpt-best"
    assert "downloaded" not in caplog.text


def test_a_model_that_is_not_there_names_the_command(server):
    message = rf"^{NAME}: no such file or folder, .* albert download {NAME}$"
    for use in (albert_tf.from_pretrained, albert_tf.load_predictor, finding.find_checkpoint):
        with pytest.raises(FileNotFoundError, match=message):
            use(NAME)
    with pytest.raises(FileNotFoundError, match=r"albert download albert_tiny_zh_google$"):
        finding.folder_of("albert_tiny_zh")
    assert not server.requests


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
        lambda: model_files.complete(settings),
        lambda: RunSettings(output_dir="out", init_checkpoint=name).with_config(),
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


def test_a_missing_model_is_one_line_in_a_shell(server):
    done = albert("check-release", f"--input={NAME}")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert done.stderr.endswith(f"Download it: albert download {NAME}\n")


@pytest.mark.ci
def test_the_commands_in_a_shell(server):
    done = albert("download", NAME)
    assert done.stdout == f"{finding.cache_directory()}/{NAME}\n", done.stderr
    done = albert("predict", f"--model_dir={NAME}", "--text=The river")
    assert len(json.loads(done.stdout)["embedding"]) == 12, done.stderr
