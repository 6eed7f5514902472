"""Programs under other projects' names run the corresponding programs of this repository."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys

import pytest

import compat
from tests.conftest import ROOT


@pytest.fixture(name="forwarded")
def catch_forwarded(monkeypatch):
    """Runs a stub with a command line; returns the script that it runs and its arguments."""

    def run(stub, *arguments):
        run_path, calls = runpy.run_path, []
        monkeypatch.setattr(sys, "argv", [stub, *arguments])
        with monkeypatch.context() as patch:
            patch.setattr(compat.runpy, "run_path", lambda path, run_name: calls.append(path))
            run_path(str(ROOT / stub), run_name="__main__")
        (path,) = calls
        return path.removeprefix(f"{ROOT}/"), sys.argv[1:]

    return run


@pytest.mark.parametrize(
    ("stub", "script", "flags"),
    [
        ("compat/run_squad_v1.py", "run_squad.py", ["--noversion_2_with_negative"]),
        ("compat/run_squad_v2.py", "run_squad.py", ["--version_2_with_negative"]),
        ("run_pretraining_google.py", "run_pretraining.py", []),
        ("run_classifier_clue.py", "run_classifier.py", []),
        (
            "run_classifier_sp_google.py",
            "run_classifier.py",
            ["--max_seq_length=512", "--num_train_epochs=3"],
        ),
        ("similarity.py", "compat/similarity.py", []),
        ("test_changes.py", "compat/test_changes.py", []),
    ],
)
def test_a_stub_inserts_its_flags_before_those_of_the_command_line(forwarded, stub, script, flags):
    assert forwarded(stub, "--seed=7") == (script, [*flags, "--seed=7"])


@pytest.mark.parametrize(
    "name", ["run_pretraining", "run_squad_v1", "create_pretraining_data", "export_checkpoints"]
)
def test_the_package_albert_has_the_programs_of_the_root_and_of_compat(name):
    done = subprocess.run(
        [sys.executable, "-m", f"albert.{name}", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nall programs:\n" in done.stdout


@pytest.mark.parametrize("name", ["run_glue", "run_classifier_lcqmc", "run_classifier_clue"])
def test_the_shell_scripts_at_the_root_run_those_of_scripts(name, tmp_path):
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    (tmp_path / "glue").mkdir()
    outputs = [
        subprocess.run(
            ["bash", str(ROOT / folder / f"{name}.sh"), "--seed=7"],
            env={"PATH": "/usr/bin:/bin", "PYTHON": str(program), "ALBERT_ROOT": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.replace("/scripts/../", "/")
        for folder in (".", "scripts")
    ]
    assert outputs[0] == outputs[1]
    assert "--seed=7\n" in outputs[0]


def test_requirements_are_this_repository_with_existing_extras():
    text = (ROOT / "albert" / "requirements.txt").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if not line.startswith("#")]
    assert line == "--editable .[zh]"
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r"^zh = \[", project, re.MULTILINE)
