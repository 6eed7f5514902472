"""Object stores that run on this machine, for tests."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time

import fsspec
import pytest

from tests.conftest import free_ports

GS_CODE = (
    "import sys; from gcp_storage_emulator.server import create_server; "
    "create_server('127.0.0.1', int(sys.argv[1]), in_memory=True, default_bucket='bucket').run()"
)
# Scheme → packages, the program of a server, and the variables that lead fsspec to it.
STORES = {
    "s3": (
        ("s3fs", "moto", "flask", "flask_cors"),
        ("-m", "moto.server", "-H", "127.0.0.1", "-p"),
        {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": "{}",
        },
    ),
    "gs": (
        ("gcsfs", "gcp_storage_emulator"),
        ("-c", GS_CODE),
        {"STORAGE_EMULATOR_HOST": "{}", "GOOGLE_CLOUD_PROJECT": "test"},
    ),
}
# The emulator has no gRPC, by which gcsfs asks for the kind of a bucket; read when it is imported.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")


@contextlib.contextmanager
def running(scheme):
    """Runs the object store of a scheme, with the bucket `bucket`; fsspec finds it."""
    packages, command, variables = STORES[scheme]
    for package in packages:
        pytest.importorskip(package)
    (port,) = free_ports(1)
    with (
        subprocess.Popen(
            [sys.executable, *command, str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONWARNINGS": "ignore"},
        ) as process,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in variables.items():
            patch.setenv(name, value.format(f"http://127.0.0.1:{port}"))
        try:
            wait_for_server(process, port)
            fsspec.get_filesystem_class(scheme).clear_instance_cache()  # of an earlier one
            if scheme == "s3":
                fsspec.filesystem("s3").mkdir("bucket")
            yield
        finally:
            process.kill()


def wait_for_server(process, port):
    until = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        assert process.poll() is None, "the server has ended"
        assert time.monotonic() < until
        time.sleep(0.1)
