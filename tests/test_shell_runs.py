"""Tests of runs from the shell: descriptions, signals, locks, several devices and workers."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

from albert_tf import pretraining
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.cli.flags import parse
from albert_tf.training.interruption import EXIT_STATUS
from tests.conftest import MAX_PREDICTIONS, ROOT, SEQ_LENGTH, free_ports
from tests.script_runner import tensors
from tests.training.test_loop import write_records

ROWS = 4


@pytest.fixture(scope="module", name="folder")
def make_folder(tmp_path_factory, tiny_config):
    folder = tmp_path_factory.mktemp("run")
    write_records(folder / "train.tfrecord", 23)
    tiny_config.to_json_file(str(folder / "config.json"))
    return folder


def launch(program, *flags, **environment):
    return subprocess.Popen(
        [sys.executable, str(ROOT / program), *flags],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def arguments(folder, output_dir):
    return [
        f"--albert_config_file={folder}/config.json",
        f"--input_file={folder}/train.tfrecord",
        f"--output_dir={output_dir}",
        f"--max_seq_length={SEQ_LENGTH}",
        f"--max_predictions_per_seq={MAX_PREDICTIONS}",
        f"--train_batch_size={ROWS}",
        *["--precision=float32", "--optimizer=adamw", "--learning_rate=0.001"],
        *["--num_train_steps=6", "--num_warmup_steps=2", "--save_checkpoints_steps=3"],
    ]


def start(folder, output_dir, *flags, **environment):
    return launch("run_pretraining.py", *arguments(folder, output_dir), *flags, **environment)


def finish(process, status=0):
    output, _ = process.communicate(timeout=600)
    assert process.returncode == status, output
    return output


@pytest.mark.ci
def test_a_run_is_described_and_says_what_it_computes_on(folder, config_file, tmp_path):
    flags = (f"--albert_config_file={config_file}", "--num_train_steps=1", "--threads=1")
    output = finish(start(folder, tmp_path / "model", *flags))
    assert "device    one CPU with oneDNN, float32: --precision=float32" in output
    run = json.loads((tmp_path / "model" / "run.json").read_text())
    assert run["settings"]["num_train_steps"] == 1
    assert run["config"]["hidden_size"] == 12
    assert run["start"]["device"] == {"devices": "one CPU with oneDNN", "precision": "float32"}


@pytest.mark.ci
def test_a_batch_that_cannot_be_divided_is_refused(folder, tmp_path):
    given = [*arguments(folder, tmp_path / "model"), "--gradient_accumulation_steps=3"]
    with pytest.raises(ValueError, match=r"batch_size=4 is not a multiple of 1 device\(s\)"):
        pretraining.run(parse(pretraining.Settings, given))


def wait_for(path, process):
    end = time.monotonic() + 300
    while not os.path.exists(path):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.ci
def test_a_signal_saves_and_the_same_command_ends_as_without_it(folder, tmp_path):
    flags = ("--num_train_steps=400", "--save_checkpoints_steps=1000")
    finish(start(folder, tmp_path / "through", *flags))
    process = start(folder, tmp_path / "stopped", *flags)
    wait_for(tmp_path / "stopped" / "model.ckpt-0.index", process)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    output = finish(process, EXIT_STATUS)
    assert "SIGTERM: saving after this step" in output
    assert "as requested, and saved it" in output.splitlines()[-1]
    stopped = RunFolder(str(tmp_path / "stopped"))
    assert (list(stopped.checkpoints()), len(stopped.resumable())) == ([0], 2)
    finish(start(folder, tmp_path / "stopped", *flags))
    through = tensors(tmp_path / "through" / "model.ckpt-400")
    for name, value in tensors(tmp_path / "stopped" / "model.ckpt-400").items():
        assert (value == through[name]).all(), name


@pytest.mark.ci
def test_a_second_process_on_the_same_folder_is_refused(folder, tmp_path):
    first = start(folder, tmp_path / "model", "--num_train_steps=100000")
    wait_for(tmp_path / "model" / "model.ckpt-0.index", first)
    output = finish(start(folder, tmp_path / "model", "--do_train=False", "--do_eval"), 1)
    assert "is in use by another process" in output.splitlines()[-1]
    first.kill()
    first.communicate()


def tf_configs(count=2):
    workers = [f"127.0.0.1:{port}" for port in free_ports(count)]
    tasks = ({"type": "worker", "index": index} for index in range(count))
    return [json.dumps({"cluster": {"worker": workers}, "task": task}) for task in tasks]


def start_workers(start_one, count=2):
    return [start_one(TF_CONFIG=config) for config in tf_configs(count)]


@pytest.mark.ci
def test_workers_that_disagree_all_stop_with_a_table(folder, tmp_path):
    rates = iter((0.001, 0.002))

    def begin(**environment):
        flag = f"--learning_rate={next(rates)}"
        return start(folder, tmp_path / "model", flag, **environment)

    for process in start_workers(begin):
        message = finish(process, 1)
        assert re.search(r"run the same training:\n.*\n *learning_rate +0.001 +0.002$", message)
    assert not list((tmp_path / "model").glob("model.ckpt-*"))


def start_race(tmp_path, vocabulary, output_dir, *flags, **environment):
    """Fine-tunes without dropout, which would differ between devices."""
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    options = ["to the sea", "to the town", "nowhere"]
    lines = [
        {
            "passage": "The river carries rain. " * n,
            "question": "Where?",
            "options": options,
            "label": n % 3,
        }
        for n in range(1, 9)
    ]
    for split in ("train", "dev"):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (data / f"{split}.jsonl").write_text(text)
    return launch(
        "run_race.py",
        *["--task_name=choice", f"--data_dir={data}", f"--output_dir={output_dir}"],
        *[f"--albert_config_file={tmp_path}/race.json", f"--spm_model_file={vocabulary}"],
        *["--max_seq_length=53", "--max_qa_length=17", "--train_batch_size=4", "--train_step=20"],
        *["--warmup_step=2", "--learning_rate=0.0002", "--dropout_prob=0", "--precision=float32"],
        *flags,
        **environment,
    )


def assert_same(output_dir, other, step):
    expected = tensors(other / f"model.ckpt-{step}")
    for name, value in tensors(output_dir / f"model.ckpt-{step}").items():
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_pre_training_ends_with_the_same_weights_on_devices_of_every_kind(folder, tmp_path):
    flags = ("--num_train_steps=20", "--save_checkpoints_steps=20")
    finish(start(folder, tmp_path / "one", *flags))
    two = ("--distribution=mirrored", "--num_devices=2", "--gradient_accumulation_steps=2")
    finish(start(folder, tmp_path / "mirrored", *flags, *two))
    assert_same(tmp_path / "mirrored", tmp_path / "one", 20)
    for process in start_workers(partial(start, folder, tmp_path / "workers", *flags)):
        finish(process)
    assert_same(tmp_path / "workers", tmp_path / "one", 20)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fine_tuning_ends_with_the_same_weights_on_devices_of_every_kind(
    tiny_config, toy_spm_model, tmp_path
):
    shape = dataclasses.replace(tiny_config, max_position_embeddings=61, num_hidden_layers=2)
    shape.to_json_file(str(tmp_path / "race.json"))
    begin = partial(start_race, tmp_path, toy_spm_model)
    finish(begin(tmp_path / "one"))
    finish(begin(tmp_path / "mirrored", "--distribution=mirrored", "--num_devices=2"))
    assert_same(tmp_path / "mirrored", tmp_path / "one", 20)
    chief, other = start_workers(partial(begin, tmp_path / "workers"))
    assert "eval_accuracy = " in finish(chief)
    assert "eval_accuracy = " not in finish(other)
    assert_same(tmp_path / "workers", tmp_path / "one", 20)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_worker_stops_the_others_and_both_go_on_to_the_same_weights(folder, tmp_path):
    flags = ("--num_train_steps=200", "--save_checkpoints_steps=20")
    for process in start_workers(partial(start, folder, tmp_path / "through", *flags)):
        finish(process)
    first, second = start_workers(partial(start, folder, tmp_path / "killed", *flags))
    wait_for(tmp_path / "killed" / "model.ckpt-40.index", first)
    second.kill()
    second.communicate()
    assert "another worker was lost" in finish(first, EXIT_STATUS).splitlines()[-1]
    for process in start_workers(partial(start, folder, tmp_path / "killed", *flags)):
        finish(process)
    through = tensors(tmp_path / "through" / "model.ckpt-200")
    for name, value in tensors(tmp_path / "killed" / "model.ckpt-200").items():
        assert (value == through[name]).all(), name


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_run_goes_on_with_any_number_of_workers_to_the_weights_of_one(folder, tmp_path):
    flags = ("--num_train_steps=60", "--save_checkpoints_steps=10", "--keep_checkpoint_max=0")
    finish(start(folder, tmp_path / "one", *flags))
    output_dir = tmp_path / "changing"
    for count, resumed_at in ((4, 0), (2, 20), (1, 30), (4, 50)):
        for step in range(resumed_at + 10, 70, 10):  # as if the run had been killed before
            for path in output_dir.glob(f"model.ckpt-{step}.*"):
                path.unlink()
        begin = partial(start, folder, output_dir, *flags)
        for process in start_workers(begin, count) if count > 1 else [begin()]:
            output = finish(process)
            assert not resumed_at or f"resumed at step {resumed_at}" in output
    assert_same(output_dir, tmp_path / "one", 60)
