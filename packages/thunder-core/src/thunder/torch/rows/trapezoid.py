"""Integrals of sampled functions, by the trapezoidal rule."""

from __future__ import annotations

from typing import Any

from thunder.base.errors import OperatorError
from thunder.ir.proxies import TensorProxy
from thunder.torch.argument_binding import BindingError
from thunder.torch.broadcasting import canonical_dim
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol
from thunder.torch.rows.reduction import Arguments


def _spelling(y: Any, x: Any = None, *, dx: Any = None, dim: int = -1) -> Arguments:
    """Bind ``trapezoid(y, x, dim=)`` and ``trapezoid(y, dx=, dim=)``.

    Torch has no call with both ``x`` and ``dx``.
    """
    if x is None:
        return (y,), {"dx": 1 if dx is None else dx, "dim": dim}
    if dx is not None:
        raise BindingError("trapezoid() takes either x or dx")
    return (y, x), {"dim": dim}


def _areas(y: TensorProxy, x: TensorProxy | None, dx: Any, dim: int) -> TensorProxy:
    """Return twice the areas between samples: sums of two heights, times their distance."""
    d = canonical_dim(dim, len(y.shape))
    steps, first = max(0, y.shape[d] - 1), min(1, y.shape[d])
    if x is None:
        width = dx
    elif len(x.shape) == 1:  # the samples' positions, the same along all other dimensions
        if x.shape[0] != y.shape[d]:
            raise OperatorError("trapezoid: there must be one `x` value for each sample point")
        width = ltorch.reshape(ltorch.diff(x), tuple(steps if i == d else 1 for i in range(len(y.shape))))
    else:
        width = ltorch.diff(x, dim=d - len(y.shape))
    return (ltorch.narrow(y, d, 0, steps) + ltorch.narrow(y, d, first, steps)) * width


@torchsymbol("torch.trapezoid", "torch.trapz", spelling=_spelling)
def trapezoid(y: TensorProxy, x: TensorProxy | None = None, *, dx: Any = 1, dim: int = -1) -> TensorProxy:
    """The integral along a dimension of samples at positions ``x`` or distances ``dx``."""
    if y.shape[dim] == 0:
        return ltorch.sum(y, dim, dtype=y.dtype)
    if x is not None:
        return ltorch.sum(_areas(y, x, dx, dim), dim) / 2
    ends = ltorch.select(y, dim, 0) + ltorch.select(y, dim, -1)
    return (ltorch.sum(y, dim) - ends * 0.5) * dx


@torchsymbol("torch.cumulative_trapezoid", spelling=_spelling)
def cumulative_trapezoid(
    y: TensorProxy, x: TensorProxy | None = None, *, dx: Any = 1, dim: int = -1
) -> TensorProxy:
    """The integrals up to each sample after the first."""
    return ltorch.cumsum(_areas(y, x, dx, dim), dim) / 2
