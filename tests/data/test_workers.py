"""Worker processes: results, errors and killed workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from albert_tf import files
from albert_tf.data import workers
from tests.conftest import ROOT

PROGRAM = """
import sys; sys.path.insert(0, {tests!r})
import test_workers; from albert_tf.data import workers
if __name__ == "__main__":
    for pid in workers.run(test_workers.make_sleepers, range(9), 2):
        print(pid, flush=True)
"""


def make_squares(offset):
    def work(task):
        for _ in range(task % 3):
            yield task * task + offset

    return work


def make_pids():
    def work(_):
        yield os.getpid()

    return work


def make_failing(error, at_once=False):
    def work(task):
        yield task
        if task == 3:
            raise error

    if at_once:
        raise error
    return work


def make_killed():
    def work(task):
        yield os.getpid()
        if task == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    return work


def make_sleepers():
    def work(_):
        while True:
            yield os.getpid()
            time.sleep(0.05)

    return work


def make_writers(folder):
    def work(fails):
        if fails:
            while not os.listdir(folder):  # until the other process writes
                time.sleep(0.01)
            raise ValueError("no disk")
        with files.write_atomically(os.path.join(folder, "text")):
            yield from iter(lambda: time.sleep(0.01), 5)

    return work


@pytest.mark.parametrize("num_workers", [1, pytest.param(2, marks=pytest.mark.ci)])
def test_all_messages_of_all_tasks_arrive_and_tasks_are_consumed_lazily(num_workers):
    drawn = []
    tasks = (drawn.append(task) or task for task in range(11))
    messages = workers.run(partial(make_squares, 7), tasks, num_workers)
    found = [next(messages)]
    assert len(drawn) < 7
    expected = [task * task + 7 for task in range(11) for _ in range(task % 3)]
    assert sorted([*found, *messages]) == sorted(expected)


@pytest.mark.ci
def test_tasks_are_drawn_no_faster_than_workers_finish_them():
    drawn = []
    tasks = (drawn.append(task) or task for task in range(1, 60, 3))  # a message each
    for received, _ in enumerate(workers.run(partial(make_squares, 7), tasks, 2)):
        assert len(drawn) <= received + 4  # two tasks of the workers, and one that waits
    assert len(drawn) == 20


@pytest.mark.parametrize("tasks", [range(1), ()])
def test_no_process_starts_for_a_single_task(monkeypatch, tasks):
    monkeypatch.setattr(workers, "_Worker", None)
    assert list(workers.run(make_pids, tasks, 5)) == [os.getpid()] * len(tasks)


@pytest.mark.ci
def test_no_more_processes_start_than_there_are_tasks(monkeypatch):
    started = []

    class Worker(workers._Worker):
        def __init__(self, *args):
            super().__init__(*args)
            started.append(self.process.pid)

    monkeypatch.setattr(workers, "_Worker", Worker)
    found = list(workers.run(make_pids, range(2), 5))
    assert sorted(found) == sorted(started)


@pytest.mark.parametrize("num_workers", [1, pytest.param(2, marks=pytest.mark.ci)])
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("error", [ValueError("text.txt, line 3"), OSError(28, "No space left")])
def test_users_errors_are_raised_unchanged(error, at_once, num_workers):
    with pytest.raises(type(error), match=error.args[-1]):
        list(workers.run(partial(make_failing, error, at_once), range(9), num_workers))


@pytest.mark.ci
def test_an_error_at_the_start_is_raised_although_the_task_is_not_read():
    large = b"x" * (1 << 22)  # more than a pipe holds
    with pytest.raises(ValueError, match="no vocabulary"):
        list(workers.run(partial(make_failing, ValueError("no vocabulary"), True), [large] * 9, 2))


@pytest.mark.ci
def test_other_errors_are_raised_with_their_traceback():
    with pytest.raises(RuntimeError, match=r"in work\n(.|\n)*KeyError: 'x'"):
        list(workers.run(partial(make_failing, KeyError("x")), range(9), 2))


@pytest.mark.ci
def test_after_an_error_the_other_processes_leave_no_half_written_files(tmp_path):
    with pytest.raises(ValueError, match="no disk"):
        list(workers.run(partial(make_writers, str(tmp_path)), [False, True], 2))
    assert not list(tmp_path.iterdir())


@pytest.mark.ci
def test_a_killed_worker_is_reported_and_the_others_are_ended():
    seen = []
    with pytest.raises(ChildProcessError, match="killed by signal 9"):
        seen.extend(workers.run(make_killed, range(9), 2))
    for process in set(seen):
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


@pytest.mark.ci
def test_workers_end_with_their_parent():
    program = PROGRAM.format(tests="tests/data")
    parent = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    alive = set()
    while len(alive) < 2:
        alive.add(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while alive and time.monotonic() < deadline:
        time.sleep(0.05)
        alive = set(filter(is_running, alive))
    assert not alive


def is_running(process):
    """Returns whether a process is running; zombies are not."""
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as stream:
            return stream.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("200000 100000", 2), ("10000 100000", 1), ("150000 100000", 2), ("max 100000", 64)],
)
def test_the_cpu_quota_of_a_container_limits_the_cores(monkeypatch, tmp_path, quota, cores):
    (tmp_path / "cpu.max").write_text(quota + "\n")
    monkeypatch.setattr(workers, "_CPU_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    assert workers.available_cores() == cores
