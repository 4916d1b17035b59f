"""Kernels that a program launches itself: `kernel[grid](…)` of a `triton.jit` function.

launch  →  `kernel_effects`: what the source of the kernel writes  →  `launches`: the operator of the launch
"""
