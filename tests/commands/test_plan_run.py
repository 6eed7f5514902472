"""The printed plan of a run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from albert_tf.commands import plan_run
from albert_tf.commands.plan_run import MEASURED_POINTS, Settings
from albert_tf.config import AlbertConfig
from albert_tf.planning import step_time
from albert_tf.planning.data_costs import DataCosts
from albert_tf.planning.model_costs import StepShape
from albert_tf.planning.step_time import MeasuredStep
from tests.conftest import ROOT

SCRIPT = str(ROOT / "tools" / "plan_run.py")


def call(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)


def test_a_plan_names_data_training_and_limits():
    text = plan_run.run(
        Settings(albert_config_file="albert_xxlarge", dupe_factor=10, devices="8xa100,512xtpu-v3")
    )
    lines = text.splitlines()
    assert lines[0].startswith("Model: albert_xxlarge, 223 million weights, ")
    assert "16 GB of text, 3.81 billion tokens, dupe_factor 10" in text
    assert "assuming 40% of the peak rate, not measured" in text
    assert [line.split()[0] for line in lines if "xa100 " in line or "xtpu-v3 " in line] == [
        "8xa100",
        "512xtpu-v3",
    ]
    first = lines.index("Limits of 512xtpu-v3, the nearest first (100% is the limit)") + 1
    shown = [float(line.split("%")[0]) for line in lines[first:-1]]
    assert len(shown) == 6
    assert shown == sorted(shown, reverse=True)


@pytest.mark.parametrize(("gigabytes", "outputs"), [(0.5, 1), (1, 1), (2.5, 3), (3, 3)])
def test_no_output_is_larger_than_a_worker_shuffles(monkeypatch, gigabytes, outputs):
    size = gigabytes * plan_run.OUTPUT_BYTES
    costs = DataCosts(tokens=1, records=1, record_bytes=size, core_seconds=1)
    monkeypatch.setattr(plan_run, "plan_data", lambda *_: costs)
    assert f"--output_file=NAME@{outputs}, " in plan_run.run(Settings())


def test_a_measured_rate_replaces_the_assumption():
    text = plan_run.run(
        Settings(
            train_batch_size=100,
            num_train_steps=3600,
            examples_per_second=10,
            devices="1xl4",
            link_gigabytes_per_second=1e9,
        )
    )
    assert "10 examples per second and device, as measured" in text
    (line,) = (line for line in text.splitlines() if "1xl4 " in line)
    assert " 10 s " in line
    assert " 10.0 h " in line


def test_measured_steps_predict_another_model(tmp_path):
    path = str(tmp_path / "steps.json")
    steps = []
    for number, (name, rows, length, is_held_out) in enumerate(MEASURED_POINTS):
        config = AlbertConfig.from_json_file(name)
        shape = StepShape(rows, length, length // 8)
        seconds = 1e-12 * plan_run.model_costs.step_costs(config, shape).dense_flops + 0.01
        steps.append(MeasuredStep(name, config, shape, seconds * (1 + 0.001 * number), is_held_out))
    step_time.write_measured(path, steps, {"device": "made up"})
    text = plan_run.run(
        Settings(
            measured_steps=path,
            albert_config_file="albert_large",
            train_batch_size=16,
            max_seq_length=128,
            num_train_steps=10,
        )
    )
    assert "Measured steps: device made up" in text
    assert text.count("held out") == sum(point[3] for point in MEASURED_POINTS) >= 3
    assert text.splitlines()[-1].startswith("albert_large, 16 x 128 tokens: ")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--devices=8xb200"], "'8xb200': expected a number of devices and a name"),
        (["--devices=3xa100"], "4096 is not a multiple of 3 devices (3xa100)"),
        (["--max_seq_length=4096"], "larger than the model's max_position_embeddings=512"),
        (
            ["--max_seq_length=10"],
            "--max_predictions_per_seq=20 is larger than --max_seq_length=10",
        ),
        (["--albert_config_file=albert_huge"], "albert_huge"),
        (["--measured_steps=none.json"], "none.json"),
        (["--text_gigabytes=0"], "text_gigabytes"),
        (["--measure_steps=a", "--measured_steps=b"], "cannot be used together"),
    ],
)
def test_mistakes_end_with_one_line(flags, message):
    with pytest.raises((ValueError, OSError)) as caught:
        run_with(flags)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def run_with(flags):
    values = dict(flag.removeprefix("--").split("=") for flag in flags)
    kinds = {"max_seq_length": int, "text_gigabytes": float}
    settings = Settings(**{name: kinds.get(name, str)(value) for name, value in values.items()})
    settings.check_paths()
    return plan_run.run(settings)


@pytest.mark.slow
def test_the_script_plans_without_tensorflow():
    result = call("--albert_config_file=albert_base", "--verbosity=-1")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("Model: albert_base")
    assert call("--devices=none").returncode == 1
