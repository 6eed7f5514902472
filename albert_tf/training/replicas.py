"""What a distribution strategy tells: its replicas, the rows of each process, and its workers."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping

import tensorflow as tf

from albert_tf.checkpoints.record_comparison import lines_of
from albert_tf.training.interruption import InterruptedRunError

_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"  # set by `albert_tf/__init__.py`, unless it is set already
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


def is_tpu(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether a strategy uses a TPU."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process writes files; of several workers, only the first one does."""
    return bool(strategy.extended.should_checkpoint)


def is_multi_worker(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether several processes train together."""
    return bool(strategy.num_replicas_in_sync != num_local_replicas(strategy))


def num_local_replicas(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of model replicas in this process, one per device."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return len(strategy.extended.worker_devices)
    count: int = strategy.num_replicas_in_sync
    return count


def first_local_replica(strategy: tf.distribute.Strategy) -> int:
    """Returns the index, over all workers, of the first replica in this process."""
    if not is_multi_worker(strategy):
        return 0
    resolver = strategy.cluster_resolver
    index: int = resolver.task_id
    has_chief = bool(resolver.cluster_spec().as_dict().get("chief"))
    if has_chief and resolver.task_type == "worker":
        index += 1  # the chief comes before all workers
    return index * num_local_replicas(strategy)


def local_rows(strategy: tf.distribute.Strategy, batch_size: int) -> slice:
    """Returns the rows of each global batch that this process computes.

    Args:
        strategy: a strategy of `make_strategy`.
        batch_size: the global batch size, a multiple of the number of replicas.
    """
    share = batch_size // strategy.num_replicas_in_sync
    first = first_local_replica(strategy) * share
    return slice(first, first + num_local_replicas(strategy) * share)


def check_batch_size(
    strategy: tf.distribute.Strategy, batch_size: int, accumulation_steps: int
) -> None:
    """Checks that a batch can be divided among replicas and micro-batches.

    Args:
        strategy: a strategy of `make_strategy`.
        batch_size: the global batch size.
        accumulation_steps: the number of micro-batches of each replica.

    Raises:
        ValueError: the batch size is not divisible by replicas and accumulation steps.
    """
    replicas = strategy.num_replicas_in_sync
    if batch_size % (replicas * accumulation_steps):
        raise ValueError(
            f"--train_batch_size={batch_size} is not a multiple of {replicas} device(s) x "
            f"--gradient_accumulation_steps={accumulation_steps}"
        )


def describe(strategy: tf.distribute.Strategy) -> str:
    """Returns a description of the devices, such as "2 x Tesla V100, worker 1 of 2"."""
    if is_tpu(strategy):
        return f"{strategy.num_replicas_in_sync} TPU core(s)"
    kind = "CPU"
    gpus = tf.config.list_physical_devices("GPU")
    if gpus and tf.config.list_logical_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpus[0])
        kind = details.get("device_name", "GPU")
    elif os.environ.get(_ONEDNN) == "1":
        kind = "CPU with oneDNN"
    count = num_local_replicas(strategy)
    text = f"{count} x {kind}" if count > 1 else f"one {kind}"
    if is_multi_worker(strategy):
        number = first_local_replica(strategy) // count + 1
        text += f", worker {number} of {strategy.num_replicas_in_sync // count}"
    return text


# Several workers.


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
