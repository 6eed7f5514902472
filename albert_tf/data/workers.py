"""Runs a function on many tasks, in this process or in a pool of worker processes.

A thin layer over `multiprocessing` for long-running work. Tasks are drawn at the pace of the
workers, with one in advance, so they may be a stream of any length; a task may send messages while
it runs; and neither side waits for the other if that is killed: a worker ends with its next
message.

`concurrent.futures.ProcessPoolExecutor` does not support messages from running tasks, cannot stop
running tasks on an error or Ctrl-C before Python 3.14, and does not report what killed a process.
An additional queue would be shared by all workers: if one is killed during a write, the reader
waits forever for the rest of the message. Here, every worker has its own pipe.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import math
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

Task = TypeVar("Task")
Message = TypeVar("Message")
Work: TypeAlias = Callable[[Task], Iterator[Message]]

_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_cores() -> int:
    """Returns the number of CPU cores that this process may use.

    Its container may have a smaller quota of CPU time than cores, which is rounded up.
    """
    is_linux = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if is_linux else os.cpu_count() or 1
    return math.ceil(min(cores, _cpu_quota()))


def _cpu_quota() -> float:
    """Returns the CPU time per time of this container (Linux); inf if it is not limited."""
    with contextlib.suppress(OSError, ValueError):  # the quota may be "max"
        quota, period = map(int, _CPU_QUOTA.read_text(encoding="utf-8").split())
        return quota / period
    return math.inf


def run(
    make_work: Callable[[], Work[Task, Message]], tasks: Iterable[Task], num_workers: int
) -> Iterator[Message]:
    """Calls `make_work()(task)` for every task and yields the messages that the calls yield.

    Args:
        make_work: returns the function that processes a task; called once in each process. It must
            be picklable, because worker processes are spawned: a function of a module, or
            `functools.partial` of one.
        tasks: the tasks; must be picklable. As many as there are workers are drawn at the start,
            and each of the others when one of them is free, so that they may be large.
        num_workers: largest number of worker processes; no more start than there are tasks. A
            single worker is this process.

    Yields:
        The messages of all tasks. Those of one task come in order; tasks overlap.

    Raises:
        ValueError, OSError: raised by the work.
        RuntimeError: the work raised any other exception, whose traceback is the message.
        ChildProcessError: a worker process was killed, or could not start. This is an OSError.
    """
    count, tasks = _count_up_to(num_workers, iter(tasks))
    if count <= 1:
        work = make_work()
        for task in tasks:
            yield from work(task)
        return
    with contextlib.ExitStack() as stack:
        pool = [_Worker(stack, make_work) for _ in range(count)]
        yield from _distribute(pool, tasks)


def _count_up_to(limit: int, tasks: Iterator[Task]) -> tuple[int, Iterator[Task]]:
    """Returns how many tasks there are, if these are fewer than the limit, and all tasks."""
    first = list(itertools.islice(tasks, limit))
    return len(first), itertools.chain(first, tasks)


@dataclasses.dataclass(frozen=True)
class _Sent(Generic[Message]):
    """What a worker reports: a message of the work."""

    message: Message


class _Done:
    """What a worker reports: it is free."""


@dataclasses.dataclass(frozen=True)
class _Failed:
    """What a worker reports: the error that ends it."""

    error: Exception


class _Worker(Generic[Task, Message]):
    """A worker process and this end of the pipe to it; terminated when the stack is closed."""

    def __init__(
        self, stack: contextlib.ExitStack, make_work: Callable[[], Work[Task, Message]]
    ) -> None:
        # Spawned, not forked: the parent may have threads (TensorFlow's), and a forked process
        # would inherit the parent's ends of all pipes and not notice the parent's death.
        context = multiprocessing.get_context("spawn")
        self.connection, other_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(other_end, make_work), daemon=True)
        self.process.start()
        other_end.close()
        stack.callback(self._end)

    def _end(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.join()
        self.process.close()

    def send(self, task: Task) -> None:
        """Sends a task to a worker that is free."""
        try:
            self.connection.send(task)
        except (BrokenPipeError, ConnectionResetError):
            self.receive()  # raises what ended the worker before it read the task
            raise

    def receive(self) -> _Sent[Message] | _Done:
        """Returns the next report.

        Raises:
            Exception: the error that ended the worker.
        """
        try:
            report: _Sent[Message] | _Done | _Failed = self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._death() from None
        if isinstance(report, _Failed):
            raise report.error
        return report

    def _death(self) -> ChildProcessError:
        self.process.join()
        code = self.process.exitcode
        if code and code < 0:
            return ChildProcessError(
                f"a worker process was killed by signal {-code}. The usual cause is a lack of "
                "memory: use fewer workers or smaller chunks."
            )
        return ChildProcessError(
            f"a worker process exited with code {code}; its own message is above. Worker processes "
            'import the script that starts them: its calls must be under if __name__ == "__main__".'
        )


def _distribute(pool: list[_Worker[Task, Message]], tasks: Iterator[Task]) -> Iterator[Message]:
    """Distributes the tasks over the workers and yields their messages."""
    idle = list(pool)
    busy: list[_Worker[Task, Message]] = []
    waiting = collections.deque(itertools.islice(tasks, 1))
    while waiting or busy:
        while idle and waiting:
            worker = idle.pop()
            worker.send(waiting.popleft())
            busy.append(worker)
            waiting.extend(itertools.islice(tasks, 1))
        ready = wait([worker.connection for worker in busy])
        for worker in [worker for worker in busy if worker.connection in ready]:
            report = worker.receive()
            if isinstance(report, _Sent):
                yield report.message
            else:
                busy.remove(worker)
                idle.append(worker)


def _serve(
    connection: Connection[object, Task], make_work: Callable[[], Work[Task, Message]]
) -> None:
    """Processes tasks in a worker process until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))  # removes half-written files
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # parent gone
        try:
            work = make_work()
            while True:
                for message in work(connection.recv()):
                    connection.send(_Sent(message))
                connection.send(_Done())
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            connection.send(_Failed(_portable(error)))


def _portable(error: Exception) -> Exception:
    """Returns a user's error itself, or a RuntimeError with the traceback of any other error."""
    if type(error) in (ValueError, FileNotFoundError, PermissionError, OSError):
        return error
    return RuntimeError("".join(traceback.format_exception(error)))
