"""Kernels: faster forms of the operations in `ops.py`. Importing this folder registers them."""

from albert_tf.model.kernels import cpu, cpu_attention, gpu, xla

__all__ = ["cpu", "cpu_attention", "gpu", "xla"]
