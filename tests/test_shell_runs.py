"""Runs on several devices and workers, which end with the weights of one device."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import partial

import pytest

from albert_tf.training.interruption import EXIT_STATUS
from tests.cli.fine_tuning_programs import write_race
from tests.conftest import free_ports
from tests.pretraining_runs import Pretraining, write_records
from tests.script_runner import assert_same_state, finish, kill, start_program, wait_for

SAME = 1e-5  # weights differ by no more between devices


@pytest.fixture(scope="module")
def pretraining(tmp_path_factory, tiny_config):
    """Pre-training on six files in four streams, which two or four workers share."""
    folder = tmp_path_factory.mktemp("run")
    for number in range(5):
        write_records(folder / f"{number}.tfrecord", 3 + number, first=100 * number)
    return Pretraining(
        folder,
        tiny_config,
        23,
        *("--train_batch_size=4", "--optimizer=adamw", "--learning_rate=0.001"),
        *("--record_streams=4",),
        *("--num_warmup_steps=2", "--num_train_steps=6", "--save_checkpoints_steps=3"),
    )


def start_workers(start_one, count=2):
    workers = [f"127.0.0.1:{port}" for port in free_ports(count)]
    tasks = ({"type": "worker", "index": index} for index in range(count))
    configs = [json.dumps({"cluster": {"worker": workers}, "task": task}) for task in tasks]
    return [start_one(TF_CONFIG=config) for config in configs]


@pytest.mark.slow
def test_workers_that_disagree_all_stop_and_say_where(pretraining, tmp_path):
    rates = iter((0.001, 0.002))

    def begin(**environment):
        return pretraining.start(tmp_path, f"--learning_rate={next(rates)}", **environment)

    for process in start_workers(begin):
        message = finish(process, 1)
        assert re.search(
            r"run the same training; by replica:\n  learning_rate: 0.001 \| 0.002$", message
        )
    assert not list(tmp_path.glob("model.ckpt-*"))


def start_race(folder, vocabulary, output_dir, *others, **environment):
    """Fine-tunes without dropout, which would differ between devices."""
    return start_program(
        "run_race.py",
        *[f"--data_dir={folder}", f"--output_dir={output_dir}"],
        *[f"--albert_config_file={folder}/race.json", f"--spm_model_file={vocabulary}"],
        *["--max_seq_length=53", "--max_qa_length=17", "--train_batch_size=4", "--train_step=20"],
        *["--warmup_step=2", "--learning_rate=0.0002", "--dropout_prob=0", "--precision=float32"],
        *others,
        **environment,
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_pre_training_ends_with_the_same_weights_on_devices_of_every_kind(pretraining, tmp_path):
    others = ("--num_train_steps=20", "--save_checkpoints_steps=20")
    pretraining.train(tmp_path / "one", *others)
    two = ("--distribution=mirrored", "--num_devices=2", "--gradient_accumulation_steps=2")
    finish(pretraining.start(tmp_path / "mirrored", *others, *two))
    assert_same_state(tmp_path / "mirrored", tmp_path / "one", 20, SAME)
    for process in start_workers(partial(pretraining.start, tmp_path / "workers", *others)):
        finish(process)
    assert_same_state(tmp_path / "workers", tmp_path / "one", 20, SAME)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fine_tuning_ends_with_the_same_weights_on_devices_of_every_kind(
    tiny_config, toy_spm_model, tmp_path
):
    shape = dataclasses.replace(tiny_config, max_position_embeddings=61, num_hidden_layers=2)
    shape.to_json_file(str(tmp_path / "race.json"))
    write_race(tmp_path)
    begin = partial(start_race, tmp_path, toy_spm_model)
    finish(begin(tmp_path / "one"))
    finish(begin(tmp_path / "mirrored", "--distribution=mirrored", "--num_devices=2"))
    assert_same_state(tmp_path / "mirrored", tmp_path / "one", 20, SAME)
    chief, other = start_workers(partial(begin, tmp_path / "workers"))
    assert "eval_accuracy = " in finish(chief)
    assert "eval_accuracy = " not in finish(other)
    assert_same_state(tmp_path / "workers", tmp_path / "one", 20, SAME)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_worker_stops_the_others_and_both_go_on_to_the_same_weights(pretraining, tmp_path):
    others = ("--num_train_steps=200", "--save_checkpoints_steps=20")
    for process in start_workers(partial(pretraining.start, tmp_path / "through", *others)):
        finish(process)
    begin = partial(pretraining.start, tmp_path / "killed", *others)
    first, second = start_workers(begin)
    wait_for((tmp_path / "killed" / "model.ckpt-40.index").exists, first)
    kill(second)
    assert "another worker was lost" in finish(first, EXIT_STATUS).splitlines()[-1]
    for process in start_workers(begin):
        finish(process)
    assert_same_state(tmp_path / "killed", tmp_path / "through", 200)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_run_goes_on_with_any_number_of_workers_to_the_weights_of_one(pretraining, tmp_path):
    others = ("--num_train_steps=60", "--save_checkpoints_steps=10", "--keep_checkpoint_max=0")
    pretraining.train(tmp_path / "one", *others)
    output_dir = tmp_path / "changing"
    for count, resumed_at in ((4, 0), (2, 20), (1, 30), (4, 50)):
        for step in range(resumed_at + 10, 70, 10):  # as if the run had been killed before
            for path in output_dir.glob(f"model.ckpt-{step}.*"):
                path.unlink()
        begin = partial(pretraining.start, output_dir, *others)
        for process in start_workers(begin, count) if count > 1 else [begin()]:
            output = finish(process)
            assert not resumed_at or f"resumed at step {resumed_at}" in output
    assert_same_state(output_dir, tmp_path / "one", 60, SAME)
