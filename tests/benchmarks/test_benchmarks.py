"""What benchmarks show: tables, and a kit for GPUs.

The kit is made for the CPU and run by JAX's CPU client; `make test-gpu` names the Python with JAX.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import types

import make_gpu_kit
import pytest
import reporting
import run_gpu_kit
import simulate_epoch

from tests.conftest import ROOT

JAX_PYTHON = os.environ.get("ALBERT_COMPILER", "")
PROGRAMS = (
    "golden",
    "pretrain albert_tiny_zh 2x32",
    "classify albert_tiny_zh 2x16",
    "predict albert_tiny_zh 2x16",
    "attention albert_tiny_zh 2x16",
    "attention albert_tiny_zh 2x16 plain:attention",
    "check albert_tiny_zh 2x16",
)


def test_a_table_replaces_that_of_the_same_benchmark_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "RESULTS.md"
    path.write_text("# Speed\n\nMeasured by hand.\n")
    for name, rate in (("a", 1.0), ("b", 0.70312), ("a", 2345.6)):
        monkeypatch.setattr("sys.argv", [f"{reporting.ROOT}/benchmarks/bench_{name}.py", "--n=3"])
        reporting.write_table(str(path), [{"contender": name, "rate": rate}])
    text = path.read_text()
    assert text.startswith("# Speed\n\nMeasured by hand.\n\n## Latest run of `bench_a.py`\n")
    assert text.count("| a | 2,346 |") == text.count("| b | 0.703 |") == 1
    assert "1.00" not in text
    with pytest.raises(ValueError, match=r"R\.md: expected <!-- begin b\.py --> once and"):
        reporting.replace_section("<!-- begin b.py -->\n", "b.py", "table", "R.md")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not JAX_PYTHON, reason="needs ALBERT_COMPILER: make test-gpu")
def test_a_kit_for_the_cpu_computes_the_golden_numbers_and_trains(tmp_path):
    maker = [sys.executable, str(ROOT / "benchmarks" / "make_gpu_kit.py"), str(tmp_path)]
    options = ["--platform=CPU", f"--programs={';'.join(PROGRAMS)}"]
    subprocess.run([*maker, *options], check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    done = subprocess.run(
        [JAX_PYTHON, str(ROOT / "benchmarks" / "run_gpu_kit.py"), str(tmp_path), "--no_peer"],
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        check=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert all("error" not in line for line in lines)
    of = {line["program"]: line for line in lines if "program" in line}
    assert list(of) == list(PROGRAMS)
    assert of["golden"]["loss_difference"] < 1e-6
    assert of["golden"]["gradient_difference"] < 1e-5
    assert max(of["check albert_tiny_zh 2x16"]["differences"].values()) < 0.02
    for name in PROGRAMS[1:3]:
        assert of[name]["falls"], of[name]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not JAX_PYTHON, reason="needs ALBERT_COMPILER: make test-gpu")
def test_programs_of_a_kit_compile_for_an_absent_gpu(tmp_path):
    """With all kernels for GPUs: of heads of 64 units, and of both ways to compute attention."""
    names = [
        "check albert_base 2x128 only:attention",
        "check albert_base 2x128 dropout:0",
        "pretrain albert_base 2x128 layers:2",
        "pretrain albert_base 2x128 layers:2 unfused:attention",
        "predict albert_base 1x64 layers:2",
    ]
    entries = [make_gpu_kit.write_program(name, "GPU", str(tmp_path)) for name in names]
    (tmp_path / "kit.json").write_text(json.dumps({"programs": entries}))
    done = subprocess.run(
        [JAX_PYTHON, str(ROOT / "benchmarks" / "compile_gpu_kit.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, lines
    kernels = {line["program"]: line["calls"]["__gpu$xla.gpu.triton"] for line in lines}
    # Attention 3, each LayerNorm 2, GELU 1; the last layer has no fused attention.
    assert list(kernels.values()) == [3, 3, 13, 10, 4]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "FileNotFoundError: .*kit.json is missing: expected a folder of make_gpu_kit.py"),
        ("{", "ValueError: .*kit.json is damaged, write it again by make_gpu_kit.py: Expecting"),
        ("[]", "damaged.*; name, task, options, file, inputs, results is missing"),
        ('{"programs": [{"name": "golden", "file": "a"}]}', "; task, options, inputs, results is"),
    ],
)
def test_a_kit_that_cannot_be_read_is_a_line_with_the_reason(
    tmp_path, monkeypatch, capsys, text, reason
):
    if text is not None:
        (tmp_path / "kit.json").write_text(text)
    status, lines = run_kit(monkeypatch, capsys, str(tmp_path))
    assert status == 1
    assert re.search(reason, lines[-1]["error"])


def test_a_name_that_no_program_has_is_a_line_and_an_error(tmp_path, monkeypatch, capsys):
    entry = {key: "" for key in run_gpu_kit.KEYS} | {"name": "golden"}
    (tmp_path / "kit.json").write_text(json.dumps({"programs": [entry]}))
    monkeypatch.setattr(run_gpu_kit.Run, "measure_device", lambda run: None)
    status, lines = run_kit(monkeypatch, capsys, str(tmp_path), "--programs=pretraining")
    assert status == 1
    reason = "no program of this kit has such a name: golden"
    assert lines == [{"program": "pretraining", "error": reason}]


def run_kit(monkeypatch, capsys, *arguments):
    """Returns the exit status and the lines of a run on a machine that seems to have JAX."""
    jax = types.SimpleNamespace(config=types.SimpleNamespace(update=lambda *_: None))
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setattr("sys.argv", ["run_gpu_kit.py", *arguments, "--no_peer"])
    with pytest.raises(SystemExit) as end:
        run_gpu_kit.main()
    return end.value.code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("pretraining albert_base 8x512", "is no program: expected one like golden"),
        ("pretrain albert_base", "is no program"),
        ("pretrain albert_base 8x512 fast", "unknown option 'fast': expected checkpointing"),
        ("check albert_base 8x512 only:norm", "only: with one of attention, feed_forward"),
        ("pretrain albert_base 8x513", "513"),
    ],
)
def test_a_kit_refuses_names_of_no_program(name, reason):
    with pytest.raises(ValueError, match=reason):
        make_gpu_kit.Name.parse(name)


def test_the_rate_of_dropout_in_a_name_is_that_of_both_models():
    rates = {
        text: make_gpu_kit.Name.parse(text).read_config().to_dict()["hidden_dropout_prob"]
        for text in ("predict albert_base 8x16", "predict albert_base 8x16 dropout:0")
    }
    assert list(rates.values()) == [0.1, 0.0]


def test_workers_of_a_simulated_epoch_read_all_records_together(capsys, monkeypatch):
    for workers in (1, 8, 64):
        costs = simulate_epoch.costs([50] * 192, workers, 64)  # three files a stream
        # To resume, half of the first file, of the second, or of the third one.
        expected = simulate_epoch.Cost(9600 // workers, 192 // workers, 1600 // workers)
        assert costs == [expected] * workers
    # A stream and a half a file: two streams read one file and a half of another one each, of which
    # the second stream drops the first half.
    costs = simulate_epoch.costs([64] * 96, 64, 64)
    assert sorted(cost.epoch for cost in costs) == [96] * 32 + [128] * 32
    monkeypatch.setattr(
        sys, "argv", ["", "--files=100000", "--records=1000", "--record_bytes=10000"]
    )
    simulate_epoch.main()
    row = "| 8 | 125 GB | 12,508 | 0.17 | 1,000 GB, 1.39 | 0.04 GB | 500 GB |\n"
    assert row in capsys.readouterr().out
