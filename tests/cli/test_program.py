"""Programs run from the shell: `--help`, errors, exit status and output."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

import albert_tf
from albert_tf.cli import console
from tests.conftest import ROOT

# A root script of its own: its run does what its flag says.
SCRIPT = '''"""Does as it is told."""

import dataclasses
import os
import sys

from absl import logging

from albert_tf.cli import console
from albert_tf.settings import SettingsGroup, setting
from albert_tf.training.interruption import InterruptedRunError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(SettingsGroup):
    GROUP = "training"
    error: str = setting("", "Name of an error.")


def run(settings):
    if settings.error:
        raise {"ValueError": ValueError, "OSError": OSError, "KeyError": KeyError,
               "InterruptedRunError": InterruptedRunError, "KeyboardInterrupt": KeyboardInterrupt,
               "ArithmeticError": ArithmeticError}[settings.error]("what is wrong")
    logging.info("a line of the log")
    logging.debug("a line of no interest")
    return os.environ["TF_CPP_MIN_LOG_LEVEL"] + os.environ["TF_USE_LEGACY_KERAS"]


if __name__ == "__main__":
    console.start(Settings, run, __doc__)
    print("after help")
'''


def run_python(*arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "obey.py"
    path.write_text(SCRIPT)
    return lambda *arguments: run_python(str(path), *arguments)


@pytest.mark.ci
def test_the_result_is_printed_and_the_log_goes_to_standard_error(call):
    done = call()
    assert (done.returncode, done.stdout) == (0, "31\n")
    assert "a line of the log" in done.stderr
    assert "no interest" not in done.stderr


@pytest.mark.ci
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--error=ValueError"], 1, r"obey\.py: what is wrong\n"),
        (["--error=ArithmeticError"], 1, r"obey\.py: what is wrong\n"),
        (["--error=ValueError", "--verbosity=1"], 1, "(?s).*Traceback.*"),
        (["--error=KeyError"], 1, "(?s).*Traceback.*"),
        (["--error=InterruptedRunError"], 75, r"obey\.py: what is wrong\n"),
        (["--error=KeyboardInterrupt"], 130, r"obey\.py: what is wrong\n"),
        (["--eror=x"], 1, r"(?s).*flag 'eror'. Did you mean: error .*Pass --helpfull to see all.*"),
        (["error"], 1, "(?s).*'error' is not a flag: flags start with --.*"),
        (["--flagfile=no.flags"], 1, "(?s).*--flagfile: no.flags: no such file.*"),
        (["--flagfile=none"], 1, "(?s).*none: neither a file nor a recipe of albert_tf, which.*"),
    ],
)
def test_errors_have_a_line_and_an_exit_status(call, arguments, status, said):
    done = call(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert re.fullmatch(said, done.stderr)


@pytest.mark.ci
def test_help_and_version_exit_with_status_0(call):
    done = call("--error=ValueError", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Does as it is told.\n\ntraining:\n  --error=STR\n")
    done = call("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"albert-tf2 {albert_tf.__version__}\n")


def test_each_prediction_is_a_line_of_json_with_its_characters(capsys):
    results = [{"text": "你好"}, {"score": 0.5}]
    console._print(iter(results))
    lines = capsys.readouterr().out.splitlines()
    assert "你好" in lines[0]
    assert list(map(json.loads, lines)) == results


def test_a_program_that_is_started_again_in_a_process_logs_each_line_once():
    code = """
import logging, sys
from albert_tf.cli import console
from albert_tf.data.settings import TextSettings

sys.argv = ["program"]
for _ in range(3):
    try:
        console.start(TextSettings, lambda settings: logging.warning("said"), "")
    except SystemExit as end:
        assert not end.code
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.count("WARNING: said") == 3


def test_of_a_very_long_message_the_beginning_is_shown():
    assert console._shortened(ValueError("a" * 4000)) == "a" * 4000
    assert console._shortened(ValueError("a" * 4000 + "bc")) == "a" * 4000 + "… (2 more characters)"
