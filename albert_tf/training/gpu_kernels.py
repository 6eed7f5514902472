"""Whether the GPUs of this machine take the kernels for them: tried once, before training.

Only on the device is it known whether its driver and cuDNN take fused attention, and XLA the other
kernels. Where they do not, a line in the log has the reason, and all operations stay as XLA
compiles them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray

from albert_tf.model import dispatch, ops, tensorflow_internals
from albert_tf.model.config import AlbertConfig
from albert_tf.model.kernels import gpu
from albert_tf.model.modeling import AlbertModel
from albert_tf.training.precision import current_precision

_ROWS = 2
_LENGTH = 512  # of the sequences that are tried, if the model has as many positions
_SEED = (5, 7)
_INTERMEDIATE = 1024  # units of the feed-forward network that is tried
_WEIGHT = 1 / 32  # of that network, with random signs
LARGEST_DIFFERENCE = 0.03  # of the norm: bfloat16 makes 0.005, a wrong mask or scale more than 0.1
_REASON_LENGTH = 300


def can_be_fused(model: AlbertModel) -> bool:
    """Returns whether compiled steps of a model can compute fused attention; logs why not."""
    if not tf.config.list_physical_devices("GPU"):
        return False
    reason = _why_not(model.config)
    if not reason:
        logging.info("%-9s fused, by cuDNN or Triton", "attention")
        return True
    logging.info("%-9s as XLA compiles it, because %s", "attention", reason)
    return False


def _why_not(config: AlbertConfig) -> str:
    """Returns why attention is not fused; "" if it is."""
    dtype = tf.as_dtype(current_precision())
    length = min(_LENGTH, config.max_position_embeddings // gpu.LENGTHS * gpu.LENGTHS)
    size = config.hidden_size // config.num_attention_heads
    if not tf.test.is_built_with_cuda() or not tensorflow_internals.embeds_modules():
        return f"TensorFlow {tf.__version__} cannot call cuDNN"
    if not gpu.takes(dtype, length, size):
        return (
            f"it takes bfloat16 or float16 and heads of a multiple of {gpu.HEAD_SIZES} units, at "
            f"most {gpu.MAX_HEAD_SIZE}; this model has {dtype.name} and {size}"
        )
    shape = _ROWS, config.num_attention_heads, length, size
    try:
        found = difference(shape, dtype, config.attention_probs_dropout_prob)
    except Exception as error:  # of the compiler, cuDNN or the driver, whatever its class
        return f"this GPU refuses it: {' '.join(str(error).split())[:_REASON_LENGTH]}"
    if not found <= LARGEST_DIFFERENCE:  # also if it is not finite
        return f"its results differ by {found:.1e} from those of the formula"
    return ""


def difference(shape: tuple[int, int, int, int], dtype: tf.DType, rate: float) -> float:
    """Returns the largest of the relative differences of `results` from those of the formulas.

    Args:
        shape: B, A, S and D; the last row is padded to half.
        dtype: bfloat16 or float16.
        rate: dropout rate.
    """
    random = np.random.default_rng(5)
    arrays = [tf.cast(random.standard_normal(shape, np.float32), dtype) for _ in range(4)]
    mask = np.ones((shape[0], shape[2]), np.int32)
    mask[-1, shape[2] // 2 :] = 0

    def compute(*tensors: tf.Tensor) -> dict[str, list[tf.Tensor]]:
        return results(tensors, tf.constant(mask), rate, tf.constant(_SEED))

    with dispatch.for_gpu():
        found = tf.function(compute, jit_compile=True, autograph=False)(*arrays)
    expected = compute(*(tf.cast(x, tf.float32) for x in arrays))  # eager: the formulas
    differences = []
    for name, tensors in found.items():
        ours, formula = _joined(tensors), _joined(expected[name])
        differences.append(np.linalg.norm(ours - formula) / np.linalg.norm(formula))
    return float(np.max(differences))  # not a number if one is not


def results(
    tensors: Sequence[tf.Tensor], mask: tf.Tensor, rate: float, seed: tf.Tensor
) -> dict[str, list[tf.Tensor]]:
    """Returns the operations that have kernels for NVIDIA GPUs, by name.

    Of each operation, the result and the gradients of its arguments.

    Args:
        tensors: query, key, value and a gradient, float [B, A, S, D].
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

    weights = signs(width, _INTERMEDIATE), signs(_INTERMEDIATE), signs(_INTERMEDIATE, width)
    return {
        "attention": _with_gradients(attend, tensors[:3], dy),
        "feed_forward": _with_gradients(feed_forward, [x, *weights], dy),
        "add_and_norm": _with_gradients(normalize, [x, residual, 1.0 + signs(width)], dy),
    }


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
