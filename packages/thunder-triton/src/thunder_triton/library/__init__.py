"""The operators of the executor `triton_kernels`: which calls they compute, and their gradients.

The kernels are in the folder `kernels`, a module for each module here, which is imported when one first runs.
"""
