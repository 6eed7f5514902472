"""Releases of TensorFlow's packages that do not fit are named before any of them is imported."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import random
import re
import subprocess
import sys

import pytest

import albert_tf
from albert_tf import tensorflow_packages, tensorflow_releases
from albert_tf.training import settings as training_settings
from albert_tf.training.settings import DeviceSettings
from tests.conftest import ROOT

TF_218 = {"tensorflow": "2.18.1", "tf_keras": "2.18.0", "tensorflow-text": "2.18.1"}


@pytest.fixture(name="install")
def make_install(monkeypatch):
    """A function that makes these packages the only installed ones, as package → version."""

    def install(versions):
        def version(name):
            if name not in versions:
                raise importlib.metadata.PackageNotFoundError(name)
            return versions[name]

        modules = {name.replace("-", "_") for name in versions}
        modules |= {"tensorflow"} if any(n.startswith("tensorflow-") for n in versions) else set()
        modules |= {"official"} if "tf-models-official" in versions else set()
        monkeypatch.setattr(importlib.metadata, "version", version)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name in modules or None)
        monkeypatch.delitem(sys.modules, "tensorflow", raising=False)

    tensorflow_packages.check.cache_clear()
    yield install
    tensorflow_packages.check.cache_clear()


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({}, "TensorFlow is not installed. Run: pip install 'albert-tf2[tf220]'"),
        ({"tensorflow": "2.15.1"}, "TensorFlow 2.15.1 is installed; supported are 2.16 to 2.21. "),
        ({"tensorflow": "2.22.0rc1"}, "TensorFlow 2.22.0rc1 is installed; supported are 2.16 to "),
        (
            {"tensorflow": "2.18.1", "keras": "3.15.1"},
            "tf_keras is not installed, and Keras 3 does not replace it. Run: pip install "
            "'tf_keras~=2.18.0'",
        ),
        (
            {"tensorflow-cpu": "2.17.0", "tf_keras": "2.20.1"},
            "tf_keras 2.20.1 does not fit TensorFlow 2.17.0. Run: pip install 'tf_keras~=2.17.0'",
        ),
    ],
)
def test_packages_that_do_not_fit_are_refused_in_one_line(install, versions, said):
    install(versions)
    line = rf"\A{re.escape(said)}.*\Z"
    with pytest.raises(AttributeError, match=line):
        albert_tf.AlbertEncoder  # noqa: B018
    with pytest.raises(ImportError, match=line):
        exec("from albert_tf import AlbertEncoder")
    assert not hasattr(albert_tf, "AlbertEncoder")
    found = dict(inspect.getmembers(albert_tf))
    assert {"AlbertConfig", "FullTokenizer", "load_predictor"} < found.keys()
    with pytest.raises(ValueError, match=line):
        DeviceSettings().check_paths()


@pytest.mark.parametrize(
    "versions",
    [
        TF_218,
        {"tensorflow": "2.16.1", "tf_keras": "2.16.0"},
        {"tensorflow": "2.21.0", "tf_keras": "2.21.0", "tensorflow-text": "2.21.1"},
        {"tf-nightly": "2.21.0.dev20260101", "tf_keras": "2.21.0"},
        {"tensorflow-tpu": "2.20.0", "tf_keras": "2.20.1"},
    ],
)
def test_packages_of_a_release_fit(install, versions):
    install(versions)
    DeviceSettings().check_paths()


def test_every_supported_release_is_an_extra():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (major, oldest), (_, newest) = tensorflow_packages.OLDEST, tensorflow_packages.NEWEST
    releases = [f"{major}.{minor}" for minor in range(oldest, newest + 1)]
    extras = [f"tf{release.replace('.', '')}" for release in releases]
    assert re.findall(r"^(tf\d+) = ", project, re.MULTILINE) == extras
    for package in ("tensorflow", "tf_keras", "tensorflow-text"):
        assert re.findall(rf'^    "{package}~=(\d+\.\d+)\.', project, re.MULTILINE) == releases
    in_between = f">={releases[0]},<{major}.{newest + 1}"
    assert f'cuda = ["tensorflow[and-cuda]{in_between}"]' in project
    developed_on = "tf{}{}".format(*tensorflow_packages.DEVELOPED_ON)
    assert f"TF ?= {developed_on}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    image = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert f"ARG TENSORFLOW={developed_on}\n" in image


def test_text_is_only_required_by_what_tokenizes_in_a_graph(install):
    install({"tensorflow": "2.18.1", "tf_keras": "2.18.0"})
    said = "^TokenizerLayer requires tensorflow-text: pip install 'tensorflow-text~=2.18.0'$"
    with pytest.raises(AttributeError, match=said):
        albert_tf.TokenizerLayer  # noqa: B018
    with pytest.raises(ImportError, match=said):
        exec("from albert_tf import TokenizerLayer")
    install(TF_218 | {"tensorflow-text": "2.20.1"})
    with pytest.raises(AttributeError, match=r"text 2.20.1 does not fit TensorFlow 2.18.1"):
        albert_tf.TokenizerLayer  # noqa: B018
    install(TF_218)
    tensorflow_packages.require_text("a test")


def test_several_machines_require_the_model_garden_of_any_release(install):
    install(TF_218)
    with pytest.raises(ValueError, match="requires tf-models-official: pip install --no-deps"):
        DeviceSettings(distribution="multi_worker").check_paths()
    install(TF_218 | {"tf-models-official": "2.20.0"})
    DeviceSettings(distribution="multi_worker").check_paths()


@pytest.mark.skipif(sys.platform != "linux", reason="drivers are not looked for elsewhere")
def test_a_gpu_that_cannot_be_there_is_refused_at_once(install, monkeypatch, tmp_path):
    install(TF_218)
    monkeypatch.setattr(training_settings, "_OTHER_FILES", (f"{tmp_path}/*",))
    monkeypatch.setattr(training_settings, "NVIDIA_FILES", ())
    with pytest.raises(ValueError, match=r"^--distribution=mirrored: no driver of a GPU runs"):
        DeviceSettings(distribution="mirrored").check_paths()
    DeviceSettings(distribution="mirrored", num_devices=2).check_paths()
    (tmp_path / "renderD128").touch()
    DeviceSettings(distribution="mirrored").check_paths()


def test_a_program_without_keras_2_ends_with_a_line_and_without_tensorflow(tmp_path):
    (tmp_path / "model.ckpt-best.index").touch()
    code = (
        "import sys; sys.modules['tf_keras'] = None\n"
        "from albert_tf.cli.programs import main\n"
        "import atexit; atexit.register(lambda: print('tensorflow' in sys.modules))\n"
        f"sys.argv = ['albert', 'predict', '--model_dir={tmp_path}', '--text=x']\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == "False\n"
    assert done.stderr.startswith("albert predict: tf_keras is not installed, and Keras 3 does not")
    assert done.stderr.endswith("albert convert --output_format=openvino\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("seed", [3, 5])
def test_seeds_of_layers_are_the_same_in_all_releases(seed):
    backend = pytest.importorskip("tf_keras.src.backend")
    tensorflow_releases.set_random_seed(seed)
    expected = random.Random(seed).randint(1, 10**9)
    assert backend.RandomGenerator()._create_seed(None) == expected
