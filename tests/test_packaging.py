"""The package outside of a checkout: what wheel and sdist hold, and its commands in a fresh venv.

Nothing is downloaded: the venv sees the packages that these tests run with.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile

import pytest

import albert_tf
from albert_tf.cli.programs import PROGRAMS
from albert_tf.settings import SettingsGroup
from tests.conftest import ROOT, TOY_TEXT

PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
TEXTS = ["The river is wide.", "A boat waits at the landing.", "The town has grown.", "In winter."]


def test_there_is_one_console_command_and_every_script_starts_a_program():
    (scripts,) = re.findall(r"^\[project\.scripts\]\n((?:.+\n)+)", PROJECT, re.M)
    assert scripts == 'albert = "albert_tf.cli.programs:main"\n'
    started = {
        name
        for path in ROOT.glob("*.py")
        for name in re.findall(r'^    main\("([\w-]+)"\)$', path.read_text(encoding="utf-8"), re.M)
    }
    assert started == {name for name in PROGRAMS if name.startswith(("run-", "create-"))}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_has_settings_and_help(name):
    module = PROGRAMS[name].load()
    assert issubclass(module.Settings, SettingsGroup)
    assert callable(module.run)
    assert re.search(r"^    (albert|python) ?[\w/.-]* .*--\w+", module.__doc__, re.M)


def albert(*arguments):
    command = [sys.executable, "-m", "albert_tf", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.ci
def test_albert_lists_the_programs_and_starts_each_by_its_verb():
    listed = albert("--help")
    assert listed.returncode == 0
    assert all(f"  {name} " in listed.stdout for name in PROGRAMS)
    assert albert().stdout == listed.stdout
    for verb, shown in (("race", "race"), ("run_race", "run-race")):
        assert f"    albert {shown} --data_dir" in albert(verb, "--help").stdout
    assert albert("--version").stdout == f"albert-tf2 {albert_tf.__version__}\n"


def test_an_unknown_verb_is_refused_with_the_closest_one():
    done = albert("clasifier")
    assert done.returncode == 1
    assert done.stderr.startswith(
        "albert: 'clasifier' is not a program. Did you mean 'classifier'?"
    )
    assert albert("race", "--x").stderr.startswith("albert race: ")


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder with an sdist, and beside it one with the wheel that was made of it."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("packages")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder / "sdist", cwd=ROOT)
    (sdist,) = (folder / "sdist").iterdir()
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--no-index"]
    for source, target in ((sdist, "wheel"), (ROOT, "from_checkout")):
        run(sys.executable, "-m", "pip", "wheel", *options, "-w", folder / target, source)
    return folder


def names_in_wheel(folder):
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return sorted(archive.namelist())


def files_below(folder):
    """The files of a folder, without what Python compiles."""
    paths = {path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    return {str(path.relative_to(folder)) for path in paths}


@pytest.mark.slow
def test_wheel_and_sdist_hold_the_package_its_configs_and_nothing_else(packages):
    found = names_in_wheel(packages / "wheel")
    assert found == names_in_wheel(packages / "from_checkout")
    expected = {f"albert_tf/{name}" for name in files_below(ROOT / "albert_tf")}
    expected |= {f"albert_tf/configs/{name}" for name in files_below(ROOT / "configs")}
    about = f"albert_tf2-{albert_tf.__version__}.dist-info/"
    assert {name for name in found if not name.startswith(about)} == expected
    assert {f"{about}entry_points.txt", f"{about}licenses/LICENSE"} <= set(found)
    (sdist,) = (packages / "sdist").iterdir()
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert {name.split("/")[0] for name in names} == {
        *("albert_tf", "configs", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"),
        *("PKG-INFO", ".gitignore"),
    }


@pytest.fixture(scope="module")
def shell(packages, tmp_path_factory):
    """Runs a command of a fresh venv that has the wheel, in an empty folder."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = (packages / "wheel").iterdir()
    options = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check"]
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # A path alone: the .pth files over there, of editable installs, are not read.
    others = os.path.dirname(os.path.dirname(pytest.__file__))
    (site / "others.pth").write_text(f"{others}\n", encoding="utf-8")
    empty = folder / "empty"
    empty.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def call(name, *arguments):
        return run(folder / "venv" / "bin" / name, *arguments, cwd=empty, env=environment)

    call.folder = empty
    return call


@pytest.mark.slow
def test_every_program_has_help_under_its_verb(shell):
    where = shell("python", "-c", "import albert_tf; print(albert_tf.__file__)")
    assert where.startswith(str(shell.folder.parent))
    for name in PROGRAMS:
        text = shell("albert", name, "--help")
        assert re.search(rf"^    albert ({name}|{name.removeprefix('run-')})( |$)", text, re.M), (
            text[:400]
        )
        assert "    python " not in text
    assert shell("albert", "--version") == f"albert-tf2 {albert_tf.__version__}\n"


@pytest.mark.slow
def test_from_text_to_predictions_in_an_empty_folder(shell):
    folder = shell.folder
    (folder / "corpus.txt").write_text(f"{TOY_TEXT}\n{TOY_TEXT}", encoding="utf-8")
    shell(
        "albert",
        "train-vocabulary",
        *("--input_file=corpus.txt", "--vocab_size=90", "--output_prefix=toy"),
        "--nohard_vocab_limit",
    )
    lengths = ("--max_seq_length=32", "--max_predictions_per_seq=5")
    shell(
        "albert",
        "create-pretraining-data",
        *("--input_file=corpus.txt", "--output_file=train.tfrecord", "--spm_model_file=toy.model"),
        *("--dupe_factor=3", *lengths),
    )
    assert "[MASK]" in shell(
        "albert", "inspect-records", "--input_file=train.tfrecord", "--spm_model_file=toy.model"
    )
    shell(
        "albert",
        "pretraining",
        *("--albert_config_file=albert_demo", "--input_file=train.tfrecord", "--output_dir=model"),
        *("--do_train", "--do_eval", "--num_train_steps=4", "--train_batch_size=4", *lengths),
        *("--eval_batch_size=4", "--optimizer=adamw"),
    )
    assert "Google ALBERT" in shell("albert", "convert", "--inspect", "--input=model")
    (folder / "task").mkdir()
    for split in ("train", "dev"):
        rows = [f"{'water' if 'river' in text else 'land'}\t{text}" for text in TEXTS]
        (folder / "task" / f"{split}.tsv").write_text("label\ttext\n" + "\n".join(rows) + "\n")
    shell(
        "albert",
        "classifier",
        *("--flagfile=glue_rte", "--task_name=tsv", "--data_dir=task", "--init_checkpoint=model"),
        *("--albert_config_file=albert_demo", "--spm_model_file=toy.model", "--output_dir=tuned"),
        *("--max_seq_length=32", "--train_step=2", "--warmup_step=0", "--train_batch_size=2"),
        "--nodo_predict",
    )
    predicted = shell("albert", "predict", "--model_dir=tuned", "--text=The river.")
    assert json.loads(predicted)["label"] in ("land", "water")
    shell("albert", "plot-results", "--output_dir=tuned")
    assert (folder / "tuned" / "training_curve.png").is_file()
