"""Workers that wait for each other, disagree, exit early, or never connect."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import tensorflow as tf

from albert_tf.training import cluster
from albert_tf.training.interruption import InterruptedRunError
from tests.conftest import free_ports


@pytest.fixture(name="addresses")
def find_addresses():
    """Returns addresses of this machine with free ports for three workers."""
    return [f"127.0.0.1:{port}" for port in free_ports(3)]


def run_workers(addresses, work, indices=None, timeout=20.0):
    """Runs `work(workers, index)` in all workers after they have met; returns results or errors."""

    def run(index):
        try:
            with cluster.Workers(addresses, index) as workers:
                workers.meet(timeout)
                return work(workers, index)
        except (InterruptedRunError, ValueError, OSError) as error:
            return error

    indices = range(len(addresses)) if indices is None else indices
    with ThreadPoolExecutor(len(addresses)) as pool:
        return list(pool.map(run, indices))


def assert_all_fail(results, kind, *parts):
    for result in results:
        assert isinstance(result, kind), result
        for part in parts:
            assert part in str(result)


def test_workers_meet_and_agree_repeatedly(addresses):
    def work(workers, index):
        for number in range(3):
            workers.agree({"seed": "5", "number": str(number)}, {"seed": f"5 of {index}"})
        return index

    assert run_workers(addresses, work) == [0, 1, 2]


def test_workers_with_many_open_files_can_talk():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < 1100:
        pytest.skip("a process may not open 1100 files")
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        while stack.enter_context(open(os.devnull)).fileno() < 1024:  # the limit of `select`
            pass
        one, other = (stack.enter_context(end) for end in socket.socketpair())
        cluster._Peer(one).send({"is_ready": True})
        assert cluster._Peer(other).receive() == {"is_ready": True}


def test_disagreement_stops_all_workers_with_a_table(addresses):
    def work(workers, index):
        texts = {"seed": "5", "train_batch_size": "8", "training data": f"sha256 {index // 2}"}
        if index == 1:
            del texts["train_batch_size"]
        workers.agree(texts, {"training data": f"sha256 {index // 2} (/data/{index})"})

    table = (
        "                    worker 1            worker 2            worker 3\n"
        "  train_batch_size  8                   -                   8\n"
        "  training data     sha256 0 (/data/0)  sha256 0 (/data/1)  sha256 1 (/data/2)\n"
    )
    assert_all_fail(run_workers(addresses, work), ValueError, table, "the same flags")


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_worker_that_does_not_connect_is_reported(addresses, missing):
    results = run_workers(
        addresses, lambda *_: None, [i for i in range(3) if i != missing], timeout=0.8
    )
    name = f"worker {missing + 1} of 3 ({addresses[missing]})"
    assert_all_fail(results, InterruptedRunError, f"{name} did not connect within 0.8 seconds")


@pytest.mark.parametrize("failing", [0, 2])
def test_a_worker_that_fails_before_training_stops_the_others(addresses, failing):
    def work(workers, index):
        if index == failing:
            raise ValueError("no such file.\nLook")
        workers.agree({})

    results = run_workers(addresses, work)
    assert isinstance(results.pop(failing), ValueError)
    name = f"worker {failing + 1} of 3 ({addresses[failing]})"
    message = f"{name} failed: no such file. Start all workers again."
    assert [str(result) for result in results] == [message, message]


def test_a_worker_that_exits_silently_stops_the_others(addresses):
    results = run_workers(addresses[:2], lambda workers, index: index or workers.agree({}))
    assert results[1] == 1
    assert_all_fail(results[:1], InterruptedRunError, "worker 2 of 2", "exited before training")


@pytest.mark.parametrize("hanging", [0, 2])
def test_a_worker_that_hangs_after_connecting_is_reported(addresses, hanging):
    ended = threading.Semaphore(0)

    def work(workers, index):
        if index == hanging:
            return [ended.acquire(timeout=10) for _ in range(2)]
        try:
            return workers.agree({"seed": "5"})
        finally:
            ended.release()

    results = run_workers(addresses, work, timeout=0.8)
    assert results.pop(hanging) == [True, True]
    name = f"worker {hanging + 1} of 3 ({addresses[hanging]})"
    said = f"{name} connected, but was not ready to train within 0.8 seconds (--worker_timeout)"
    assert_all_fail(results, InterruptedRunError, said)


def test_a_worker_waits_as_long_as_the_chief_is_there(addresses):
    def work(workers, index):
        time.sleep((1.0, 0.0, 1.8)[index])
        workers.agree({"seed": "5"})
        return index

    assert run_workers(addresses, work, timeout=1.2) == [0, 1, 2]


def test_workers_with_the_same_index_or_another_cluster_are_rejected(addresses):
    results = run_workers(addresses, lambda *_: None, [0, 1, 1])
    assert isinstance(results[0], ValueError)
    assert_all_fail(results, (ValueError, InterruptedRunError), "two workers have the index 1")


def test_connections_of_other_programs_are_closed(addresses):
    host, port = addresses[0].split(":")
    with ThreadPoolExecutor(1) as pool:
        chief = pool.submit(run_workers, addresses, lambda _, index: index, [0])
        is_refused = True
        while is_refused:
            with socket.socket() as visitor:
                is_refused = visitor.connect_ex((host, int(port))) != 0
                if not is_refused:
                    visitor.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert run_workers(addresses, lambda _, index: index, [1, 2]) == [1, 2]
        assert chief.result() == [0]


@pytest.mark.parametrize("index", [0, 1])
def test_a_port_in_use_is_reported(addresses, index):
    host, port = addresses[index].split(":")
    with socket.create_server((host, int(port))):
        indices = [0] if index == 0 else [0, 1]
        results = run_workers(addresses[:2], lambda workers, _: workers.agree({}), indices)
    assert isinstance(results[index], OSError)
    reason = f"this worker cannot listen on {addresses[index]} (Address already in use)"
    assert_all_fail(results, (OSError, InterruptedRunError), reason)


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ({"type": "chief", "index": 0}, "worker 1 of 3 (a:1)"),
        ({"type": "worker", "index": 1}, "worker 3 of 3 (c:3)"),
    ],
)
def test_workers_are_read_from_tf_config(monkeypatch, task, name):
    config = {"cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"], "evaluator": ["d:4"]}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config | {"task": task}))
    assert str(cluster.from_environment()) == name


def test_a_worker_missing_in_tf_config_is_rejected(monkeypatch):
    config = {"cluster": {"worker": ["b:2", "c:3"]}, "task": {"type": "worker", "index": 2}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(ValueError, match="there is no worker 2 among"):
        cluster.from_environment()


def test_a_lost_worker_interrupts_the_run():
    message = "{{function_node __wrapped__Send}} Collective ops is aborted by: Socket closed\nmore"
    with (
        pytest.raises(InterruptedRunError, match=r"lost \(Collective ops is aborted by: Socket cl"),
        cluster.losses_interrupt(),
    ):
        raise tf.errors.UnavailableError(None, None, message)
