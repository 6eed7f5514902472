"""The package outside of a checkout: its extras, what the wheel holds, and the installed command.

Nothing is downloaded: the fresh environment sees the packages that these tests run with.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from functools import partial

import pytest

import albert_tf
from albert_tf import race
from albert_tf.cli import programs
from tests.conftest import ROOT

PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_every_extra_that_an_error_names_exists():
    """The errors are tested where the packages are used."""
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "albert_tf").rglob("*.py"))
    named = {extra for text in sources for extra in re.findall(r"albert-tf2\[(\w+)\]", text)}
    assert {"hf", "openvino", "web", "zh"} <= named
    assert named <= set(re.findall(r"^(\w+) = \[", PROJECT, re.MULTILINE))


@pytest.mark.parametrize("verb", ["race", "run_race", "run-race"])
def test_albert_starts_a_program_by_its_verb(verb, monkeypatch):
    started = []
    monkeypatch.setattr(programs, "start", lambda settings, *_: started.append(settings))
    monkeypatch.setattr(sys, "argv", ["albert", verb, "--seed=7"])
    programs.main()
    assert started == [race.Settings]
    assert sys.argv == [f"albert {verb.replace('_', '-')}", "--seed=7"]


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [([], "  run-race  "), (["--help"], "  run-race  "), (["--version"], albert_tf.__version__)],
)
def test_albert_lists_its_programs_and_its_version(arguments, printed, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["albert", *arguments])
    with pytest.raises(SystemExit) as ended:
        programs.main()
    assert ended.value.code == 0
    assert printed in capsys.readouterr().out


def test_an_unknown_verb_is_refused_with_the_closest_one(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["albert", "clasifier"])
    with pytest.raises(SystemExit, match=r"'clasifier' is not .*'classifier'"):
        programs.main()


def test_the_image_and_the_citation_agree_with_the_package():
    image = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    (wanted,) = re.findall(r'^    "tensorflow(~\S+)",$', PROJECT, re.MULTILINE)
    assert set(re.findall(r'"tensorflow(?:\[and-cuda\])?(~=[\d.]+)"', image)) == {wanted}
    for extra in re.findall(r"^ARG EXTRAS=(\S+)$", image, re.MULTILINE)[0].split(","):
        assert re.search(rf"^{extra} = \[", PROJECT, re.MULTILINE)
    copied = " ".join(re.findall(r"^COPY (?!--from)(.+) \S+$", image, re.MULTILINE)).split()
    given = (ROOT / "docker" / "Dockerfile.dockerignore").read_text(encoding="utf-8")
    assert sorted(copied) == sorted(re.findall(r"^!(\S+)$", given, re.MULTILINE))
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {albert_tf.__version__}\n" in citation


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that is built from the source distribution."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("packages")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (sdist,) = folder.iterdir()
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--no-index"]
    run(sys.executable, "-m", "pip", "wheel", *options, "-w", folder, sdist)
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_holds_the_package_its_configs_and_nothing_else(wheel):
    expected = {
        f"{place}{path.relative_to(ROOT)}"
        for folder, place in (("albert_tf", ""), ("configs", "albert_tf/"))
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    about = f"albert_tf2-{albert_tf.__version__}.dist-info/"
    with zipfile.ZipFile(wheel) as archive:
        found = archive.namelist()
    assert {name for name in found if not name.startswith(about)} == expected
    assert {f"{about}entry_points.txt", f"{about}licenses/LICENSE"} <= set(found)


@pytest.fixture(scope="module")
def albert(wheel, tmp_path_factory):
    """Runs the command of a fresh environment that has the wheel, outside of the checkout."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    options = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check"]
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # A path alone: the .pth files over there, of editable installs, are not read.
    others = os.path.dirname(os.path.dirname(pytest.__file__))
    (site / "others.pth").write_text(f"{others}\n", encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return partial(run, folder / "venv" / "bin" / "albert", cwd=folder, env=environment)


@pytest.mark.slow
def test_the_installed_command_finds_programs_configs_and_recipes(albert):
    assert albert("--version") == f"albert-tf2 {albert_tf.__version__}\n"
    assert "12 layers of 4096 units" in albert("describe", "albert_xxlarge")
    albert("race", "--flagfile=race_base_v1", "--only_check_args")
