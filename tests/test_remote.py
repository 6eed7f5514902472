"""Files on object stores: servers on this machine, reached over HTTP."""

from __future__ import annotations

import glob
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from fsspec.registry import known_implementations

from albert_tf import files
from tests import object_stores


def write(path, content):
    with files.write_atomically(path, "wb") as stream:
        stream.write(content)


UNKNOWN = "zz", {"class": "no_such_package.Files", "err": "pip install zz"}


def test_an_unknown_scheme_and_a_missing_package_are_named(monkeypatch):
    with pytest.raises(ValueError, match=r"^nfs://a/b: Protocol not known: nfs"):
        files.open_binary("nfs://a/b")
    monkeypatch.setitem(known_implementations, *UNKNOWN)
    with pytest.raises(ValueError, match=r"^zz://a/b: pip install zz"):
        files.open_binary("zz://a/b")


def test_an_uploaded_folder_is_complete_or_absent(tmp_path):
    target = f"file://{tmp_path}/out"
    with files.publish_directory(target, "--output") as folder:
        os.makedirs(os.path.join(folder, "variables"))
        for name in ("saved_model.pb", "variables/index"):
            with open(os.path.join(folder, name), "w") as stream:
                stream.write(name)
        assert not files.exists(target)
    assert files.list_directory(target) == ["saved_model.pb", "variables"]
    with files.local_copy(target) as copied, open(os.path.join(copied, "variables/index")) as found:
        assert found.read() == "variables/index"
    with pytest.raises(KeyError), files.publish_directory(f"{target}2", "--output"):
        raise KeyError
    assert not files.exists(f"{target}2")


@pytest.fixture(scope="module", name="scheme", params=["s3", "gs"])
def run_store(request):
    with object_stores.SERVERS[request.param]():
        yield request.param


@pytest.fixture(name="bucket")
def fresh_bucket(scheme, tmp_path):
    return f"{scheme}://bucket{tmp_path}"


@pytest.mark.slow
def test_objects_behave_like_files(bucket, tmp_path):
    # aiohttp warns of larger blocks, which gcsfs sends.
    big = os.urandom(9 << 20 if bucket.startswith("s3") else 9 << 16)
    files.ensure_directory(f"{bucket}/a", "--output_dir")
    assert not files.exists(f"{bucket}/a")
    for name in ("a/b/x.txt", "a/[1].txt", "a/c.txt"):
        write(f"{bucket}/{name}", big)
    assert files.list_directory(f"{bucket}/a") == ["[1].txt", "b", "c.txt"]
    patterns = f"{bucket}/a/*.txt,{glob.escape(f'{bucket}/a/[1].txt')},{bucket}/a/b/x.txt"
    names = [f"{bucket}/a/{name}" for name in ("[1].txt", "c.txt", "b/x.txt")]
    assert files.expand_patterns(patterns, "--input_file") == names
    assert files.is_directory(f"{bucket}/a")
    assert files.file_size(names[0]) == len(big)
    with files.open_binary(names[0]) as stream:
        assert stream.read(5) == big[:5]
        stream.seek(-7, os.SEEK_END)
        assert stream.read() == big[-7:]
        stream.seek(0)
        assert stream.read() == big
    files.rename(names[1], f"{bucket}/a/d.txt")
    files.copy(f"{bucket}/a/d.txt", f"{bucket}/a/e.txt")
    files.copy(f"{bucket}/a/e.txt", str(tmp_path / "local"))
    assert (tmp_path / "local").read_bytes() == big
    write(f"{bucket}/a/e.txt", b"new")
    assert files.read_bytes(f"{bucket}/a/e.txt") == b"new"
    files.remove(f"{bucket}/a/e.txt")
    assert files.list_directory(f"{bucket}/a") == ["[1].txt", "b", "d.txt"]
    files.remove_tree(f"{bucket}/a")
    assert not files.exists(f"{bucket}/a")


@pytest.mark.slow
def test_a_missing_bucket_is_an_error(scheme):
    with pytest.raises((ValueError, FileNotFoundError), match="none"):
        files.expand_patterns(f"{scheme}://none/*", "--x")
    with pytest.raises(FileNotFoundError, match=rf"^{scheme}://none/a: no such file"):
        files.open_binary(f"{scheme}://none/a")
    with pytest.raises(FileNotFoundError):
        write(f"{scheme}://none/a", b"")


@pytest.mark.slow
def test_a_killed_upload_leaves_the_old_file(tmp_path):
    with object_stores.s3_server() as server:
        path = "s3://bucket/out"
        write(path, b"old")
        size = 250 << 20  # several parts of 50 MB
        with open(tmp_path / "content", "wb") as stream:
            stream.truncate(size)
        code = f"from albert_tf import files; files.copy({str(tmp_path / 'content')!r}, {path!r})"
        upload = subprocess.Popen([sys.executable, "-c", code])
        client = object_stores.file_system("s3")
        until = time.monotonic() + 60
        while not (parts := client.call_s3("list_multipart_uploads", Bucket="bucket")).get(
            "Uploads"
        ):
            assert upload.poll() is None, "the upload was too fast"
            assert time.monotonic() < until
        assert parts["Uploads"][0]["Key"] == "out"
        upload.kill()
        assert upload.wait() == -signal.SIGKILL
        assert server.poll() is None
        assert files.list_directory("s3://bucket") == ["out"]
        with files.open_binary(path) as stream:
            assert stream.read() == b"old"


def test_a_forked_process_connects_anew(tmp_path):
    files.copy(__file__, f"file://{tmp_path}/a")
    pid = os.fork()
    if not pid:
        os._exit(0 if files.exists(f"file://{tmp_path}/a") else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_threads_read_at_the_same_time(tmp_path):
    write(f"file://{tmp_path}/a", b"x" * 1000)
    found = []

    def read():
        with files.open_binary(f"file://{tmp_path}/a") as stream:
            found.append(stream.read())

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [b"x" * 1000] * 3
