"""Startup of multi-worker training: workers wait for each other and compare their settings.

TensorFlow connects the workers as well, but it ignores signals while it waits, and does not report
which worker is missing. Therefore they connect here first: the first worker, the chief, listens on
its address in TF_CONFIG, and the others connect to it. When all workers have connected,
TensorFlow's server takes over that port. These connections stay open until training starts: a
closed connection means that the worker has exited, and the workers use them to compare what they
are going to train.

Messages are JSON objects, one per line.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing.connection
import os
import re
import socket
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.run_record import differences_table
from albert_tf.training.interruption import InterruptedRunError

Message = dict[str, Any]

_POLL_SECONDS = 0.5
_LOG_SECONDS = 60.0
_NODE = re.compile(r"^\{\{function_node .*?\}\} ")  # prefix of TensorFlow's error messages
_HELLO_SECONDS = 5.0
_AGAIN = "Start all workers again."
# Errors of collective operations when a worker is lost.
_LOST_WORKER = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
)


class _Peer:
    """A connection to another worker."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = b""

    def send(self, message: Message) -> None:
        """Sends a message. If the other process has exited, the next `receive` reports it."""
        with contextlib.suppress(OSError):
            self._connection.sendall(json.dumps(message).encode("utf-8") + b"\n")

    def receive(self, seconds: float = _POLL_SECONDS) -> Message | None:
        """Returns the next message, or None if none arrives within `seconds`.

        Raises:
            EOFError: the other process has exited, or does not use this protocol.
        """
        while b"\n" not in self._received:
            if not multiprocessing.connection.wait([self._connection], seconds):
                return None
            try:
                content = self._connection.recv(1 << 16)
            except OSError:
                content = b""
            if not content:
                raise EOFError
            self._received += content
        line, _, self._received = self._received.partition(b"\n")
        try:
            return dict(json.loads(line))
        except (ValueError, TypeError):
            raise EOFError from None

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()


class _Wait:
    """Waiting for other workers, with a timeout and log messages.

    Args:
        timeout: maximum waiting time in seconds.
        fault: what a worker that is missing did not do, for the message.
        advice: a sentence on what to do about it.
    """

    def __init__(self, timeout: float, fault: str, advice: str) -> None:
        self._timeout = timeout
        self._fault = fault
        self._advice = advice
        self._begin = self._logged = time.monotonic()

    def check(self, missing: str) -> None:
        """Logs which workers are missing; raises InterruptedRunError after the timeout."""
        now = time.monotonic()
        if now - self._begin > self._timeout:
            raise InterruptedRunError(
                f"{missing} {self._fault} within {self._timeout:g} seconds (--worker_timeout). "
                f"{self._advice} {_AGAIN}"
            )
        if now - self._logged > _LOG_SECONDS:
            self._logged = now
            logging.info("Still waiting for %s", missing)


class Workers:
    """One worker's connections to the others; a context manager that closes them.

    Args:
        addresses: host:port of all workers, starting with the chief.
        index: index of this worker.
    """

    def __init__(self, addresses: Sequence[str], index: int) -> None:
        self._addresses = addresses
        self._index = index
        # The chief is connected to all other workers, and each of these to the chief only.
        self._peers: dict[int, _Peer] = {}
        self._timeout = math.inf

    def __str__(self) -> str:
        return self._name(self._index)

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._tell(_failure(str(self), error))
        for peer in self._peers.values():
            peer.close()
        self._peers = {}

    def meet(self, timeout: float) -> None:
        """Waits until all workers are connected.

        Args:
            timeout: maximum waiting time in seconds, here and in each call of `agree`.

        Raises:
            InterruptedRunError: a worker did not connect. The message names it.
            ValueError: the TF_CONFIG of a worker does not match the chief's.
            OSError: the port of this worker is in use.
        """
        logging.info("%s is waiting for the other workers", self)
        self._timeout = timeout
        advice = "Check TF_CONFIG and the output of the missing workers."
        wait = _Wait(timeout, "did not connect", advice)
        if self._index == 0:
            self._admit_others(wait)
        else:
            self._join_chief(wait)
            # If this fails, TensorFlow's server would fail too and leave the others waiting.
            _listen(self._addresses[self._index]).close()

    def agree(self, texts: Mapping[str, str], shown: Mapping[str, str] | None = None) -> None:
        """Waits until all workers have called this, and compares what they are going to train.

        Args:
            texts: name → text that must be the same on all workers.
            shown: name → text to show in its place if workers differ.

        Raises:
            ValueError: the workers differ. The message has a table of the differences.
            InterruptedRunError: another worker has exited, or did not call this in time.
        """
        mine = {"texts": dict(texts), "shown": dict(texts) | dict(shown or {})}
        everyone = self._exchange(mine)
        differing = [
            name
            for name in sorted(set().union(*(worker["texts"] for worker in everyone)))
            if len({worker["texts"].get(name) for worker in everyone}) > 1
        ]
        if not differing:
            return
        columns = {
            f"worker {number}": {name: worker["shown"].get(name, "-") for name in differing}
            for number, worker in enumerate(everyone, 1)
        }
        raise ValueError(
            f"the workers would not run the same training:\n{differences_table(columns)}\nStart "
            "all workers with the same flags, files and versions."
        )

    def _exchange(self, mine: Message) -> list[Message]:
        """Sends a message to all workers, and returns the messages of all, ordered by worker."""
        if self._index:
            self._tell(mine)
            wait = self._wait_for_readiness()
            while "everyone" not in (answer := self._receive(0) or {}):
                if answer:  # the chief is there, and itself waits for others
                    wait = self._wait_for_readiness()
                wait.check(self._name(0))
            return list(answer["everyone"])
        messages = {0: mine}
        wait = self._wait_for_readiness()
        while missing := self._peers.keys() - messages.keys():
            wait.check(self._names(missing))
            for index, peer in self._peers.items():
                if message := self._receive(index, _POLL_SECONDS / len(self._peers)):
                    messages[index] = message
                if index in messages:
                    peer.send({"missing": sorted(missing)})
        everyone = [messages[index] for index in sorted(messages)]
        self._tell({"everyone": everyone})
        return everyone

    def _wait_for_readiness(self) -> _Wait:
        """Returns the wait for workers that are connected, and prepare their data."""
        advice = "See its output; raise --worker_timeout if it only needs longer."
        return _Wait(self._timeout, "connected, but was not ready to train", advice)

    def _receive(self, index: int, seconds: float = _POLL_SECONDS) -> Message | None:
        """Returns the next message of a worker, or None; raises an error if it has exited."""
        try:
            return _unless_failed(self._peers[index].receive(seconds))
        except EOFError:
            raise InterruptedRunError(
                f"{self._name(index)} exited before training started. See its output for the "
                f"reason. {_AGAIN}"
            ) from None

    def _tell(self, message: Message) -> None:
        for peer in self._peers.values():
            peer.send(message)

    def _name(self, index: int) -> str:
        """Returns the description of a worker, numbered from 1 as in `devices.describe`."""
        return f"worker {index + 1} of {len(self._addresses)} ({self._addresses[index]})"

    def _names(self, indices: Collection[int]) -> str:
        return ", ".join(self._name(index) for index in sorted(indices))

    def _admit_others(self, wait: _Wait) -> None:
        """Accepts the connections of all other workers as the chief."""
        others = set(range(1, len(self._addresses)))
        with _listen(self._addresses[0]) as server:
            while missing := others - self._peers.keys():
                wait.check(self._names(missing))
                self._tell({"missing": sorted(missing)})
                with contextlib.suppress(TimeoutError):
                    self._admit(_Peer(server.accept()[0]))
                self._drop_ended()
        self._tell({"missing": []})

    def _admit(self, peer: _Peer) -> None:
        """Adds a connection to the workers if it introduces itself as one."""
        try:
            hello = peer.receive(_HELLO_SECONDS) or {}
        except EOFError:
            hello = {}
        index = hello.get("worker")
        count = hello.get("of")
        if index is None:  # the connection comes from another program
            peer.close()
            return
        self._drop_ended()
        problem = ""
        if count != len(self._addresses):
            problem = f"one has {len(self._addresses)} workers, another has {count}"
        elif index in self._peers or not 0 < index < count:
            problem = f"two workers have the index {index}"
        if problem:
            error = ValueError(f"the workers' TF_CONFIG differ: {problem}")
            peer.send(_failure(str(self), error))
            peer.close()
            raise error
        self._peers[index] = peer

    def _drop_ended(self) -> None:
        """Removes workers that have exited while waiting for the others."""
        for index, peer in list(self._peers.items()):
            try:
                _unless_failed(peer.receive(0))
            except EOFError:
                self._peers.pop(index).close()

    def _join_chief(self, wait: _Wait) -> None:
        """Connects to the chief, and waits until all other workers have done so too."""
        missing = {0}
        while missing:
            wait.check(self._names(missing))
            try:
                if not self._peers:
                    self._peers[0] = self._call_chief()
                if message := _unless_failed(self._peers[0].receive()):
                    missing = set(message["missing"])
            except (OSError, EOFError):  # the chief does not listen yet, or has exited
                for peer in self._peers.values():
                    peer.close()
                self._peers = {}
                missing = {0}
                time.sleep(_POLL_SECONDS)

    def _call_chief(self) -> _Peer:
        connection = socket.create_connection(_split(self._addresses[0]), timeout=_HELLO_SECONDS)
        connection.settimeout(None)
        peer = _Peer(connection)
        peer.send({"worker": self._index, "of": len(self._addresses)})
        return peer


def _failure(name: str, error: BaseException) -> Message:
    """Returns the message of a worker that exits with an error."""
    if isinstance(error, InterruptedRunError):  # caused by the failure of another worker
        return {"failed": str(error)}
    reason = str(error).partition("\n")[0].rstrip(".:") or type(error).__name__
    return {"failed": f"{name} failed: {reason}. {_AGAIN}"}


def _unless_failed(message: Message | None) -> Message | None:
    """Returns the message; raises InterruptedRunError if it reports a failure."""
    if message and "failed" in message:
        raise InterruptedRunError(message["failed"])
    return message


@contextlib.contextmanager
def losses_interrupt() -> Iterator[None]:
    """Converts TensorFlow's errors for a lost worker to InterruptedRunError."""
    try:
        yield
    except _LOST_WORKER as error:
        reason = _NODE.sub("", error.message.splitlines()[0])
        raise InterruptedRunError(
            f"another worker was lost ({reason}). {_AGAIN} The run resumes from the last "
            "checkpoint."
        ) from None


def _listen(address: str) -> socket.socket:
    """Returns a socket that listens on the address's port on all interfaces."""
    port = _split(address)[1]
    is_dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual else socket.AF_INET
    try:
        server = socket.create_server(("", port), family=family, dualstack_ipv6=is_dual)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(
            f"TF_CONFIG: this worker cannot listen on {address} ({reason}). An earlier run may "
            "still be using the port: stop it or choose another port."
        ) from None
    server.settimeout(_POLL_SECONDS)
    return server


def _split(address: str) -> tuple[str, int]:
    """Splits an address into host and port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def from_environment() -> Workers:
    """Returns the workers described by TF_CONFIG.

    Raises:
        ValueError: TF_CONFIG has no worker with this process's index.
    """
    config = json.loads(os.environ["TF_CONFIG"])
    chiefs, others = (config["cluster"].get(kind, []) for kind in ("chief", "worker"))
    task = config["task"]
    # The chief, if there is one, comes before all workers.
    index = int(task["index"]) + (len(chiefs) if task["type"] == "worker" else 0)
    addresses = [*chiefs, *others]
    if not 0 <= index < len(addresses):
        raise ValueError(f"TF_CONFIG: there is no worker {task['index']} among {addresses}")
    return Workers(addresses, index)
