"""Programs under other projects' names run the corresponding programs of this repository."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys

import pytest

from albert_tf.cli import program, programs
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("stub", "name", "flags"),
    [
        ("google/albert/run_squad_v1.py", "run-squad", ["--noversion_2_with_negative"]),
        ("google/albert/run_squad_v2.py", "run-squad", ["--version_2_with_negative"]),
        ("albert_zh/create_pretraining_data.py", "create-pretraining-data", []),
        ("albert_zh/run_pretraining.py", "run-pretraining", []),
        ("albert_zh/run_pretraining_google.py", "run-pretraining", []),
        ("albert_zh/run_classifier.py", "run-classifier", []),
        ("albert_zh/run_classifier_clue.py", "run-classifier", []),
        (
            "albert_zh/run_classifier_sp_google.py",
            "run-classifier",
            ["--max_seq_length=512", "--num_train_epochs=3"],
        ),
    ],
)
def test_a_stub_inserts_its_flags_before_those_of_the_command_line(monkeypatch, stub, name, flags):
    started = []
    monkeypatch.setattr(program, "start", lambda settings, *_: started.append(settings))
    monkeypatch.setattr(sys, "argv", [stub, "--seed=7"])
    runpy.run_path(str(ROOT / "compat" / stub), run_name="__main__")
    assert started == [programs.PROGRAMS[name].load().Settings]
    assert sys.argv[1:] == [*flags, "--seed=7"]


@pytest.mark.parametrize(
    "name", ["run_pretraining", "run_squad_v1", "create_pretraining_data", "export_checkpoints"]
)
def test_the_package_albert_has_the_programs_of_the_root_and_its_own(name):
    done = subprocess.run(
        [sys.executable, "-m", f"albert.{name}", "--helpfull"],
        cwd=ROOT / "compat" / "google",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nall programs:\n" in done.stdout


def test_requirements_are_this_repository_with_existing_extras():
    folder = ROOT / "compat" / "google"
    text = (folder / "albert" / "requirements.txt").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if not line.startswith("#")]
    path, extra = re.fullmatch(r"--editable (.+)\[(\w+)\]", line).groups()
    project = (folder / path / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(rf"^{extra} = \[", project, re.MULTILINE)
