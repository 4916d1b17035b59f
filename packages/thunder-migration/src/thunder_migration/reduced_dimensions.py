"""Gradients of sums and means over dimensions, for gradient rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from thunder import torch as ltorch

__all__ = ["mean_backward", "restore_reduced_dims", "sum_backward"]


def restore_reduced_dims(x: Any, reduced_dims: Sequence[int], original_shape: Sequence[int]) -> Any:
    """Return `x: (the dimensions that are not reduced)`, repeated along the reduced ones."""
    reduced = {dim % len(original_shape) for dim in reduced_dims}
    kept = [1 if dim in reduced else length for dim, length in enumerate(original_shape)]
    return ltorch.expand(ltorch.reshape(x, tuple(kept)), tuple(original_shape))


def sum_backward(shape: Sequence[int], dims: Sequence[int], grad: Any) -> Any:
    """Return the gradient of `a: shape` from that of its sum over `dims`."""
    return restore_reduced_dims(grad, dims, shape)


def mean_backward(ndim: int, shape: Sequence[int], dims: Sequence[int], grad: Any) -> Any:
    """Return the gradient of `a: shape`, of `ndim` dimensions, from that of its mean over `dims`."""
    number = math.prod(shape[dim % ndim] for dim in dims)
    return restore_reduced_dims(ltorch.true_divide(grad, number), dims, shape)
