"""Whether the installed TensorFlow can use a TPU, before it is imported.

The subprocess runs a module `tensorflow` of the test, which ends or waits as TensorFlow does with a
libtpu of another release, or without a TPU.
"""

from __future__ import annotations

import os
import sys
import types
from importlib import metadata

import pytest

from albert_tf import classification
from albert_tf.training import installation
from albert_tf.training.settings import DeviceSettings

TPU = DeviceSettings(use_tpu=True)


def install(monkeypatch, tmp_path, size=5):
    """A package tensorflow-tpu 2.20.0 whose library has 5 bytes, or those of another package."""
    folder = tmp_path / "tensorflow_tpu-2.20.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: tensorflow-tpu\nVersion: 2.20.0\n")
    (folder / "RECORD").write_text("tensorflow/libtensorflow_cc.so.2,sha256=x,5\n")
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "libtensorflow_cc.so.2").write_bytes(b"x" * size)
    monkeypatch.syspath_prepend(tmp_path)


def import_runs(monkeypatch, tmp_path, code):
    """Makes the import of TensorFlow in the subprocess run some code; libtpu is installed."""
    (tmp_path / "tensorflow" / "__init__.py").write_text(code)
    monkeypatch.setenv("TPU_LIBRARY_PATH", "libtpu.so")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)


def test_other_packages_than_tensorflow_tpu_are_refused(monkeypatch, tmp_path):
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.files("tensorflow-tpu")  # these tests run with the ordinary package
    command = r"uninstall -y tensorflow; .* tensorflow-tpu==2\.20\.0"
    for settings in (TPU, DeviceSettings(distribution="tpu", tpu_name="local")):
        with pytest.raises(ValueError, match=command):
            installation.check(settings)
    install(monkeypatch, tmp_path, size=6)
    with pytest.raises(ValueError, match=command):
        installation.check(TPU)


def test_a_program_is_refused_before_tensorflow_is_imported(tmp_path, monkeypatch):
    monkeypatch.setattr(installation, "_has_tpu_build", lambda: False)
    monkeypatch.setattr(classification.Settings, "check_paths", lambda settings: None)
    settings = classification.Settings(
        task_name="lcqmc",
        data_dir="data",
        output_dir=str(tmp_path),
        albert_config_file="config.json",
        vocab_file="vocab.txt",
        use_tpu=True,
    )
    monkeypatch.delitem(sys.modules, "albert_tf.finetuning.run", raising=False)
    with pytest.raises(ValueError, match="no TPU operations"):
        classification.run(settings)
    assert "albert_tf.finetuning.run" not in sys.modules


def test_libtpu_must_be_installed(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path)
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    with pytest.raises(ValueError, match=r"libtpu is not installed\. .* libtpu==0\.0\.20$"):
        installation.check(TPU)


FATAL = "2026-11-24 03:54:13.460737: F external/xla/tpu/fns.inc:12] Configure not available."
NOTE = (
    "2026-11-24 03:56:28.12: I tensorflow/core/tpu/init.cc:138] FindAndLoadTpuLibrary failed with "
    "ABORTED: The TPU is in use by process 7. This is expected if TPU is not used."
)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (f"import os, sys; print({FATAL!r}, file=sys.stderr, flush=True); os.abort()", "Configure"),
        (f"import sys; print({NOTE!r}, file=sys.stderr)", "ABORTED: The TPU is in use by proc"),
        ("", "module 'tensorflow' has no attribute 'distribute'"),
        ("import os; os._exit(7)", "exit status 7"),
    ],
)
def test_a_tpu_that_cannot_be_initialized_is_refused(monkeypatch, tmp_path, code, reason):
    install(monkeypatch, tmp_path)
    import_runs(monkeypatch, tmp_path, code)
    with pytest.raises(ValueError, match=f"cannot be initialized: {reason}"):
        installation.check(TPU)


def test_a_tpu_that_does_not_answer_is_refused_in_time(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path)
    import_runs(monkeypatch, tmp_path, "import time; time.sleep(60)")
    monkeypatch.setattr(installation, "_PROBE_SECONDS", 1)
    with pytest.raises(ValueError, match="not initialized after 1 s"):
        installation.check(TPU)
    installation.check(DeviceSettings(use_tpu=True, tpu_name="local"))  # without a subprocess
    monkeypatch.setitem(sys.modules, "tensorflow", types.ModuleType("tensorflow"))
    installation.check(TPU)


def test_a_tpu_is_initialized_in_a_process_that_has_ended(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path)
    code = f"""
import os, types
tpu = types.SimpleNamespace(initialize_tpu_system=lambda name: open({str(tmp_path / "log")!r}, "w")
    .write(f"{{name}} {{os.getpid()}}"))
tpu = types.SimpleNamespace(experimental=tpu)
resolvers = types.SimpleNamespace(TPUClusterResolver=lambda tpu: tpu)
distribute = types.SimpleNamespace(cluster_resolver=resolvers)
"""
    import_runs(monkeypatch, tmp_path, code)
    installation.check(TPU)
    name, process = (tmp_path / "log").read_text().split()
    assert name == "local"
    assert not os.path.exists(f"/proc/{process}")


@pytest.mark.parametrize("settings", [DeviceSettings(), DeviceSettings(tpu_name="local")])
def test_other_devices_need_no_tpu(settings):
    installation.check(settings)


def test_a_remote_tpu_has_its_own_tensorflow():
    installation.check(DeviceSettings(use_tpu=True, tpu_name="pod"))
