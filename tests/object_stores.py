"""Object stores for tests: server processes on this machine, reached over HTTP as in a cloud."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time

import fsspec
import pytest

from tests.conftest import free_ports

# The emulator has no gRPC, by which gcsfs asks for the kind of a bucket; read when it is imported.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

S3_KEYS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
}
SECONDS = 60


def require(*modules):
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"requires the package {module}")


@contextlib.contextmanager
def server(*command):
    """Runs a server whose last argument is its port, and yields the process and the URL."""
    (port,) = free_ports(1)
    with subprocess.Popen(
        [sys.executable, *command, str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
    ) as process:
        try:
            until = time.monotonic() + SECONDS
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                assert process.poll() is None, "the server has ended"
                assert time.monotonic() < until
                time.sleep(0.1)
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


@contextlib.contextmanager
def s3_server(buckets=("bucket",)):
    """Yields the process of an S3 server with these buckets; sets the environment."""
    require("s3fs", "moto", "flask", "flask_cors")
    with (
        server("-m", "moto.server", "-H", "127.0.0.1", "-p") as (process, url),
        environment(S3_KEYS | {"AWS_ENDPOINT_URL": url}),
    ):
        for bucket in buckets:
            file_system("s3").mkdir(bucket)
        yield process


@contextlib.contextmanager
def gs_server():
    """Yields the process of a GCS server with the bucket `gs://bucket`; sets the environment."""
    require("gcsfs", "gcp_storage_emulator")
    code = (
        "import sys, time; from gcp_storage_emulator.server import create_server; "
        "create_server('127.0.0.1', int(sys.argv[1]), in_memory=True, default_bucket='bucket')"
        ".run()"
    )
    with (
        server("-c", code) as (process, url),
        environment({"STORAGE_EMULATOR_HOST": url, "GOOGLE_CLOUD_PROJECT": "test"}),
    ):
        yield process


SERVERS = {"s3": s3_server, "gs": gs_server}


@contextlib.contextmanager
def environment(variables):
    """Sets environment variables, also for the file systems that fsspec has in its cache."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        forget()
        yield
    forget()


def forget():
    """Makes fsspec connect anew."""
    for scheme in ("s3", "gs"):
        with contextlib.suppress(ImportError):
            fsspec.get_filesystem_class(scheme).clear_instance_cache()


def file_system(scheme):
    return fsspec.filesystem(scheme)
