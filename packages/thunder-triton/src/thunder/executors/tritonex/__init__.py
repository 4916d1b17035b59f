"""The executor `triton`: regions as generated Triton kernels."""

from thunder_triton.executor import TritonExecutor
from thunder_triton.executor import ex as triton_ex

__all__ = ["TritonExecutor", "triton_ex"]
