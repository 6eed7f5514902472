"""The kit of programs for a GPU without TensorFlow, made for the CPU and run by JAX's CPU client.

`make test-gpu` names the Python with JAX. The other tests need none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import make_gpu_kit
import numpy as np
import pytest
import run_gpu_kit

from tests.conftest import ROOT

JAX_PYTHON = os.environ.get("ALBERT_COMPILER", "")
RUNNER = ROOT / "benchmarks" / "run_gpu_kit.py"
PROGRAMS = (
    "golden",
    "pretrain albert_tiny_zh 2x32",
    "classify albert_tiny_zh 2x16",
    "predict albert_tiny_zh 2x16",
    "attention albert_tiny_zh 2x16",
    "attention albert_tiny_zh 2x16 plain:attention",
)


def run_kit(python, folder, *arguments):
    """Returns the exit status and the lines of a run on the CPU."""
    command = [python, str(RUNNER), str(folder), *arguments]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    lines = (done.stdout + done.stderr).splitlines()
    return done.returncode, [json.loads(line) for line in lines if line.startswith("{")]


@pytest.mark.parametrize(
    "text", ["", "train albert_base 8x512", "pretrain albert_base", "golden albert_base 8x512"]
)
def test_the_name_of_no_program_is_refused(text):
    with pytest.raises(ValueError, match="is no program"):
        make_gpu_kit.Name.parse(text)


def make_array(**fill):
    return run_gpu_kit.make_array(fill, np.random.default_rng(3))


def test_inputs_are_made_as_described():
    words = make_array(shape=[5, 11], dtype="int32", integers=[5, 97])
    assert words.dtype == np.int32
    assert words.min() >= 5
    assert words.max() < 97
    positions = make_array(shape=[5, 7], dtype="int32", distinct=11)
    assert (np.diff(positions) > 0).all()
    assert positions.max() < 11
    segments = make_array(shape=[5, 12], dtype="int32", halves=12)
    assert segments.sum() == 5 * 6
    weights = make_array(shape=[97, 8], dtype="bfloat16", normal=0.02)
    assert abs(weights.astype(np.float32).std() - 0.02) < 0.002
    assert make_array(shape=[], dtype="int64", constant=7) == 7


def test_the_results_of_a_program_are_read_from_its_module():
    module = "module {\n func.func @main(%a: tensor<4xf32>) -> (tensor<2x5xbf16>, tensor<i1>) {\n"
    assert make_gpu_kit.results_of(module) == [
        {"shape": [2, 5], "dtype": "bfloat16"},
        {"shape": [], "dtype": "bool"},
    ]


@pytest.mark.skipif(run_gpu_kit.version_of("jax") is not None, reason="JAX is installed here")
def test_a_missing_jax_is_one_line(tmp_path):
    status, lines = run_kit(sys.executable, tmp_path)
    assert status == 1
    assert [list(line) for line in lines] == [["error"]]


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kit")
    command = [sys.executable, str(ROOT / "benchmarks" / "make_gpu_kit.py"), str(folder)]
    options = ["--platform=CPU", f"--programs={';'.join(PROGRAMS)}"]
    subprocess.run([*command, *options], check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    return folder


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not JAX_PYTHON, reason="needs ALBERT_COMPILER: make test-gpu")
def test_a_kit_for_the_cpu_computes_the_golden_numbers_and_trains(kit):
    status, lines = run_kit(JAX_PYTHON, kit, "--no_peer")
    assert status == 0
    of = {line["program"]: line for line in lines if "program" in line}
    assert list(of) == list(PROGRAMS)
    assert of["golden"]["loss_difference"] < 1e-6
    assert of["golden"]["gradient_difference"] < 1e-5
    for name in PROGRAMS[1:3]:
        assert of[name]["falls"], of[name]
    assert all("error" not in line for line in lines)


@pytest.mark.slow
@pytest.mark.skipif(not JAX_PYTHON, reason="needs ALBERT_COMPILER: make test-gpu")
def test_a_program_that_does_not_load_is_one_line_and_the_others_run(kit, tmp_path):
    entries = json.loads((kit / "kit.json").read_text())["programs"][-2:]
    for entry in entries:
        (tmp_path / entry["file"]).write_bytes((kit / entry["file"]).read_bytes())
    (tmp_path / entries[0]["file"]).write_bytes(b"no program")
    (tmp_path / "kit.json").write_text(json.dumps({"programs": entries}))
    status, lines = run_kit(JAX_PYTHON, tmp_path, "--no_peer")
    first, second = lines[-2:]
    assert status == 0
    assert first["program"] == entries[0]["name"]
    assert "error" in first
    assert second["step_ms"] > 0
