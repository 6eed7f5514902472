"""The check of a device: what its processes find, and the table of their outcomes."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.cli import check_device
from albert_tf.cli.check_device import FAILED, PASSED, SKIPPED, Settings
from albert_tf.cli.training_steps import random_batch
from albert_tf.config import AlbertConfig
from albert_tf.pretraining.task import PretrainingTask

TINY = {"hidden_size": 12, "intermediate_size": 20, "num_attention_heads": 4}


@pytest.fixture(name="tiny")
def use_a_tiny_model(monkeypatch):
    """A model so small that its operations are not compiled."""

    def read_config(name, dropout=0.0):
        rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        config = {"vocab_size": 97, "embedding_size": 8, "num_hidden_layers": 1, **TINY, **rates}
        return AlbertConfig.from_dict(
            {"max_position_embeddings": 32, "type_vocab_size": 2} | config
        )

    monkeypatch.setattr(check_device, "read_config", read_config)


@pytest.mark.ci
def test_outcomes_of_the_processes_are_rows_and_a_failed_one_does_not_end_the_others(
    monkeypatch, capsys
):
    code = {
        "versions": "print('note'); print('[\"passed\", \"a | CPU\"]')",
        "float32": "import sys; print('first\\nlast words', file=sys.stderr); sys.exit(3)",
        "bfloat16": "import time; time.sleep(60)",
        "two_devices": 'print(\'["skipped", "needs two GPUs"]\')',
    }
    run_python = check_device.run_python
    monkeypatch.setattr(
        check_device,
        "run_python",
        lambda arguments, device, seconds: run_python([code[arguments[1]]], device, seconds),
    )
    settings = Settings(device="cpu", checks=tuple(code), check_seconds=2)
    with pytest.raises(ChildProcessError, match=r"^failed: step in float32, step in bfloat16; "):
        check_device.run(settings)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]] == [
        ["device and versions", PASSED, "a / CPU"],
        ["step in float32", FAILED, "exit status 3: last words"],
        ["step in bfloat16", FAILED, "not finished after 2 seconds"],
        ["two devices", SKIPPED, "needs two GPUs"],
    ]


@pytest.mark.ci
def test_the_cpu_is_checked_without_gpus(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    code = "import json, os; print(json.dumps(['', os.environ['CUDA_VISIBLE_DEVICES']]))"
    found = [check_device.run_python([code], device, 60)[1] for device in ("cpu", "gpu")]
    assert found == ["-1", "0"]


@pytest.mark.ci
def test_the_batch_has_the_shapes_of_the_task(tiny):
    batch = random_batch(3, 16, 5, 97)
    task = PretrainingTask(check_device.read_config("any"), 16, 5)
    assert {name: value.shape[1:] for name, value in batch.items()} == {
        name: feature.shape for name, feature in task.features.items()
    }


@pytest.mark.ci
def test_a_step_agrees_with_the_cpu_also_with_dropout(tiny):
    outcome, text = check_device.check_agreement("float32", "cpu", "")
    assert outcome == PASSED, text
    assert "dropout 0.1: loss" in text


@pytest.mark.ci
def test_a_device_that_computes_something_else_fails(tiny, monkeypatch):
    gradients = iter([1.0, 1.01] * 2)  # of the CPU and the device, without and with dropout

    def train(*arguments):
        training = mock.Mock(**{"step.return_value": 3.0})
        training.gradient.return_value = [np.full(5, next(gradients))]
        return training

    monkeypatch.setattr(check_device, "Training", train)
    outcome, text = check_device.check_agreement("float32", "cpu", "")
    assert outcome == FAILED
    assert text.count("loss 0.0e+00, gradient 1.0e-02") == 2


@pytest.mark.ci
def test_the_error_of_the_weights_is_relative(monkeypatch):
    weights = iter([[[3.0], [4.0]], [[3.0], [4.5]], [[3.0], [4.0]]])  # first those of the start
    training = mock.Mock(**{"get_weights": lambda: next(weights)})
    monkeypatch.setattr(check_device, "Training", lambda *_: mock.Mock(model=training))
    assert check_device.compare_weights([None, None], 0.1) == pytest.approx(0.1)


@pytest.mark.ci
def test_one_gpu_is_not_two(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU:0"])
    assert check_device.check_two_devices("gpu", "")[0] == SKIPPED


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_checks_but_that_of_the_speed_pass_on_the_cpu(capsys):
    check_device.run(Settings(device="cpu", checks=tuple(check_device.CHECKS)[:-1]))
    assert capsys.readouterr().out.count("| passed |") == len(check_device.CHECKS) - 1
