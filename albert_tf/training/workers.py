"""Several workers: the comparison of what they are going to train, and the loss of one of them."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping

import tensorflow as tf

from albert_tf.checkpoints.record_comparison import lines_of
from albert_tf.training.interruption import InterruptedRunError

_NODE = re.compile(r"^\{\{function_node .*?\}\} ")  # prefix of TensorFlow's error messages
# Lines of them that say where, not why.
_PLACE = re.compile(r"\s|$|Graph execution error|Detected at node|File |<stack traces")
# Errors of collective operations when a worker is lost.
_LOST_WORKER = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
)


def check_same(strategy: tf.distribute.Strategy, texts: Mapping[str, str]) -> None:
    """Compares what the workers are going to train, by an all-gather.

    Args:
        strategy: the strategy of several workers.
        texts: name → text that must be the same on all workers.

    Raises:
        ValueError: the workers differ. The message has a line for each difference.
    """
    line = tf.constant(list(json.dumps(dict(texts)).encode("utf-8") + b"\n"), tf.int32)
    gathered = strategy.run(lambda: tf.distribute.get_replica_context().all_gather(line, axis=0))
    first = strategy.experimental_local_results(gathered)[0]
    everyone = [json.loads(text) for text in bytes(first.numpy().tolist()).splitlines()]
    names = sorted(set().union(*everyone))
    rows = {name: [each.get(name, "-") for each in everyone] for name in names}
    differing = {name: row for name, row in rows.items() if len(set(row)) > 1}
    if differing:
        shown = lines_of(differing, between=" | ")
        raise ValueError(f"the workers would not run the same training; by replica:\n{shown}")


@contextlib.contextmanager
def losses_interrupt() -> Iterator[None]:
    """Converts TensorFlow's errors for a lost worker to InterruptedRunError."""
    try:
        yield
    except _LOST_WORKER as error:
        lines = [line for line in error.message.splitlines() if not _PLACE.match(line)]
        reason = _NODE.sub("", lines[0]) if lines else type(error).__name__
        raise InterruptedRunError(
            f"another worker was lost ({reason}). Start all workers again. The run resumes from "
            "the last checkpoint."
        ) from None
