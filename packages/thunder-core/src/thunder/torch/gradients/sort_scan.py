"""Gradients of scans, of sorting, and of operators that select by order."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from thunder.ir.proxies import TensorProxy
from thunder.ops.casting import cast
from thunder.ops.gradient_rules import VjpCall, conj, formulas, summed_to, vjp
from thunder.torch.broadcasting import canonical_dim
from thunder.torch.gradients.backward_kernels import kernel
from thunder.torch.gradients.selection_adjoints import reshaped, zeros
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol
from thunder.torch.rows import sorting, torch_kernels  # noqa: F401  (the rows)

Tensor = TensorProxy

# -- sums and products so far --------------------------------------------------------------------------------


def _from_behind(scan: Callable[[Tensor], Tensor], a: Tensor, dim: int) -> Tensor:
    """Scan from the last element to the first."""
    return ltorch.flip(scan(ltorch.flip(a, (dim,))), (dim,))


def _cumsum(g: Tensor, dim: int) -> Tensor:
    if not g.shape or g.shape[dim] == 1:
        return g
    return _from_behind(lambda a: ltorch.cumsum(a, dim), g, dim)


@kernel("cumprod_backward")
def cumprod_backward(grad: Tensor, input: Tensor, dim: int, output: Tensor) -> Tensor:
    """``Σ_k g_k Π_{j ≤ k, j ≠ i} x_j`` for each ``i ≤ k``, with all the products written out.

    Dividing the result by ``x_i`` would fail at zeros, and elsewhere its derivative would.
    """
    last = len(input.shape) - 1
    count = input.shape[dim]
    x, g = ltorch.movedim(input, dim, last), ltorch.movedim(grad, dim, last)
    itself = ltorch.eye(count, dtype=torch.bool, device=input.device)
    others = ltorch.cumprod(ltorch.where(itself, 1, ltorch.unsqueeze(x, last)), last + 1)
    terms = ltorch.triu(ltorch.unsqueeze(g, last) * conj(others))
    return ltorch.movedim(ltorch.sum(terms, last + 1), last, dim)


def _cumprod(c: VjpCall) -> Tensor:
    if not c.input.shape:
        return c.g
    return ltorch.cumprod_backward(c.g, cast(c.input, c.out.dtype), c.dim, c.out)


formulas("prims.cumsum", a=lambda c: _cumsum(c.g, c.dim))
formulas("torch.cumsum", input=lambda c: _cumsum(c.g, c.dim))
formulas("prims.cumprod", a=lambda c: ltorch.cumprod_backward(c.g, c.a, c.dim, c.out))
formulas("torch.cumprod", input=_cumprod)


@torchsymbol(id="ltorch.exp_scan")
def exp_scan(weight: Tensor, up: Tensor, down: Tensor, dim: int, reverse: bool) -> Tensor:
    """``out_k = Σ_i weight_i exp(up_i - down_k)`` over all ``i ≤ k`` (``reverse``: ``i ≥ k``).

    The exponentials themselves may be out of range. Positive and negative weights are summed apart, as
    logarithms.
    """

    def scanned(log_weight: Any) -> Any:
        terms = log_weight + up
        if reverse:
            total = _from_behind(lambda a: ltorch.logcumsumexp(a, dim), terms, dim)
        else:
            total = ltorch.logcumsumexp(terms, dim)
        return ltorch.exp(total - down)

    if weight.dtype.is_complex:
        return scanned(ltorch.log(weight))
    positive = ltorch.where(weight > 0, ltorch.log(weight), -math.inf)
    negative = ltorch.where(weight < 0, ltorch.log(-weight), -math.inf)
    return scanned(positive) - scanned(negative)


def _exp_scan_weight(c: VjpCall) -> Tensor:
    return ltorch.exp_scan(c.g, -conj(c.down), -conj(c.up), c.dim, not c.reverse)


formulas(
    "ltorch.exp_scan",
    weight=_exp_scan_weight,
    up=lambda c: conj(c.weight) * _exp_scan_weight(c),
    down=lambda c: -c.g * conj(c.out),
)


def _logcumsumexp(c: VjpCall) -> Tensor:
    """``Σ_k g_k exp(x_i - out_k)`` over all ``k ≥ i``."""
    if not c.input.shape:
        return c.g
    up, down = -conj(c.out), -conj(c.input)
    return ltorch.exp_scan(c.g, up, down, c.dim, True)


formulas("torch.logcumsumexp", input=_logcumsumexp)

# -- elements picked -----------------------------------------------------------------------------------------


@kernel("value_selecting_reduction_backward")
def value_selecting_reduction_backward(
    grad: Tensor, dim: int, indices: Tensor, sizes: Any, keepdim: bool
) -> Tensor:
    """Zeros with the elements of ``grad`` at places of which each occurs once."""
    if not keepdim and sizes:
        grad, indices = ltorch.unsqueeze(grad, dim), ltorch.unsqueeze(indices, dim)
    return ltorch.scatter(zeros(sizes, grad), dim, indices, grad)


def _returned(c: VjpCall, a: Tensor, dim: int) -> Tensor:
    """Return each cotangent to its element, by the indices that the operator returns."""
    return ltorch.value_selecting_reduction_backward(c.g[0], dim, c.out[1], a.shape, True)


def _accumulated(c: VjpCall, a: Tensor) -> Tensor:
    """Like :func:`_returned`, for elements that are picked several times."""
    return ltorch.gather_backward(c.g[0], a.shape, c.dim, c.out[1])


def _picked(c: VjpCall) -> Tensor:
    """Return the gradient of a reduction that selects one element of a dimension."""
    return ltorch.value_selecting_reduction_backward(c.g[0], c.dim, c.out[1], c.input.shape, c.keepdim)


def _median(c: VjpCall) -> Tensor:
    """The elements equal to the median share the gradient evenly; nan equals nan here."""
    if isinstance(c.out, tuple):
        return _picked(c)
    both_nan = ltorch.logical_and(ltorch.isnan(c.out), ltorch.isnan(c.input))
    hit = ltorch.logical_or(c.input == c.out, both_nan)
    share = c.g / ltorch.sum(hit, dtype=c.g.dtype)
    return ltorch.where(hit, share, 0)


formulas("prims.cummax", "prims.cummin", a=lambda c: _accumulated(c, c.a))
formulas("torch.cummax", "torch.cummin", input=lambda c: _accumulated(c, c.input))
formulas("prims.sort", "prims.topk", a=lambda c: _returned(c, c.a, c.dim))
formulas("torch.sort", "torch.topk", input=lambda c: _returned(c, c.input, c.dim))
formulas("torch.kthvalue", "torch.mode", input=_picked)
formulas("torch.median", "torch.nanmedian", input=_median)

# -- quantiles -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Quantiles:
    """Quantiles of rows, as weighted means of two elements of each sorted row."""

    #: the rows ``(*, n)``, and the requested quantiles ``(m,)``
    rows: Tensor
    q: Tensor
    #: the indices into the rows of the lower and upper elements ``(*, m)``, and their values
    places: tuple[Tensor, Tensor]
    values: tuple[Tensor, Tensor]
    #: of the upper element ``(*, m)``, and its derivative with respect to the quantile
    weight: Any
    slope: Any

    def of_rows(self, g: Tensor) -> Tensor:
        """Return the gradient of the rows."""
        lower, upper = self.places
        from_lower = ltorch.scatter_add(zeros(self.rows.shape, g), -1, lower, g * (1 - self.weight))
        return ltorch.scatter_add(from_lower, -1, upper, g * self.weight)

    def of_q(self, g: Tensor) -> Tensor:
        """Return the gradient of the quantiles."""
        lower, upper = self.values
        return summed_to(g * (upper - lower) * self.slope, tuple(self.q.shape))


_ROUNDED = {"lower": "floor", "higher": "ceil", "nearest": "round"}


def _quantiles(rows: Tensor, q: Tensor, interpolation: str, skips_nan: bool) -> _Quantiles:
    """Return the quantiles of the rows, whose ranks are equally spaced.

    A row with nan has its last element for each quantile, which is nan; with ``skips_nan``, nan does not
    count, and is sorted to the end.
    """
    ordered, order = ltorch.sort(rows, -1)
    nan = ltorch.isnan(rows)
    if skips_nan:
        top: Any = ltorch.sum(ltorch.logical_not(nan), -1, True) - 1
        fixed, value = top < 0, 0.0
    else:
        top = rows.shape[-1] - 1
        fixed, value = ltorch.any(nan, -1, True), top * 1.0
    ranks = ltorch.where(fixed, value, q * top)
    slope: Any = ltorch.where(fixed, 0.0, ltorch.ones_like(ranks) * top)
    if interpolation in _ROUNDED:
        ranks = getattr(ltorch, _ROUNDED[interpolation])(ranks)
    low, high = ltorch.to(ltorch.floor(ranks), torch.int64), ltorch.to(ltorch.ceil(ranks), torch.int64)
    weight = ranks - ltorch.to(low, ranks.dtype) if interpolation == "linear" else 0.5
    return _Quantiles(
        rows=rows,
        q=q,
        places=(ltorch.gather(order, -1, low), ltorch.gather(order, -1, high)),
        values=(ltorch.gather(ordered, -1, low), ltorch.gather(ordered, -1, high)),
        weight=weight,
        slope=slope if interpolation == "linear" else 0.0,
    )


def _quantile(skips_nan: bool) -> Callable[[VjpCall], dict[str, Tensor]]:
    def gradients(c: VjpCall) -> dict[str, Tensor]:
        a = c.input
        dim = None if c.dim is None or not a.shape else canonical_dim(c.dim, len(a.shape))
        rows = reshaped(a, (a.numel(),)) if dim is None else ltorch.movedim(a, dim, -1)
        several = isinstance(c.q, TensorProxy) and len(c.q.shape) == 1
        q = c.q if isinstance(c.q, TensorProxy) else ltorch.full((), c.q, dtype=a.dtype, device=a.device)
        q = reshaped(q, (q.numel(),))
        g = ltorch.movedim(c.g, 0, -1) if several else c.g
        g = reshaped(g, (*rows.shape[:-1], q.numel()))
        quantiles = _quantiles(rows, q, c.interpolation, skips_nan)
        gradients = {}
        if c.needs("input"):
            of_rows = quantiles.of_rows(g)
            gradients["input"] = (
                reshaped(of_rows, a.shape) if dim is None else ltorch.movedim(of_rows, -1, dim)
            )
        if c.needs("q"):
            gradients["q"] = reshaped(quantiles.of_q(g), c.q.shape)
        return gradients

    return gradients


vjp("torch.quantile")(_quantile(skips_nan=False))
vjp("torch.nanquantile")(_quantile(skips_nan=True))
