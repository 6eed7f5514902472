"""run_predict.py: a JSON object a line on standard output; tests/inference has the predictions."""

from __future__ import annotations

import json
import subprocess
import sys

from albert_tf import inference
from albert_tf.cli import run_predict
from tests.conftest import ROOT

SETTINGS = inference.Settings(model_dir="model", text="x")


def test_each_result_is_a_line_of_json_with_its_characters(monkeypatch, capsys):
    results = [{"text": "你好"}, {"score": 0.5}]
    monkeypatch.setattr(inference, "run", lambda settings: iter(results))
    run_predict.run(SETTINGS)
    lines = capsys.readouterr().out.splitlines()
    assert "你好" in lines[0]
    assert list(map(json.loads, lines)) == results


def test_a_reader_who_has_seen_enough_is_no_error():
    code = (
        "import itertools, sys\n"
        "from albert_tf import inference\n"
        "from albert_tf.cli import programs\n"
        "inference.run = lambda settings: ({'line': n} for n in itertools.count())\n"
        "sys.argv = ['run_predict.py', '--model_dir=m', '--text=x']\n"
        "programs.main('run-predict')\n"
    )
    command = [sys.executable, "-c", code]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **streams) as process:
        assert process.stdout.readline() == '{"line": 0}\n'
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == 0
