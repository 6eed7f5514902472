"""Files that other programs read: they name what is there, and the same versions as the package."""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
import subprocess

import pytest

import albert_tf
from albert_tf import config, tokenization
from albert_tf.data import corpus
from tests.conftest import ROOT


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_image_is_built_from_files_that_docker_is_given():
    kept = re.findall(r"^!(\S+)$", read("docker/Dockerfile.dockerignore"), re.MULTILINE)
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", read("docker/Dockerfile"), re.MULTILINE)
    assert sorted(kept) == sorted(" ".join(copied).split())
    assert all((ROOT / name).exists() for name in kept)
    included = re.findall(r'^"(\S+)" = "albert_tf/', read("pyproject.toml"), re.MULTILINE)
    assert all({name, name.split("/")[0]} & set(kept) for name in included)
    (readme, licenses) = re.findall(
        r'^(?:readme = |license-files = \[)"(.+?)"', read("pyproject.toml"), re.M
    )
    assert {readme, licenses} <= set(kept)


def test_the_image_has_the_tensorflow_and_the_extras_of_the_package():
    versions = set(
        re.findall(r'"tensorflow(?:\[and-cuda\])?(~=[\d.]+)"', read("docker/Dockerfile"))
    )
    (wanted,) = re.findall(r'^    "tensorflow(~\S+)",$', read("pyproject.toml"), re.MULTILINE)
    assert versions == {wanted}
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", read("docker/Dockerfile"), re.MULTILINE)
    for extra in extras.split(","):
        assert re.search(rf"^{extra} = \[", read("pyproject.toml"), re.MULTILINE)


def test_the_operating_systems_are_those_of_tensorflow_text():
    systems = re.findall(r'^    "Operating System :: (.+)",$', read("pyproject.toml"), re.MULTILINE)
    assert systems == ["MacOS", "POSIX :: Linux"]
    assert "on Linux or macOS, with Python 3.10" in read("README.md")


def packages_of(section):
    """The names of the packages that a part of pyproject.toml requires."""
    names = re.findall(r'"([\w.-]+)[^"]*"', section)
    return {name.lower().replace("_", "-") for name in names}


def installed_with(names):
    """These packages and all that they require, extras aside."""
    found, waiting = set(), set(names)
    while waiting:
        found |= (new := waiting - found)
        waiting = set()
        for name in new:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # on other systems
                needed = importlib.metadata.requires(name) or []
                waiting |= packages_of(" ".join(f'"{n}"' for n in needed if "extra ==" not in n))
    return found


def test_extras_install_what_is_not_installed_anyway():
    text = re.sub(r" *#.*", "", read("pyproject.toml"))
    (needed,) = re.findall(r"^dependencies = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    (extras,) = re.findall(r"^\[project\.optional-dependencies\]\n(.*?)^dev =", text, re.M | re.S)
    packages = packages_of(extras)
    assert "jieba" in packages
    packages.remove("tensorflow")  # for its own extra `and-cuda`
    assert not packages & installed_with(packages_of(needed))


@pytest.mark.parametrize(
    ("device", "tensorflow"), [("cpu", "x"), ("gpu", "x[and-cuda]"), ("tpu", "")]
)
def test_the_image_takes_cpu_or_gpu(device, tensorflow, tmp_path):
    # The step of the Dockerfile, with `echo` for the programs that need an image.
    (step,) = re.findall(r"^RUN (case .*?)^\S", read("docker/Dockerfile"), re.MULTILINE | re.DOTALL)
    script = step.replace("\\\n", "").replace("/wheel", str(tmp_path))
    script = re.sub(r"\b(pip|useradd|install --dir|rm -r)", r"echo \1", script)
    (tmp_path / "a.whl").touch()
    done = subprocess.run(
        ["sh", "-c", script],
        env={"DEVICE": device, "EXTRAS": "zh", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    if device == "tpu":
        assert (done.returncode, done.stderr) == (1, "DEVICE=tpu: expected cpu or gpu\n")
        return
    assert done.returncode == 0, done.stderr
    package = tensorflow.replace("x", "tensorflow") + "~=2.20.0"
    assert f"install --no-cache-dir {tmp_path}/a.whl[zh] {package}\n" in done.stdout


def test_the_citation_has_the_version_and_the_license_of_the_package():
    assert f"\nversion: {albert_tf.__version__}\n" in read("CITATION.cff")
    assert "\nlicense: Apache-2.0\n" in read("CITATION.cff")


def test_the_workflow_runs_what_has_to_pass():
    assert "run: .ci/run\n" in read(".github/workflows/ci.yml")
    (versions,) = re.findall(
        r"^ +python: \[(.+)\]$", read(".github/workflows/ci.yml"), re.MULTILINE
    )
    (oldest,) = re.findall(
        r'^requires-python = ">=([\d.]+)"$', read("pyproject.toml"), re.MULTILINE
    )
    assert versions.split(", ")[0] == f'"{oldest}"'
    for version in re.findall(r'"(.+?)"', versions):
        assert f'"Programming Language :: Python :: {version}"' in read("pyproject.toml")


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda p: p.name)
def test_yaml_is_read(path):
    yaml = pytest.importorskip("yaml")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.name in ("bug.yml", "question.yml"):  # a form
        assert content.keys() >= {"name", "description", "body"}
        ids = [part["id"] for part in content["body"]]
        assert len(ids) == len(set(ids))


def test_security_names_the_limits_of_the_code():
    text = read(".github/SECURITY.md")
    for limit in (
        corpus.MAX_SENTENCE_CHARS,
        config._LARGEST_SIZE,
        tokenization.MAX_INPUT_CHARS_PER_WORD,
    ):
        assert f" {limit:,}" in text
