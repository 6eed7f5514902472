"""Kernels of Triton, in programs that XLA compiles whole for NVIDIA GPUs.

`source/` has them in Triton's language, and `code/` what it makes of them: Triton's intermediate
code, which XLA compiles for the GPU at hand. That is no stable format: what a release of XLA does
not take is found out when `training/gpu_kernels.py` tries it.
"""
