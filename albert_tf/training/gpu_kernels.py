"""Which kernels for NVIDIA GPUs the GPUs of this machine take: each is tried once, before training.

Only on the device is it known whether its driver and cuDNN take fused attention, and XLA the other
kernels. What they refuse stays as XLA compiles it, and a line in the log has the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from albert_tf.model import dispatch, ops, tensorflow_internals
from albert_tf.model.config import AlbertConfig
from albert_tf.model.kernels import gpu
from albert_tf.model.kernels.triton import attention as triton_attention
from albert_tf.model.modeling import AlbertModel
from albert_tf.training.devices import current_precision

# What is tried → the operations that have kernels for it. Projections of their own gain nothing
# without fused attention, which reads their results as they lie in memory.
PARTS: Mapping[str, tuple[str, ...]] = {
    "attention": ("attention", "project_heads"),
    "feed_forward": ("feed_forward",),
    "add_and_norm": ("add_and_norm",),
}
LARGEST_DIFFERENCE = 0.03  # of the norm: bfloat16 makes 0.005, a wrong mask or scale more than 0.1
_ROWS = 2
_LENGTH = 512  # of the sequences that are tried, if the model has as many positions
_SEED = (5, 7)
_INTERMEDIATE = 1024  # units of the feed-forward network that is tried
_WEIGHT = 1 / 32  # of that network, with random signs
_REASON_LENGTH = 300


def usable_kernels(model: AlbertModel) -> frozenset[str]:
    """Returns the operations of which compiled steps of a model can run the kernels for GPUs.

    The log has a line with the parts of a layer that they compute, and a line with the reason for
    each other part. It has none on a machine without a GPU.
    """
    if not tf.config.list_physical_devices("GPU"):
        return frozenset()
    if reason := _why_none():
        logging.info("%-9s none for NVIDIA GPUs, because %s", "kernels", reason)
        return frozenset()
    reasons = {part: _why_not(part, model.config) for part in PARTS}
    taken = [part for part, reason in reasons.items() if not reason]
    logging.info("%-9s for NVIDIA GPUs: %s", "kernels", ", ".join(taken) or "none")
    for part, reason in reasons.items():
        if reason:
            logging.info("%-9s %s as XLA compiles it, because %s", "kernels", part, reason)
    return frozenset(operation for part in taken for operation in PARTS[part])


def _why_none() -> str:
    """Returns why no kernel can be used in the current precision; "" if some can."""
    if not tf.test.is_built_with_cuda() or not tensorflow_internals.embeds_modules():
        return f"TensorFlow {tf.__version__} cannot call them"
    dtype = tf.as_dtype(current_precision())
    if dtype not in gpu.HALF:
        return f"they take bfloat16 or float16, and not {dtype.name}"
    return ""


def _why_not(part: str, config: AlbertConfig) -> str:
    """Returns why a part of a layer has no kernel on this machine; "" if it has."""
    dtype = tf.as_dtype(current_precision())
    is_attention = part == "attention"
    rate = config.attention_probs_dropout_prob if is_attention else config.hidden_dropout_prob
    shape = _tried_shape(config, rate)
    if is_attention and not gpu.fuses(dtype, tf.TensorShape(shape), rate > 0.0):
        return _unfit(config, rate)
    try:
        found = difference(part, shape, dtype, rate)
    except Exception as error:  # of the compiler, cuDNN or the driver, whatever its class
        return f"this GPU refuses it: {' '.join(str(error).split())[:_REASON_LENGTH]}"
    if not found <= LARGEST_DIFFERENCE:  # also if it is not finite
        return f"its results differ by {found:.1e} from those of the formula"
    return ""


def _tried_shape(config: AlbertConfig, rate: float) -> tuple[int, int, int, int]:
    """Returns B, A, S and D of the trial, with a length that attention takes if it can."""
    multiple = triton_attention.LENGTHS if rate > 0.0 else gpu.LENGTHS
    longest = min(_LENGTH, config.max_position_embeddings)
    length = longest // multiple * multiple or longest
    return _ROWS, config.num_attention_heads, length, _head_size(config)


def _head_size(config: AlbertConfig) -> int:
    return config.hidden_size // config.num_attention_heads


def _unfit(config: AlbertConfig, rate: float) -> str:
    """Returns why attention of a model is never fused."""
    lengths, sizes = gpu.LENGTHS, f"a multiple of {gpu.HEAD_SIZES}, at most {gpu.MAX_HEAD_SIZE},"
    if rate > 0.0:
        lengths, sizes = triton_attention.LENGTHS, ", ".join(map(str, triton_attention.HEAD_SIZES))
    return (
        f"it takes sequences of a multiple of {lengths} tokens, and heads of {sizes} units; this "
        f"model has {config.max_position_embeddings} positions, and heads of "
        f"{_head_size(config)} units"
    )


def difference(part: str, shape: tuple[int, int, int, int], dtype: tf.DType, rate: float) -> float:
    """Returns the relative difference of `results` by kernels for GPUs from those of the formula.

    Args:
        part: the part of a layer, a name in `PARTS`.
        shape: B, A, S and D; the last row is padded to half.
        dtype: bfloat16 or float16.
        rate: dropout rate.
    """
    random = np.random.default_rng(5)
    arrays = [tf.cast(random.standard_normal(shape, np.float32), dtype) for _ in range(4)]
    mask = np.ones((shape[0], shape[2]), np.int32)
    mask[-1, shape[2] // 2 :] = 0

    def compute(*tensors: tf.Tensor) -> list[tf.Tensor]:
        return results(part, tensors, tf.constant(mask), rate, tf.constant(_SEED))

    with dispatch.for_gpu():
        found = tf.function(compute, jit_compile=True, autograph=False)(*arrays)
    expected = compute(*(tf.cast(x, tf.float32) for x in arrays))  # eager: the formulas
    ours, formula = _joined(found), _joined(expected)
    return float(np.linalg.norm(ours - formula) / np.linalg.norm(formula))


def results(
    part: str, tensors: Sequence[tf.Tensor], mask: tf.Tensor, rate: float, seed: tf.Tensor
) -> list[tf.Tensor]:
    """Returns the result of a part of a layer, and the gradients of its arguments.

    Args:
        part: a name in `PARTS`.
        tensors: query, key, value and a gradient, float [B, A, S, D]; the other parts take the
            heads of query and key joined.
        mask: attention mask, int32 [B, S].
        rate: dropout rate.
        seed: int32 [2].
    """
    x, residual, _, dy = (ops.join_heads(ops.swap_heads(x)) for x in tensors)  # [B, S, A·D]
    width = x.shape[-1]

    def signs(*shape: int) -> tf.Tensor:
        return tf.where(ops.keep_mask(tf.zeros(shape), 0.5, seed), _WEIGHT, -_WEIGHT)

    def attend(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
        return ops.attention(query, key, value, mask, rate, seed)

    def feed_forward(
        x: tf.Tensor, first: tf.Tensor, bias: tf.Tensor, second: tf.Tensor
    ) -> tf.Tensor:
        first, second = tf.cast(first, x.dtype), tf.cast(second, x.dtype)
        return ops.feed_forward(x, first, bias, "gelu", second, tf.zeros(width))

    def normalize(x: tf.Tensor, residual: tf.Tensor, gamma: tf.Tensor) -> tf.Tensor:
        return ops.add_and_norm(x, residual, gamma, gamma - 1.0, rate, seed)

    if part == "attention":
        return _with_gradients(attend, tensors[:3], dy)
    if part == "feed_forward":
        weights = signs(width, _INTERMEDIATE), signs(_INTERMEDIATE), signs(_INTERMEDIATE, width)
        return _with_gradients(feed_forward, [x, *weights], dy)
    return _with_gradients(normalize, [x, residual, 1.0 + signs(width)], dy)


def _with_gradients(
    function: Callable[..., tf.Tensor], sources: Sequence[tf.Tensor], given: tf.Tensor
) -> list[tf.Tensor]:
    """Returns the result of a function, and the gradients of its arguments for that of it."""
    with tf.GradientTape() as tape:
        tape.watch(sources)
        result = function(*sources)
    return [result, *tape.gradient(result, sources, given)]


def _joined(tensors: list[tf.Tensor]) -> NDArray[np.float32]:
    """Returns the values of all tensors as a vector."""
    flat: NDArray[np.float32]
    flat = np.concatenate([np.ravel(tf.cast(x, tf.float32)) for x in tensors])
    return flat
