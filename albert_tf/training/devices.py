"""Distribution strategies: one device, several devices, several machines, or a TPU.

`make_strategy` creates a `tf.distribute` strategy from the settings, using the Model Garden's
`official.common.distribute_utils` where possible. The other functions describe a strategy: the
number of replicas, and the rows of a batch that each process computes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import json
import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
import tf_keras
from absl import logging
from official.common import distribute_utils

from albert_tf.checkpoints.run_record import table
from albert_tf.training import interruption
from albert_tf.training.interruption import InterruptedRunError
from albert_tf.training.settings import DeviceSettings

_TF_CONFIG_EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
)
_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"  # set by `albert_tf/__init__.py`, unless it is set already
_INSTALL_CUDA = "pip install 'tensorflow[and-cuda]~=2.20.0'"
_GPU_FILES = ("/dev/nvidia[0-9]*", "/dev/dxg")  # Linux, and Windows Subsystem for Linux


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices of a run, and the precision they compute in.

    Attributes:
        strategy: the distribution strategy.
        precision: "float32", "bfloat16" or "float16".
    """

    strategy: tf.distribute.Strategy
    precision: str

    @property
    def is_chief(self) -> bool:
        """Whether this process writes files; of several workers, only the first one does."""
        return is_chief(self.strategy)


@contextlib.contextmanager
def open_devices(settings: DeviceSettings, reason: str | None = None) -> Iterator[Devices]:
    """Context manager that sets up devices, threads and precision.

    Keras' precision policy is restored at the end of the block. The block must be entered before
    TensorFlow is initialized.

    Args:
        settings: the devices, threads and precision.
        reason: why the precision was chosen, for the log, if it was not by a flag or the hardware.

    Raises:
        ValueError: the settings require devices that do not exist.
    """
    _set_threads(settings.threads)
    strategy = make_strategy(settings)
    name, why = resolve_precision(settings.precision)
    policy = tf_keras.mixed_precision.global_policy()
    apply_precision(name)
    why = f"{reason or why}{precision_difference(name)}"
    logging.info("%-9s %s, %s: %s", "device", describe(strategy), name, why)
    try:
        yield Devices(strategy, name)
    finally:
        tf_keras.mixed_precision.set_global_policy(policy)


def _set_threads(threads: int | None) -> None:
    if not threads or threads == tf.config.threading.get_intra_op_parallelism_threads():
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    except RuntimeError:
        raise ValueError(
            f"--threads={threads}: TensorFlow is already initialized, so its number of threads "
            "can no longer be changed. Set it in a new process."
        ) from None


def choose_distribution(settings: DeviceSettings) -> str:
    """Returns the name of the distribution to use, resolving "auto".

    Raises:
        ValueError: the settings contradict each other, or TF_CONFIG is invalid.
    """
    name = settings.distribution
    if settings.use_tpu and name not in ("auto", "tpu"):
        raise ValueError(
            f"--use_tpu and --distribution={name} are mutually exclusive: use only one of them"
        )
    if name != "auto":
        return name
    if settings.use_tpu:
        return "tpu"
    if _count_workers() > 1:
        return "multi_worker"
    count = settings.num_devices or len(tf.config.list_physical_devices("GPU"))
    return "mirrored" if count > 1 else "one_device"


def _count_workers() -> int:
    """Returns the number of training processes in TF_CONFIG; 1 if it is not set."""
    if not os.environ.get("TF_CONFIG"):
        return 1
    try:
        return distribute_utils.configure_cluster()
    except KeyError:  # TF_CONFIG has a task, but no cluster
        return 1
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(
            f"TF_CONFIG is invalid ({error}): {os.environ['TF_CONFIG']!r}. "
            f"A valid example: {_TF_CONFIG_EXAMPLE}"
        ) from None


def make_strategy(settings: DeviceSettings) -> tf.distribute.Strategy:
    """Creates the distribution strategy for the settings.

    Raises:
        ValueError: TF_CONFIG is missing, there are too few devices, or TensorFlow has already been
            initialized.
    """
    name = choose_distribution(settings)
    if name == "one_device":
        # Unlike the Model Garden's OneDeviceStrategy, the default strategy has no overhead.
        strategy = tf.distribute.get_strategy()
    elif name == "tpu":
        strategy = _tpu_strategy(settings)
    elif name == "mirrored":
        strategy = _mirrored_strategy(settings.num_devices)
    else:
        strategy = _multi_worker_strategy(settings.num_devices)
    if not is_tpu(strategy):
        _warn_of_unused_gpus()
    return strategy


def _mirrored_strategy(num_devices: int | None) -> tf.distribute.Strategy:
    count = len(tf.config.list_physical_devices("GPU"))
    if count:
        if num_devices and num_devices > count:
            raise ValueError(f"--num_devices={num_devices}: this machine has {count} GPU(s)")
        return distribute_utils.get_distribution_strategy("mirrored", num_gpus=num_devices or count)
    if not num_devices:
        raise ValueError(
            f"--distribution=mirrored: TensorFlow finds no GPU: {why_no_gpu()}. To use logical "
            "devices of the CPU instead, set their number, for example --num_devices=2."
        )
    logging.warning(
        "--num_devices=%d: TensorFlow finds no GPU in this machine. Using %d logical devices of "
        "the CPU, which are not faster than one.",
        num_devices,
        num_devices,
    )
    _split_cpu(num_devices)
    return tf.distribute.MirroredStrategy([f"/cpu:{number}" for number in range(num_devices)])


def _warn_of_unused_gpus() -> None:
    """Warns if this machine has an NVIDIA GPU that TensorFlow does not find."""
    if any(map(glob.glob, _GPU_FILES)) and not tf.config.list_physical_devices("GPU"):
        text = "This machine has an NVIDIA GPU, but TensorFlow finds none: %s"
        logging.warning(text, why_no_gpu())


def why_no_gpu() -> str:
    """Returns why TensorFlow finds no GPU, or what to check, and the command that repairs it."""
    if not tf.test.is_built_with_cuda():
        return f"it is built without CUDA. Run: {_INSTALL_CUDA}"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and hidden.strip() in ("", "-1"):
        return f"CUDA_VISIBLE_DEVICES={hidden!r} hides them"
    return f"check the driver with nvidia-smi, and install the CUDA libraries with {_INSTALL_CUDA}"


def _split_cpu(count: int) -> None:
    """Splits the CPU of this machine into `count` logical devices."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    try:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * count
        )
    except RuntimeError as error:
        if len(tf.config.list_logical_devices("CPU")) < count:
            raise ValueError(
                f"the CPU can no longer be split into --num_devices={count}: {error}"
            ) from None


def _multi_worker_strategy(num_devices: int | None) -> tf.distribute.Strategy:
    if _count_workers() < 2:
        raise ValueError(
            "--distribution=multi_worker: the environment variable TF_CONFIG must list the "
            f"workers and the index of this one, for example {_TF_CONFIG_EXAMPLE}"
        )
    count = max(1, len(tf.config.list_physical_devices("GPU")))
    if num_devices and num_devices > count:
        raise ValueError(f"--num_devices={num_devices}: this worker can only use {count} device(s)")
    logging.info("Waiting for all workers in TF_CONFIG")
    with interruption.unchanged_handlers():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # TensorFlow returns to Python when all came
        return distribute_utils.get_distribution_strategy("multi_worker_mirrored")


def _tpu_strategy(settings: DeviceSettings) -> tf.distribute.Strategy:
    # Not the Model Garden's function, which has no arguments for zone and project.
    name = settings.tpu_name or "local"
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=name, zone=settings.tpu_zone, project=settings.gcp_project
        )
        if name != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError) as error:
        reason = str(error).partition("\n")[0]  # a listing may follow
        raise ValueError(
            f"--use_tpu: cannot initialize the TPU --tpu_name={name}: {reason}\n"
            "docs/tpu.md has the packages that a TPU needs, and the flags of a remote one."
        ) from None
    return tf.distribute.TPUStrategy(resolver)


def is_tpu(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether a strategy uses a TPU."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process writes files; of several workers, only the first one does."""
    return bool(strategy.extended.should_checkpoint)


def is_multi_worker(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether several processes train together."""
    return strategy.num_replicas_in_sync != num_local_replicas(strategy)


def num_local_replicas(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of model replicas in this process, one per device."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return len(strategy.extended.worker_devices)
    return strategy.num_replicas_in_sync


def first_local_replica(strategy: tf.distribute.Strategy) -> int:
    """Returns the index, over all workers, of the first replica in this process."""
    if not is_multi_worker(strategy):
        return 0
    resolver = strategy.cluster_resolver
    # The chief, if there is one, comes before all workers.
    has_chief = bool(resolver.cluster_spec().as_dict().get("chief"))
    index = resolver.task_id + (has_chief and resolver.task_type == "worker")
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
        ValueError: the workers differ. The message has a table of the differences.
    """
    line = tf.constant(list(json.dumps(dict(texts)).encode("utf-8") + b"\n"), tf.int32)
    gathered = strategy.run(lambda: tf.distribute.get_replica_context().all_gather(line, axis=0))
    first = strategy.experimental_local_results(gathered)[0]
    everyone = [json.loads(text) for text in bytes(first.numpy().tolist()).splitlines()]
    names = sorted(set().union(*everyone))
    rows = {name: [each.get(name, "-") for each in everyone] for name in names}
    differing = {name: row for name, row in rows.items() if len(set(row)) > 1}
    if differing:
        headings = [f"replica {number}" for number, _ in enumerate(everyone, 1)]
        shown = table(headings, differing)
        raise ValueError(f"the workers would not run the same training:\n{shown}")


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


# Mixed precision: selection by device, and loss scaling for float16.
#
# With bfloat16 and float16, only matmuls and the activations between them use the smaller type.
# Variables, optimizer moments, the statistics of LayerNorm, softmax and losses stay in float32.

_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}
_CPU_INFO = "/proc/cpuinfo"
_CPU_FLAGS = {"amx_bf16": "AMX", "avx512_bf16": "AVX-512"}  # instruction sets with bfloat16 matmuls
# Compute capabilities.
_FIRST_BFLOAT16_GPU = (8, 0)
_FIRST_FLOAT16_GPU = (7, 0)

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices


def resolve_precision(precision: str) -> tuple[str, str]:
    """Returns the precision to use, resolving "auto" by the hardware of this machine.

    Args:
        precision: as in `DeviceSettings`.

    Returns:
        "float32", "bfloat16" or "float16", and the reason for it, which is logged.
    """
    if precision != "auto":
        return precision, f"--precision={precision}"
    if tf.config.list_logical_devices("TPU"):
        return "bfloat16", "TPUs support bfloat16"
    gpus = tf.config.list_physical_devices("GPU")
    return _of_gpus(gpus) if gpus else _of_cpu(_read_cpu_info())


def precision_difference(precision: str) -> str:
    """Returns how losses in a precision differ from Google's, as text to append to a message.

    Args:
        precision: "float32", "bfloat16" or "float16".

    Returns:
        Text that ends the current sentence and adds another; "" for float32, which Google's
        programs use.
    """
    if precision == "float32":
        return ""
    return (
        ". Losses differ from those of Google's programs, which compute in float32, by about 1e-3; "
        "--precision=float32 gives Google's numbers."
    )


def _of_gpus(gpus: Sequence[Any]) -> tuple[str, str]:
    """Returns the precision and reason for the least capable of the GPUs."""
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    # A GPU that does not report its compute capability is assumed to be old.
    capability = min(tuple(gpu.get("compute_capability") or (0, 0)) for gpu in details)
    name = f"a GPU of compute capability {'.'.join(map(str, capability))}"
    if capability >= _FIRST_BFLOAT16_GPU:
        return "bfloat16", f"{name} supports bfloat16"
    if capability >= _FIRST_FLOAT16_GPU:
        return "float16", f"{name} supports float16, but not bfloat16"
    return "float32", f"{name} has no fast half precision"


def _of_cpu(info: str) -> tuple[str, str]:
    """Returns the precision and reason for a CPU described by the text of /proc/cpuinfo."""
    cpu_flags = set(info.split())
    for flag, unit in _CPU_FLAGS.items():
        if flag in cpu_flags:
            return "bfloat16", f"this CPU supports bfloat16 ({unit})"
    return "float32", "this CPU does not support bfloat16"


def _read_cpu_info() -> str:
    try:
        with open(_CPU_INFO, encoding="utf-8") as stream:
            return stream.read()
    except OSError:  # not Linux
        return ""


def apply_precision(precision: str) -> None:
    """Sets the compute dtype of models that are built from now on; variables stay float32.

    Args:
        precision: "float32", "bfloat16" or "float16", as returned by `resolve_precision`.
    """
    tf_keras.mixed_precision.set_global_policy(_POLICIES[precision])


def current_precision() -> str:
    """Returns the current compute dtype for new models: "float32", "bfloat16" or "float16"."""
    return tf_keras.mixed_precision.global_policy().compute_dtype


class LossScale:
    """Dynamic loss scaling, which keeps gradients within the range of float16.

    The loss is multiplied by the scale, and the gradients are divided by it. If gradients overflow,
    the step is skipped and the scale is halved. After `growth_steps` consecutive good steps, the
    scale is doubled. Source: arXiv 1710.03740, section 3.2.

    This replaces `tf_keras.mixed_precision.LossScaleOptimizer`, whose scale is not a named variable
    that could be stored in a checkpoint, which skips steps with `tf.cond`, and which checks every
    gradient for overflow, although the norm computed for clipping already shows it.

    Args:
        initial: the initial scale.
        growth_steps: number of consecutive good steps after which the scale is doubled.
        minimum: lower limit of the scale. If a step overflows at this scale, its gradients are not
            finite even without loss scaling.

    Attributes:
        value: the scale, float32 scalar.
        good_steps: number of good steps since the scale last changed, int64 scalar.
    """

    def __init__(
        self, initial: float = 2.0**15, growth_steps: int = 2000, minimum: float = 1.0
    ) -> None:
        self.growth_steps = growth_steps
        self.minimum = minimum
        self.value = tf.Variable(initial, trainable=False, dtype=tf.float32, name="loss_scale")
        self.good_steps = tf.Variable(0, trainable=False, dtype=tf.int64, name="good_steps")

    def scale(self, loss: tf.Tensor) -> tf.Tensor:
        """Returns the scaled loss in the dtype of `loss`."""
        return loss * tf.cast(self.value, loss.dtype)

    def unscale(self, gradients: Sequence[Gradient | None]) -> list[Gradient | None]:
        """Returns the gradients of the unscaled loss in float32.

        Args:
            gradients: the gradient of the scaled loss for each variable, or None if the loss does
                not depend on it. Those of embedding tables may be `tf.IndexedSlices`.
        """
        factor = 1.0 / self.value
        return [
            None if gradient is None else tf.math.scalar_mul(factor, gradient)
            for gradient in gradients
        ]

    def update(self, is_finite: tf.Tensor) -> None:
        """Halves the scale after an overflow, or doubles it after enough good steps.

        Args:
            is_finite: whether the gradients of all replicas are finite, bool scalar.
        """
        count = tf.where(is_finite, self.good_steps + 1, 0)
        grows = count >= self.growth_steps
        grown = tf.where(grows, 2.0 * self.value, self.value)
        # Never double to infinity, from which halving could not recover.
        grown = tf.where(tf.math.is_finite(grown), grown, self.value)
        halved = tf.maximum(0.5 * self.value, self.minimum)
        self.value.assign(tf.where(is_finite, grown, halved))
        self.good_steps.assign(tf.where(grows, tf.zeros_like(count), count))
