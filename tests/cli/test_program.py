"""Programs run from the shell: `--help`, errors, exit status and output."""

from __future__ import annotations

import subprocess
import sys

import pytest

import albert_tf
from albert_tf.cli import program
from albert_tf.settings import SettingsGroup
from tests.conftest import ROOT

# A root script of its own: its run does what its seed says.
SCRIPT = '''"""Does as it is told."""

import dataclasses
import os
import sys

from absl import logging

from albert_tf.cli import program
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
    program.start(Settings, run, __doc__)
    print("after help")
'''


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "obey.py"
    path.write_text(SCRIPT)

    def run(*arguments):
        return subprocess.run(
            [sys.executable, str(path), *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"PYTHONPATH": str(ROOT)},
        )

    return run


def test_the_result_is_printed_and_the_log_goes_to_standard_error(call):
    done = call()
    assert (done.returncode, done.stdout) == (0, "31\n")
    assert "a line of the log" in done.stderr
    assert "no interest" not in done.stderr


@pytest.mark.ci
@pytest.mark.parametrize("error", ["ValueError", "OSError", "ArithmeticError"])
def test_errors_are_one_line_and_exit_with_status_1(call, error):
    done = call(f"--error={error}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "obey.py: what is wrong\n"


def test_tracebacks_are_shown_on_request_and_for_bugs(call):
    assert "Traceback" in call("--error=ValueError", "--verbosity=1").stderr
    assert "Traceback" in call("--error=KeyError").stderr


@pytest.mark.parametrize(
    ("error", "status"), [("InterruptedRunError", 75), ("KeyboardInterrupt", 130)]
)
def test_an_interrupted_run_exits_with_its_status(call, error, status):
    done = call(f"--error={error}")
    assert (done.returncode, done.stderr) == (status, "obey.py: what is wrong\n")


@pytest.mark.ci
@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("--eror=x", "Unknown command line flag 'eror'. Did you mean: error ?"),
        ("error", "'error' is not a flag: flags start with --"),
        ("--flagfile=no.flags", "--flagfile: no.flags: no such file"),
        ("--flagfile=/dev/zero", "--flagfile: /dev/zero: expected a file, but this is a pipe or"),
        ("--flagfile=none", "none: neither a file nor a recipe of albert_tf, which has"),
    ],
)
def test_the_error_for_an_invalid_command_line_names_the_flag(call, argument, reason):
    done = call(argument)
    assert (done.returncode, done.stdout) == (1, "")
    assert reason in done.stderr
    assert done.stderr.endswith("\nPass --helpfull to see all flags.\n")


@pytest.mark.parametrize("flag", ["--help", "--helpfull"])
def test_help_exits_with_status_0(call, flag):
    done = call("--error=ValueError", flag)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Does as it is told.\n\ntraining:\n  --error=STR\n")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_closed_standard_output_is_no_error(stream, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["obey.py", "--help"])
    monkeypatch.setattr(sys, stream, None)  # as Python has it after `>&-`
    program.start(SettingsGroup, print, "Obeys.")
    getattr(sys, stream).write("into nothing")
    getattr(sys, stream).close()
    assert "into nothing" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("called", "shown"),
    [
        ("run_obey.py", "    python run_obey.py --error=x\n"),
        ("albert obey", "    albert obey --error=x\n"),
    ],
)
def test_help_has_the_name_under_which_the_program_is_called(called, shown, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [called, "--help"])
    program.start(SettingsGroup, print, "Obeys.\n\n    python run_obey.py --error=x\n")
    assert f"Obeys.\n\n{shown}" in capsys.readouterr().out


def test_version_is_that_of_the_package(call):
    done = call("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"albert-tf2 {albert_tf.__version__}\n")
