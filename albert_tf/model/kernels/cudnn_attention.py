"""Attention without dropout by cuDNN, on NVIDIA GPUs, in programs that XLA compiles whole.

cuDNN computes it as FlashAttention does (arXiv 2205.14135): no scores are written to memory. XLA
calls cuDNN by targets whose names start with `__cudnn$fmha`; `_options` writes the JSON that they
expect. A wrong name or key is an error of XLA's compiler, also without a GPU; whether cuDNN takes a
shape is only known on one, so `training/gpu_kernels.py` tries before it is used.

cuDNN's dropout is not used: its seed is a constant of the program, and its masks start again
whenever a program is loaded, so that a resumed run would drop the same elements again.

Dimensions: as in `ops.py`.
"""

from __future__ import annotations

import json
from typing import Any

import tensorflow as tf

from albert_tf.model import ops
from albert_tf.model.dispatch import Gradient
from albert_tf.model.kernels.custom_calls import CallResult, call

_TARGET = "__cudnn$fmha"
_ELEMENTS = {tf.bfloat16: "BF16", tf.float16: "F16"}
_IN_MEMORY = (0, 2, 1, 3)  # [B, A, S, D] lies in memory as [B, S, A, D]
_WORKSPACE = CallResult((0,), tf.uint8)  # XLA sets its size
# Of each matmul: the axis that is summed of the left and the right operand, and their axes of
# batch and head. Queries, keys, values and contexts are [B, S, A, D], scores [B, A, S, S].
_HEADS, _SCORES = (0, 2), (0, 1)
_FORWARD_MATMULS = {
    "bmm1": (3, 3, _HEADS, _HEADS),  # queries · keys
    "bmm2": (3, 1, _SCORES, _HEADS),  # probabilities · values
}
_BACKWARD_MATMULS = {
    "bmm1_grad_gemm1": (2, 1, _SCORES, _HEADS),  # the keys' gradient
    "bmm1_grad_gemm2": (3, 1, _SCORES, _HEADS),  # the queries' gradient
    "bmm2_grad_gemm1": (2, 1, _SCORES, _HEADS),  # the values' gradient
    "bmm2_grad_gemm2": (3, 3, _HEADS, _HEADS),  # the probabilities' gradient
}


def attention(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, input_mask: tf.Tensor | None = None
) -> tf.Tensor:
    """Returns softmax(query · keyᵀ / √D) · value, float [B, S, A, D].

    Args:
        query: bfloat16 or float16 [B, S, A, D], with static sizes.
        key: the same.
        value: the same.
        input_mask: as in `ops.attention`.
    """
    B, S, A, D = query.shape
    kind = "Softmax" if input_mask is None else "ScaleBiasSoftmax"
    bias = [] if input_mask is None else [_bias(input_mask, query)]  # [B, 1, S, S]
    like_query = CallResult((B, A, S, D), query.dtype, _IN_MEMORY)
    denominators = CallResult((B, A, S), tf.float32)  # their logarithms

    @tf.custom_gradient
    def run(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        context, log_total, _ = call(
            f"{_TARGET}{kind}",
            _options(query, _FORWARD_MATMULS),
            [query, key, value, *bias],
            [like_query, denominators, _WORKSPACE],
        )  # [B, S, A, D], [B, A, S]

        def gradient(dcontext: tf.Tensor) -> list[tf.Tensor]:
            gradients = call(
                f"{_TARGET}{kind}Backward",
                _options(query, _BACKWARD_MATMULS),
                [query, key, value, log_total, dcontext, *bias, context],
                [like_query, like_query, like_query, _WORKSPACE],
            )
            return gradients[:3]  # [B, S, A, D] each

        return context, gradient

    return run(query, key, value)


def _bias(input_mask: tf.Tensor, query: tf.Tensor) -> tf.Tensor:
    """Returns what is added to the scores, in the dtype of the query, [B, 1, S, S].

    All layers share it, and cuDNN adds it to the scores of every head.
    """
    B, S = query.shape[:2]
    adder = tf.cast(ops.mask_adder(input_mask), query.dtype)  # [B, 1, 1, S]
    return tf.broadcast_to(adder, (B, 1, S, S))


def _options(query: tf.Tensor, matmuls: dict[str, tuple[Any, ...]]) -> str:
    """Returns the options of a call: JSON in which XLA wants most numbers as strings."""
    B, S, A, D = query.shape
    algorithm = {
        "algo_id": "0",
        "math_type": "TENSOR_OP_MATH",
        "tuning_knobs": {"17": "1", "24": "0"},
        "is_cudnn_frontend": True,
        "workspace_size": "0",
    }
    layout = {
        "dim_level_types": [],
        "dim_unique": [],
        "dim_ordered": [],
        "minor_to_major": ["3", "2", "1", "0"],
        "tiles": [],
        "element_size_in_bits": "0",
        "memory_space": "0",
        "index_primitive_type": "PRIMITIVE_TYPE_INVALID",
        "pointer_primitive_type": "PRIMITIVE_TYPE_INVALID",
        "dynamic_shape_metadata_prefix_bytes": "0",
    }
    scores = {
        "element_type": _ELEMENTS[query.dtype],
        "dimensions": [str(size) for size in (B, A, S, S)],
        "tuple_shapes": [],
        "layout": layout,
        "is_dynamic_dimension": [False] * 4,
    }
    options = {
        "algorithm": algorithm,
        "fmha_scale": D**-0.5,
        "dropout_rate": 0.0,
        "intermediate_tensor_shape": scores,
        "seed": 0,
        "is_flash_attention": True,
        "mask_type": "NO_MASK",  # the mask is in the bias
        "sliding_window_length": 0,
        "max_seg_per_batch": 1,
        "is_paged_attention": False,
    }
    options |= {f"{name}_dot_dimension_numbers": _axes(*axes) for name, axes in matmuls.items()}
    return json.dumps(
        {
            "operation_queue_id": "0",
            "wait_on_operation_queues": [],
            "cudnn_fmha_backend_config": options,
        }
    )


def _axes(
    left: int, right: int, left_batch: tuple[int, ...], right_batch: tuple[int, ...]
) -> dict[str, list[str]]:
    """Returns the axes of a matmul as XLA wants them."""
    return {
        "lhs_contracting_dimensions": [str(left)],
        "rhs_contracting_dimensions": [str(right)],
        "lhs_batch_dimensions": [str(axis) for axis in left_batch],
        "rhs_batch_dimensions": [str(axis) for axis in right_batch],
    }
