"""The kernel library: Triton kernels for operators that are no fusion, with the functions that launch them.

Modules of this folder import Triton, so they are imported when a kernel is first launched.
"""
