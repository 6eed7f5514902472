"""Runs a function over many tasks, in this process or in several.

A thin layer over `multiprocessing` for long work: a task is drawn when a process is free, so that
tasks may be a stream of any length; messages arrive while a task runs; and neither side waits in
vain if the other is killed.

`concurrent.futures.ProcessPoolExecutor` has no messages of a running task, cannot stop running
tasks at an error or Ctrl-C before Python 3.14, and does not say what killed a process. A queue
beside it would be shared: a process that is killed within a write leaves half a message in it, for
which the reader waits forever. Here every process has a pipe of its own.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, cast

Work = Callable[[Any], Iterator[Any]]

_MESSAGE, _DONE, _FAILED = range(3)


class WorkerDied(ChildProcessError):  # noqa: N818 - says what happened
    """A worker process ended without an answer, for lack of memory as a rule."""


def available_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run(
    make_work: Callable[..., Work], args: tuple[Any, ...], tasks: Iterable[Any], num_workers: int
) -> Iterator[Any]:
    """Calls `make_work(*args)(task)` for every task and yields what the calls yield.

    Args:
        make_work: makes the function that does the work, once in every process. An importable
            function, as the processes start anew and import it.
        args: its arguments; can be pickled.
        tasks: the tasks; can be pickled. Drawn when a worker is free.
        num_workers: processes; 1 works in this process.

    Yields:
        the messages of all tasks. Those of one task come in order; tasks overlap.

    Raises:
        ValueError, OSError: what the work raised, as it was.
        RuntimeError: any other exception of the work, with its traceback.
        WorkerDied: an OSError; a process was killed.
    """
    if num_workers <= 1:
        work = make_work(*args)
        for task in tasks:
            yield from work(task)
        return
    with contextlib.ExitStack() as stack:
        pool = [_Worker(stack, make_work, args) for _ in range(num_workers)]
        yield from _distribute(pool, iter(tasks))


class _Worker:
    """One process and this side's end of the pipe to it. The stack ends it."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        make_work: Callable[..., Work],
        args: tuple[Any, ...],
    ):
        # Started anew, not forked: the parent may hold threads (TensorFlow's), and with its own
        # ends of all pipes a forked process would not notice the parent's death.
        context = multiprocessing.get_context("spawn")
        self.connection, other_end = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(other_end, make_work, args), daemon=True
        )
        self.process.start()
        other_end.close()
        stack.callback(self._end)

    def _end(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.join()
        self.process.close()

    def send(self, task: Any) -> None:
        try:
            self.connection.send(task)
        except BrokenPipeError:
            raise self.death() from None

    def receive(self) -> tuple[int, Any]:
        try:
            kind, content = self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise self.death() from None
        return kind, content

    def death(self) -> WorkerDied:
        self.process.join()
        code = self.process.exitcode
        reason = f"was killed by signal {-code}" if code and code < 0 else f"ended with code {code}"
        return WorkerDied(
            f"a worker process {reason}. The usual cause is too little memory: "
            "use fewer workers, or smaller chunks."
        )


def _distribute(pool: list[_Worker], tasks: Iterator[Any]) -> Iterator[Any]:
    """Keeps the workers busy until the tasks are used up."""
    nothing = object()
    idle = list(pool)
    busy: dict[Connection, _Worker] = {}
    task = next(tasks, nothing)
    while task is not nothing or busy:
        while idle and task is not nothing:
            worker = idle.pop()
            worker.send(task)
            busy[worker.connection] = worker
            task = next(tasks, nothing)
        for connection in cast("list[Connection]", wait(list(busy))):
            worker = busy[connection]
            kind, content = worker.receive()
            if kind == _MESSAGE:
                yield content
            elif kind == _DONE:
                idle.append(busy.pop(connection))
            else:
                raise content


def _serve(connection: Connection, make_work: Callable[..., Work], args: tuple[Any, ...]) -> None:
    """What a worker process runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C ends
    parent = multiprocessing.parent_process()
    if parent is None or not parent.is_alive():
        return  # it was killed while this process started; its first task may be in the pipe
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # parent gone
        try:
            work = make_work(*args)
            while True:
                for message in work(connection.recv()):
                    connection.send((_MESSAGE, message))
                connection.send((_DONE, None))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            connection.send((_FAILED, _portable(error)))


def _end_with(parent: Any) -> None:
    """Ends this process when its parent ends."""
    parent.join()
    os._exit(1)


def _portable(error: Exception) -> Exception:
    """The error itself where users know it, else its traceback as text."""
    if type(error) in (ValueError, FileNotFoundError, PermissionError, OSError):
        return error
    return RuntimeError("".join(traceback.format_exception(error)))
