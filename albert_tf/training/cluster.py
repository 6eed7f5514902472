"""The workers of a run with several processes: waiting for one another, agreeing on what to train.

TensorFlow connects them too, but while it waits for a worker it hears no signals, and it does not
say who is missing. So they meet here first. The first worker, the chief, listens at its address in
TF_CONFIG, and the others connect to it. When all have come, TensorFlow's server takes over that
port. These connections stay open until training begins: the end of one tells that its worker has
ended, and the workers compare over them what they are going to train.

Messages are JSON objects, a line each.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import select
import socket
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.training.interruption import InterruptedRunError
from albert_tf.training.run_identity import differences_table

Message = dict[str, Any]

_POLL_SECONDS = 0.5
_LOG_SECONDS = 60.0
_NODE = re.compile(r"^\{\{function_node .*?\}\} ")  # before the text of an error
_HELLO_SECONDS = 5.0
_AGAIN = "Start all workers again."
# What a collective operation of several workers fails with when one of them is gone.
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
        """Sends a message. That the other one is gone is noticed when it should answer."""
        with contextlib.suppress(OSError):
            self._connection.sendall(json.dumps(message).encode("utf-8") + b"\n")

    def receive(self, seconds: float = _POLL_SECONDS) -> Message | None:
        """Returns the next message; None if there is none within some seconds.

        Raises:
            EOFError: the other process has ended, or does not speak this protocol.
        """
        while b"\n" not in self._received:
            if not select.select([self._connection], [], [], seconds)[0]:
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
    """A wait for other workers that says from time to time for whom, and ends at last.

    Args:
        timeout: seconds.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout, self._begin = timeout, time.monotonic()
        self._logged = self._begin

    def check(self, missing: str) -> None:
        """Logs who is missing; raises InterruptedRunError when the wait is over."""
        now = time.monotonic()
        if now - self._begin > self._timeout:
            raise InterruptedRunError(
                f"{missing} did not come within {self._timeout:g} seconds (--worker_timeout). Look "
                f"at TF_CONFIG and at the output there. {_AGAIN}"
            )
        if now - self._logged > _LOG_SECONDS:
            self._logged = now
            logging.info("Still waiting for %s", missing)


class Workers:
    """The workers of a run, as one of them sees the others. Its `with` block ends the connections.

    Args:
        addresses: host:port of all workers, the chief's first.
        index: position of this one.
    """

    def __init__(self, addresses: Sequence[str], index: int) -> None:
        self._addresses, self._index = addresses, index
        # The chief is connected to all others, and they to the chief.
        self._peers: dict[int, _Peer] = {}

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
        """Waits until all workers have come.

        Args:
            timeout: seconds to wait at most.

        Raises:
            InterruptedRunError: one has not come; names it.
            ValueError: the TF_CONFIG of one of them does not fit that of the chief.
            OSError: the port of this worker is in use.
        """
        logging.info("%s waits for the others", self)
        if self._index == 0:
            self._admit_others(_Wait(timeout))
        else:
            self._join_chief(_Wait(timeout))
            # Where it fails, TensorFlow's server would as well, and leave the others waiting.
            _listen(self._addresses[self._index]).close()

    def agree(self, texts: Mapping[str, str], shown: Mapping[str, str] | None = None) -> None:
        """Waits until all workers have come to this point, and compares what they train.

        Args:
            texts: name → what has to be the same on all workers.
            shown: name → what to show of it, if not that, where it differs.

        Raises:
            ValueError: they differ; has a table of the differences.
            InterruptedRunError: another worker has ended.
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
            f"the workers would not train the same:\n{differences_table(columns)}\nStart all of "
            "them with the same flags, files and versions."
        )

    def _exchange(self, mine: Message) -> list[Message]:
        """Sends a message to all workers, and returns those of all, in their order."""
        wait = _Wait(math.inf)
        if self._index:
            self._tell(mine)
            while not (message := self._receive(0)):
                wait.check("the other workers")
            return list(message["everyone"])
        found = {0: mine}
        while missing := self._peers.keys() - found.keys():
            wait.check(self._names(missing))
            for index in self._peers:
                if message := self._receive(index):
                    found[index] = message
        everyone = [found[index] for index in sorted(found)]
        self._tell({"everyone": everyone})
        return everyone

    def _receive(self, index: int) -> Message | None:
        """Returns the next message of a worker, None if there is none yet; raises if it ended."""
        try:
            return _unless_failed(self._peers[index].receive())
        except EOFError:
            raise InterruptedRunError(
                f"{self._name(index)} has ended before training began. Its output says "
                f"why. {_AGAIN}"
            ) from None

    def _tell(self, message: Message) -> None:
        for peer in self._peers.values():
            peer.send(message)

    def _name(self, index: int) -> str:
        """Returns a worker in words, counted from 1 as in `devices.describe`."""
        return f"worker {index + 1} of {len(self._addresses)} ({self._addresses[index]})"

    def _names(self, indices: Collection[int]) -> str:
        return ", ".join(self._name(index) for index in sorted(indices))

    def _admit_others(self, wait: _Wait) -> None:
        """Lets the other workers connect to this one, the chief."""
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
        """Takes a connection for that of a worker if it says so."""
        try:
            hello = peer.receive(_HELLO_SECONDS) or {}
        except EOFError:
            hello = {}
        index, count = hello.get("worker"), hello.get("of")
        if index is None:  # something else tries this port
            peer.close()
            return
        self._drop_ended()
        problem = ""
        if count != len(self._addresses):
            problem = f"one names {len(self._addresses)} workers, another one {count}"
        elif index in self._peers or not 0 < index < count:
            problem = f"two workers have the index {index}"
        if problem:
            error = ValueError(f"the TF_CONFIG of the workers differ: {problem}")
            peer.send(_failure(str(self), error))
            peer.close()
            raise error
        self._peers[index] = peer

    def _drop_ended(self) -> None:
        """Forgets workers that have ended while the others are waited for."""
        for index, peer in list(self._peers.items()):
            try:
                _unless_failed(peer.receive(0))
            except EOFError:
                self._peers.pop(index).close()

    def _join_chief(self, wait: _Wait) -> None:
        """Connects to the chief, and waits until all others have as well."""
        missing = {0}
        while missing:
            wait.check(self._names(missing))
            try:
                if not self._peers:
                    self._peers[0] = self._call_chief()
                if message := _unless_failed(self._peers[0].receive()):
                    missing = set(message["missing"])
            except (OSError, EOFError):  # it does not listen yet, or has ended
                for peer in self._peers.values():
                    peer.close()
                self._peers, missing = {}, {0}
                time.sleep(_POLL_SECONDS)

    def _call_chief(self) -> _Peer:
        connection = socket.create_connection(_split(self._addresses[0]), timeout=_HELLO_SECONDS)
        connection.settimeout(None)
        peer = _Peer(connection)
        peer.send({"worker": self._index, "of": len(self._addresses)})
        return peer


def _failure(name: str, error: BaseException) -> Message:
    """Returns the message of a worker that ends with an error."""
    if isinstance(error, InterruptedRunError):  # the failure of another worker
        return {"failed": str(error)}
    reason = str(error).partition("\n")[0].rstrip(".:") or type(error).__name__
    return {"failed": f"{name} has failed: {reason}. {_AGAIN}"}


def _unless_failed(message: Message | None) -> Message | None:
    """Returns a message; raises InterruptedRunError if it tells of a failure."""
    if message and "failed" in message:
        raise InterruptedRunError(message["failed"])
    return message


@contextlib.contextmanager
def losses_interrupt() -> Iterator[None]:
    """Raises InterruptedRunError in place of what TensorFlow raises when a worker is gone."""
    try:
        yield
    except _LOST_WORKER as error:
        reason = _NODE.sub("", error.message.splitlines()[0])
        raise InterruptedRunError(
            f"another worker is gone ({reason}). {_AGAIN} The run resumes from the last checkpoint."
        ) from None


def _listen(address: str) -> socket.socket:
    """Returns a socket that listens on the port of an address, on all interfaces."""
    port = _split(address)[1]
    is_dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual else socket.AF_INET
    try:
        server = socket.create_server(("", port), family=family, dualstack_ipv6=is_dual)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(
            f"TF_CONFIG: this worker cannot listen at {address} ({reason}). An earlier run may "
            "still use that port: end it, or name another port."
        ) from None
    server.settimeout(_POLL_SECONDS)
    return server


def _split(address: str) -> tuple[str, int]:
    """Returns host and port of an address."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def from_environment() -> Workers:
    """Returns the workers that TF_CONFIG names, and which of them this process is.

    Raises:
        ValueError: TF_CONFIG names no such worker.
    """
    config = json.loads(os.environ["TF_CONFIG"])
    chiefs, others = (config["cluster"].get(kind, []) for kind in ("chief", "worker"))
    task = config["task"]
    # A chief, where there is one, comes before all workers.
    index = int(task["index"]) + (len(chiefs) if task["type"] == "worker" else 0)
    addresses = [*chiefs, *others]
    if not 0 <= index < len(addresses):
        raise ValueError(f"TF_CONFIG: there is no worker {task['index']} among {addresses}")
    return Workers(addresses, index)
