"""Files on object stores: servers on this machine, reached over HTTP."""

from __future__ import annotations

import errno
import glob
import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from albert_tf import files
from tests import object_stores


def write(path, content):
    with files.write_atomically(path, "wb") as stream:
        stream.write(content)


def test_the_error_for_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    files.check_path("file:///a")
    for scheme, package, extra in (("s3", "s3fs", "s3"), ("gs", "gcsfs", "gcs")):
        message = rf"^--x: {scheme}://b/a: {scheme}:// requires {package}: pip .*\[{extra}\]'$"
        with pytest.raises(ValueError, match=message):
            files.check_path(f"{scheme}://b/a", "--x")


def test_the_error_without_hadoop_is_one_line():
    with pytest.raises(OSError, match=r"lib(jvm|hdfs).*: 'hdfs://host:9000/a'$") as caught:
        files.exists("hdfs://host:9000/a")
    assert len(str(caught.value)) < 400


def test_an_uploaded_folder_is_complete_or_absent(tmp_path):
    target = f"file://{tmp_path}/out"
    with files.new_directory(target, "--output") as folder:
        os.makedirs(os.path.join(folder, "variables"))
        for name in ("saved_model.pb", "variables/index"):
            with open(os.path.join(folder, name), "w") as stream:
                stream.write(name)
        assert not files.exists(target)
    assert files.list_directory(target) == ["saved_model.pb", "variables"]
    with files.local_copy(target) as copied, open(os.path.join(copied, "variables/index")) as found:
        assert found.read() == "variables/index"
    with pytest.raises(KeyError), files.new_directory(f"{target}2", "--output"):
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
    files.make_directory(f"{bucket}/a", "--output_dir")
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
    before = files.version(f"{bucket}/a/e.txt")
    write(f"{bucket}/a/e.txt", b"new")
    assert files.version(f"{bucket}/a/e.txt") != before
    files.remove(f"{bucket}/a/e.txt")
    assert files.list_directory(f"{bucket}/a") == ["[1].txt", "b", "d.txt"]
    files.remove_tree(f"{bucket}/a")
    assert not files.exists(f"{bucket}/a")


@pytest.mark.slow
def test_a_missing_bucket_is_named(scheme):
    message = rf"--x: '{scheme}://none/\*' matches no file \({scheme}://none does not exist\)\."
    with pytest.raises(ValueError, match=message):
        files.expand_patterns(f"{scheme}://none/*", "--x")
    with pytest.raises(ValueError, match=rf"^--x: cannot write to '{scheme}://none/o': .*bucket"):
        files.make_directory(f"{scheme}://none/o", "--x")
    with pytest.raises(FileNotFoundError, match=rf"^{scheme}://none/a: no such file$"):
        files.open_binary(f"{scheme}://none/a")


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


@pytest.fixture(name="short_limits")
def shorten(monkeypatch):
    monkeypatch.setattr(files, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(files, "READ_SECONDS", 0.5)
    object_stores.forget()


@pytest.mark.slow
@pytest.mark.usefixtures("short_limits")
def test_a_server_that_ends_or_hangs_in_the_middle_is_reported():
    with object_stores.s3_server() as server:
        write("s3://bucket/a", bytes(20 << 20))
        with files.open_binary("s3://bucket/a") as stream:
            assert stream.read(1) == b"\0"
            server.send_signal(signal.SIGSTOP)
            with pytest.raises(OSError, match=r"(?i)timeout.*: 's3://bucket/a'$"):
                stream.read()
            server.send_signal(signal.SIGCONT)
            server.kill()
            server.wait()
            with pytest.raises(OSError, match=r"connect.*run the same command.*: 's3://bucket/a'$"):
                stream.read()
        with pytest.raises(
            ValueError, match=r"^--output_dir: cannot write to 's3://bucket': .*conn"
        ):
            files.make_directory("s3://bucket", "--output_dir")


@pytest.mark.slow
@pytest.mark.usefixtures("short_limits")
def test_a_server_that_never_answers_is_reported():
    object_stores.require("s3fs")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with object_stores.environment(object_stores.S3_KEYS | {"AWS_ENDPOINT_URL": url}):
            begin = time.monotonic()
            with pytest.raises(OSError, match=r"(?i)timeout.*network.*: 's3://bucket/a'$"):
                files.exists("s3://bucket/a")
            assert time.monotonic() - begin < 60


@pytest.mark.slow
def test_missing_credentials_are_reported(tmp_path):
    object_stores.require("s3fs")
    nowhere = {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "no"),
        "AWS_CONFIG_FILE": str(tmp_path / "no"),
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    }
    message = r"credentials.*AWS_ACCESS_KEY_ID.*s3://b/a'$"
    with object_stores.environment(nowhere), pytest.raises(PermissionError, match=message):
        files.exists("s3://b/a")


class Refusing(http.server.BaseHTTPRequestHandler):
    """Answers like Google Cloud Storage to a request without credentials."""

    def do_GET(self):
        content = b'{"error": {"code": 401, "message": "Anonymous caller has no access"}}'
        self.send_response(401)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


@pytest.mark.slow
def test_missing_google_credentials_are_reported_at_once(tmp_path, monkeypatch):
    object_stores.require("gcsfs")
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "NO_GCE_CHECK"):
        monkeypatch.delenv(name, raising=False)
    message = r"Anonymous caller.*, and log in with `gcloud .*: 'gs://bucket/a'$"
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as store,
    ):
        threading.Thread(target=store.serve_forever, daemon=True).start()
        nowhere = {
            "HOME": str(tmp_path),
            "CLOUDSDK_CONFIG": str(tmp_path),
            "GCE_METADATA_IP": f"127.0.0.1:{silent.getsockname()[1]}",
            "STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{store.server_port}",
        }
        with object_stores.environment(nowhere):
            begin = time.monotonic()
            with pytest.raises(PermissionError, match=message):
                files.exists("gs://bucket/a")
            assert time.monotonic() - begin < 10
        store.shutdown()


@pytest.mark.slow
def test_a_wrong_key_is_reported(monkeypatch):
    monkeypatch.setenv("INITIAL_NO_AUTH_ACTION_COUNT", "0")  # moto checks keys
    with object_stores.s3_server(buckets=()):
        with pytest.raises(PermissionError, match=r"Forbidden.*Check that you may .*s3://bucket/a"):
            files.exists("s3://bucket/a")
        with pytest.raises(ValueError, match=r"^--x: cannot write to 's3://bucket/o': .*Access"):
            files.make_directory("s3://bucket/o", "--x")


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


def test_errors_of_the_file_system_name_the_path(tmp_path):
    with pytest.raises(OSError, match=f"No such file.*: 'file://{tmp_path}/none'$") as caught:
        files.remove(f"file://{tmp_path}/none")
    assert caught.value.errno == errno.ENOENT
