"""The executor `triton_kernels`, which has a cross entropy in Triton."""

from thunder_triton.kernel_executor import ex as triton_ex

__all__ = ["triton_ex"]
