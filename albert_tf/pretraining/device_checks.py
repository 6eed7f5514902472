"""Checks of the pre-training step on a device, by comparison with the CPU and between runs.

Each check takes the name of a device and returns an `Outcome`. A check changes the state of
TensorFlow in its process (devices, precision, determinism), so each one needs a process of its own;
`commands/check_device.py` starts them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import platform
import resource
import statistics
import subprocess
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from numpy.typing import NDArray

from albert_tf import acceleration, included, optimization
from albert_tf.config import AlbertConfig
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training import devices, precision
from albert_tf.training.settings import DeviceSettings
from albert_tf.training.step import StepOptions, TrainStep

SMALL = AlbertConfig(
    vocab_size=1000,
    embedding_size=64,
    hidden_size=256,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=512,
    max_position_embeddings=128,
    type_vocab_size=2,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
ROWS, LENGTH, PREDICTIONS = 8, 32, 5
# Largest norms of the differences from the CPU, relative to the norm of the CPU's values.
FLOAT32_LIMIT, BFLOAT16_LIMIT = 1e-4, 5e-2
STEPS = 3
TWO_DEVICES_LIMIT = 1e-5
SHAPES = {"8x128": (8, 128, 20), "4x512": (4, 512, 76)}  # rows, tokens and masked tokens
TIMED_STEPS = 5

Batch = dict[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a check.

    Attributes:
        is_passed: whether the check passed; None if it was skipped.
        text: the figures, or why it failed or was skipped.
        figures: figures that other checks compare theirs with.
    """

    is_passed: bool | None
    text: str
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)


def random_batch(rows: int, length: int, predictions: int, vocab_size: int) -> Batch:
    """Returns a batch of random tokens without padding, [rows, length]."""
    rng = np.random.default_rng(5)
    shape, masked = (rows, length), (rows, predictions)
    return {
        "input_ids": rng.integers(5, vocab_size, shape, np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": np.tile(np.arange(length, dtype=np.int32) * 2 // length, (rows, 1)),
        "masked_lm_positions": np.tile(np.arange(1, predictions + 1, dtype=np.int32), (rows, 1)),
        "masked_lm_ids": rng.integers(5, vocab_size, masked, np.int32),
        "masked_lm_weights": np.ones(masked, np.float32),
        "next_sentence_labels": rng.integers(0, 2, (rows, 1), np.int32),
    }


def find_strategy(device: str, tpu_name: str = "") -> tf.distribute.Strategy:
    """Returns the strategy that computes on a device: "cpu", "gpu" or "tpu".

    Raises:
        ValueError: TensorFlow does not find the device; the message says why.
    """
    if device == "tpu":
        return devices.make_strategy(DeviceSettings(use_tpu=True, tpu_name=tpu_name or None))
    if device == "gpu" and not tf.config.list_physical_devices("GPU"):
        raise ValueError(f"TensorFlow finds no GPU: {devices.why_no_gpu()}")
    return tf.distribute.OneDeviceStrategy(f"/{device}:0")


def check_versions(device: str, tpu_name: str) -> Outcome:
    """Lists the versions of the software, and names the device and its memory."""
    strategy = find_strategy(device, tpu_name)
    build = tf.sysconfig.get_build_info()
    parts = [f"TensorFlow {tf.__version__}", f"tf_keras {tf_keras.__version__}"]
    parts.append(f"Python {platform.python_version()}")
    if device == "gpu":
        parts += [f"{key} {build.get(key, '?')}" for key in ("cuda_version", "cudnn_version")]
        parts.append(_ask_driver())
    name = devices.describe(strategy) if device != "cpu" else cpu_name()
    return Outcome(True, "; ".join([name, *parts]))


def _ask_driver() -> str:
    """Returns driver, name and memory of the GPUs, as the driver reports them."""
    command = [
        "nvidia-smi",
        "--query-gpu=driver_version,name,memory.total",
        "--format=csv,noheader",
    ]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return "driver " + " / ".join(done.stdout.strip().splitlines())
    return "driver unknown (nvidia-smi failed)"


def cpu_name() -> str:
    """Returns the name of the processor, or else of its architecture."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as stream:
        for line in stream:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _outputs_and_gradients(
    strategy: tf.distribute.Strategy, precision_name: str, weights: Sequence[Any] | None = None
) -> tuple[Sequence[Any], NDArray[np.float32], NDArray[np.float32]]:
    """Returns the weights of a small model, its outputs and the gradient of its loss, flat."""
    precision.apply(precision_name)
    tf_keras.utils.set_random_seed(3)
    task = PretrainingTask(SMALL, LENGTH, PREDICTIONS)
    with strategy.scope():
        model = task.build_model()
        if weights is not None:
            model.set_weights(weights)
    batch = random_batch(ROWS, LENGTH, PREDICTIONS, SMALL.vocab_size)
    inputs = {name: tf.constant(value) for name, value in batch.items()}

    def compute(inputs: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True, dropout_seed=tf.constant((3, 4)))
            loss, _ = task.loss(outputs, inputs)
        gradients = tape.gradient(loss, model.trainable_variables)
        return _flat(outputs.values()), _flat(gradients)

    results = tf.function(lambda x: strategy.run(compute, args=(x,)), autograph=False)(inputs)
    outputs, gradient = (strategy.experimental_local_results(x)[0].numpy() for x in results)
    return model.get_weights(), outputs, gradient


def _flat(tensors: Any) -> tf.Tensor:
    """Returns all elements of some tensors, float32 [n]."""
    parts = [tf.convert_to_tensor(x) for x in tensors if x is not None]
    return tf.concat([tf.reshape(tf.cast(x, tf.float32), (-1,)) for x in parts], axis=0)


def relative_error(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Returns the norm of the difference divided by the norm of the expected values."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def _errors(device: str, tpu_name: str, precision_name: str, uses_tf32: bool) -> list[float]:
    """Returns the relative errors of outputs and gradient against plain operations on the CPU."""
    strategy = find_strategy(device, tpu_name)  # a TPU must be found before anything else
    tf.config.experimental.enable_tensor_float_32_execution(uses_tf32)
    with acceleration.plain():
        weights, *expected = _outputs_and_gradients(find_strategy("cpu"), "float32")
    _, *found = _outputs_and_gradients(strategy, precision_name, weights)
    return [relative_error(a, b) for a, b in zip(found, expected, strict=True)]


def check_float32(device: str, tpu_name: str) -> Outcome:
    """Compares outputs and gradients in float32 with those of plain operations on the CPU."""
    outputs, gradient = _errors(device, tpu_name, "float32", uses_tf32=False)
    text = f"outputs {outputs:.1e}, gradient {gradient:.1e} from the CPU, without TF32"
    if device == "gpu":
        with_tf32 = _errors(device, tpu_name, "float32", uses_tf32=True)
        text += f"; with TF32 {with_tf32[0]:.1e}, {with_tf32[1]:.1e}"
    return _within(text, max(outputs, gradient), FLOAT32_LIMIT)


def check_bfloat16(device: str, tpu_name: str) -> Outcome:
    """Compares outputs and gradients in bfloat16 with those in float32 on the CPU."""
    outputs, gradient = _errors(device, tpu_name, "bfloat16", uses_tf32=False)
    text = f"outputs {outputs:.1e}, gradient {gradient:.1e} from float32 on the CPU"
    return _within(text, max(outputs, gradient), BFLOAT16_LIMIT)


def _within(text: str, value: float, limit: float) -> Outcome:
    return Outcome(value <= limit, f"{text} (at most {limit:g})")


def make_step(
    strategy: tf.distribute.Strategy, config: AlbertConfig, batch: Batch, **options: Any
) -> tuple[TrainStep, dict[str, tf.Tensor]]:
    """Returns a training step with AdamW in the current precision, and the batch as tensors."""
    tf_keras.utils.set_random_seed(3)
    task = PretrainingTask(config, batch["input_ids"].shape[1], batch["masked_lm_ids"].shape[1])
    schedule = optimization.WarmUpPolynomialDecay(1e-4, 1000)
    with strategy.scope():
        model = task.build_model()
        optimizer = optimization.create_optimizer("adamw", schedule)
    step = TrainStep(model, task, optimizer, StepOptions(**options), strategy)
    return step, {name: tf.constant(value) for name, value in batch.items()}


def _train(
    strategy: tf.distribute.Strategy, config: AlbertConfig, weights: Sequence[Any] | None = None
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Returns the weights of a small model before and after a few steps in float32."""
    precision.apply("float32")
    batch = random_batch(ROWS, LENGTH, PREDICTIONS, config.vocab_size)
    step, inputs = make_step(strategy, config, batch)
    if weights is not None:
        step.model.set_weights(weights)
    before = step.model.get_weights()
    for _ in range(STEPS):
        step(inputs)
    return before, step.model.get_weights()


def check_determinism(device: str, tpu_name: str) -> Outcome:
    """Trains twice with dropout and TensorFlow's deterministic operations; compares the bits."""
    tf.config.experimental.enable_op_determinism()
    strategy = find_strategy(device, tpu_name)
    config = dataclasses.replace(SMALL, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    before, first = _train(strategy, config)
    _, second = _train(strategy, config, before)
    digests = [hashlib.sha256(b"".join(w.tobytes() for w in run)) for run in (first, second)]
    found = [digest.hexdigest()[:12] for digest in digests]
    return Outcome(found[0] == found[1], f"SHA-256 of the weights of two runs: {', '.join(found)}")


def check_two_devices(device: str, tpu_name: str) -> Outcome:
    """Trains on several devices, and on one; compares the weights."""
    tf.config.experimental.enable_tensor_float_32_execution(False)
    count = len(tf.config.list_physical_devices("GPU"))
    if device == "gpu" and count < 2:
        return Outcome(None, f"needs two GPUs; this machine has {count}")
    if device == "tpu":
        several, one = find_strategy(device, tpu_name), find_strategy("cpu")
    else:
        settings = DeviceSettings(distribution="mirrored", num_devices=2)
        several, one = devices.make_strategy(settings), find_strategy(device)
    if ROWS % several.num_replicas_in_sync:
        return Outcome(None, f"needs a divisor of {ROWS} cores, not {devices.describe(several)}")
    before, expected = _train(one, SMALL)
    _, found = _train(several, SMALL, before)
    worst = max(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True))
    text = f"{several.num_replicas_in_sync} devices: weights differ by {worst:.1e}"
    return _within(text, worst, TWO_DEVICES_LIMIT)


def check_speed(device: str, tpu_name: str, shape: str) -> Outcome:
    """Measures time and peak memory of a training step of ALBERT base.

    Args:
        device: "cpu", "gpu" or "tpu".
        tpu_name: name of the TPU.
        shape: a key of `SHAPES`.
    """
    strategy = find_strategy(device, tpu_name)
    precision_name, _ = precision.resolve("auto")
    precision.apply(precision_name)
    rows, length, predictions = SHAPES[shape]
    config = base_config()
    batch = random_batch(rows, length, predictions, config.vocab_size)
    step, inputs = make_step(strategy, config, batch, jit_compile=device == "gpu")
    seconds = []
    for _ in range(TIMED_STEPS + 2):  # the first two compile
        begin = time.perf_counter()
        loss = step(inputs)["loss"].numpy()
        seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds[2:])
    megabytes = _peak_megabytes(device)
    memory = f", peak {megabytes} MB" if megabytes else ""
    text = f"{median:.4g} s a step in {precision_name}{memory} (first step {seconds[0]:.1f} s)"
    figures = {"seconds": median, "megabytes": megabytes, "precision": precision_name}
    return Outcome(bool(np.isfinite(loss).all()), text, figures)


def base_config() -> AlbertConfig:
    """Returns the config of ALBERT base without dropout."""
    config = AlbertConfig.from_json_file(included.config_file("albert_base"))
    return dataclasses.replace(config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def _peak_megabytes(device: str) -> int:
    """Returns the peak memory of the device in MB; that of the process on a CPU; 0 if unknown."""
    if device == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    with contextlib.suppress(ValueError, tf.errors.OpError):
        name = f"{device.upper()}:0"
        return int(tf.config.experimental.get_memory_info(name)["peak"]) // 2**20
    return 0
