"""The session on a GPU: both parts run in their time, and a failed one does not end the other."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.conftest import ROOT

SCRIPT = ROOT / "benchmarks" / "gpu_session.sh"


@pytest.fixture(name="run")
def make_run(tmp_path):
    """Returns a function that runs the script with an interpreter that prints its arguments."""
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/bash\necho "{\\"program\\": \\"${1##*/}\\", \\"arguments\\": \\"${*:2}\\"}"\n'
        "exit $([[ $1 == *run_gpu_kit.py ]] && echo 7 || echo 0)\n"
    )
    python.chmod(0o755)

    def run(**times):
        return subprocess.run(
            ["bash", str(SCRIPT), "kit", "training", str(tmp_path / "results")],
            env=os.environ | {"PYTHON": str(python)} | times,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_training_follows_measurements_that_fail(run, tmp_path):
    done = run(MEASURE_SECONDS="30")
    assert done.returncode == 1
    results = tmp_path / "results"
    measured, training = (
        [json.loads(line) for line in (results / name).read_text().splitlines()]
        for name in ("measured.jsonl", "training.jsonl")
    )
    assert measured == [
        {"program": "run_gpu_kit.py", "arguments": "kit --seconds=30"},
        {"program": "run_gpu_kit.py", "error": "it ended with status 7"},
    ]
    arguments = f"training {results}/trained --seconds=480"
    assert training == [{"program": "train_gpu_kit.py", "arguments": arguments}]
    assert [json.loads(line) for line in done.stdout.splitlines()] == measured + training


def test_a_part_without_time_is_left_out(run, tmp_path):
    done = run(MEASURE_SECONDS="0", TRAIN_SECONDS="5")
    assert (done.returncode, os.listdir(tmp_path / "results")) == (0, ["training.jsonl"])
