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
from packaging.requirements import Requirement

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

import albert_tf
from albert_tf import data, inference, pretraining, race
from albert_tf.checkpoints import download, huggingface
from albert_tf.cli import programs
from albert_tf.data import beam, chinese_words, sources
from albert_tf.inference.settings import PredictorSettings
from albert_tf.model.tokenization import load_tokenizer
from albert_tf.settings import fields_of
from tests.conftest import ROOT, TINY_SHAPE

PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def lowest_release(requirement):
    (lowest,) = (x.version for x in requirement.specifier if x.operator in (">=", "~="))
    return lowest


def test_the_lowest_releases_that_are_tested_are_those_of_pyproject():
    project = tomllib.loads(PROJECT)["project"]
    extras = project["optional-dependencies"] | {"": project["dependencies"]}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    tested = re.findall(r"^LOWEST_EXTRAS := \.\[(\S+)\]$", makefile, re.MULTILINE)[0].split(",")
    expected = {
        requirement.name: lowest_release(requirement)
        for extra in ["", *tested]
        for requirement in map(Requirement, extras[extra])
    }
    lines = (ROOT / ".ci" / "lowest.txt").read_text(encoding="utf-8").splitlines()
    assert dict(x.split("==") for x in lines if x and not x.startswith("#")) == expected
    for requirements in extras.values():
        assert all(lowest_release(Requirement(text)) for text in requirements)


def load_hugging_face_tokenizer(path):
    (path / "tokenizer.json").write_text("{}")
    load_tokenizer(str(path / "tokenizer.json"))


def write_hugging_face(path):
    huggingface.save_hugging_face(str(path), {}, albert_tf.AlbertConfig(**TINY_SHAPE))


def read_zstandard(path):
    (path / "text.txt.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    with sources.open_source(str(path / "text.txt.zst")):
        pass


RUN = {"input_file": "a", "output_dir": "b"}
SPLIT = {"input_file": "a", "output_file": "b", "split_sentences": True}


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("tokenizers", "hf", load_hugging_face_tokenizer),
        ("tokenizers", "hf", write_hugging_face),
        ("huggingface_hub", "hf", lambda _: download.download_from_hub("a/b")),
        ("backports.zstd", "zstd", read_zstandard),
        ("wandb", "wandb", lambda _: pretraining.Settings(**RUN, report_to="wandb")),
        ("sentencex", "sentences", lambda _: data.Settings.make(**SPLIT)),
        ("gradio", "web", lambda _: inference.Settings(model_dir="a", web=True).check_paths()),
        ("jieba", "zh", lambda _: chinese_words.load_segmenter()),
        ("apache_beam", "beam", lambda _: beam._import_beam()),
        ("openvino", "openvino", lambda _: PredictorSettings(engine="openvino")),
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_installs_it(
    package, extra, use, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=re.escape(f"pip install 'albert-tf2[{extra}]'")):
        use(tmp_path)
    assert re.search(rf"^{extra} = \[", PROJECT, re.MULTILINE)


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_every_program_has_settings_and_help(name):
    module = programs.PROGRAMS[name].load()
    assert callable(module.run)
    assert re.search(r"^    (albert|python) ?[\w/.-]* .*--\w+", module.__doc__, re.M)
    assert fields_of(module.Settings)


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


def test_the_image_and_the_citation_agree_with_the_package():
    image = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    extras = ",".join(re.findall(r"^ARG (?:EXTRAS|TENSORFLOW)=(\S+)$", image, re.MULTILINE))
    for extra in [*extras.split(","), "cuda"]:
        assert re.search(rf"^{extra} = \[", PROJECT, re.MULTILINE)
    copied = " ".join(re.findall(r"^COPY (?!--from)(.+) \S+$", image, re.MULTILINE)).split()
    given = (ROOT / "docker" / "Dockerfile.dockerignore").read_text(encoding="utf-8")
    assert sorted(copied) == sorted(re.findall(r"^!(\S+)$", given, re.MULTILINE))
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {albert_tf.__version__}\n" in citation


def test_the_changelog_and_the_page_on_installation_have_the_version_of_the_package():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(\d.*)\](?: - \d{4}-\d\d-\d\d)?$", changelog, re.MULTILINE)
    assert versions[0] == albert_tf.__version__
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert re.findall(r"albert_tf2-([\d.]+)-py3", page) == [albert_tf.__version__]


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
