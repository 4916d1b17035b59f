"""Gradients of functions of a matrix: determinants, inverses, solutions, powers, norms.

Formulas without another source are those of Giles, An extended collection of matrix derivative results for
forward and reverse mode algorithmic differentiation (2008), with adjoints in place of transposes for complex
matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from thunder.base.dtypes import bfloat16, complex32, float16
from thunder.ops.gradient_rules import VjpCall, conj, formulas, vjp
from thunder.torch.broadcasting import canonical_dims
from thunder.torch.gradients.backward_kernels import computed_by
from thunder.torch.gradients.norms import norm_gradient
from thunder.torch.gradients.products import adjoint
from thunder.torch.gradients.reductions import shared
from thunder.torch.namespace import ltorch
from thunder.torch.rows import torch_kernels  # noqa: F401  (the rows)

#: a proxy; its operators are typed as torch's
Tensor = Any
#: the gradient of matrices ``(*, m, n)``, from the cotangent and the norm ``(*, 1, 1)``
_NormGradient = Callable[[Tensor, Tensor, Tensor], Tensor]


def _as_matrices(x: Tensor) -> Tensor:
    """``(*)`` → ``(*, 1, 1)``, to scale matrices."""
    return ltorch.unsqueeze(ltorch.unsqueeze(x, -1), -1)


# -- determinants --------------------------------------------------------------------------------------------


@computed_by(lambda A: torch.linalg.inv_ex(A).inverse)
def unchecked_inverse(A: Tensor) -> Tensor:
    """Return the inverse, infinite where there is none: ``logdet`` has a gradient there, too."""
    return ltorch.inv(A)


def _det_backward(g: torch.Tensor, A: torch.Tensor, det: torch.Tensor) -> torch.Tensor:
    lu, pivots, _ = torch.linalg.lu_factor_ex(A)
    diagonal = lu.diagonal(0, -2, -1)
    nudged = torch.where(diagonal == 0, torch.finfo(A.dtype).eps, diagonal)
    lu = lu + torch.diag_embed(nudged - diagonal)
    # det is the product of the diagonal up to its sign, which is that of the permutation
    swaps = (pivots != torch.arange(1, A.shape[-1] + 1, dtype=pivots.dtype, device=A.device)).sum(-1)
    nudged_det = nudged.prod(-1) * (1 - 2 * (swaps % 2))
    right = torch.diag_embed((g * nudged_det.conj()).unsqueeze(-1).expand(diagonal.shape))
    return torch.linalg.lu_solve(lu, pivots, right, adjoint=True)


@computed_by(_det_backward)
def det_backward(g: Tensor, A: Tensor, det: Tensor) -> Tensor:
    """``g conj(det) A^-H`` (section 2.2.4), the cofactors; for singular matrices by LU pivots."""
    return _as_matrices(g * conj(det)) * adjoint(unchecked_inverse(A))


def _log_det_backward(g: torch.Tensor, A: torch.Tensor) -> torch.Tensor:
    # torch factorises the transpose of real matrices that are contiguous: singular ones show which
    transposed = A.is_contiguous() and not A.is_complex()
    lu, pivots, _ = torch.linalg.lu_factor_ex(A.mT if transposed else A)
    right = torch.diag_embed(g.unsqueeze(-1).expand(A.shape[:-1]).to(A.dtype))
    return torch.linalg.lu_solve(lu, pivots, right, adjoint=not transposed)


@computed_by(_log_det_backward)
def log_det_backward(g: Tensor, A: Tensor) -> Tensor:
    """``g A^-H`` (section 2.2.4)."""
    return _as_matrices(g) * adjoint(unchecked_inverse(A))


@vjp("torch.linalg.slogdet")
def _of_slogdet(c: VjpCall) -> dict[str, Any]:
    """``d log|det| + i d arg det = tr(A^-1 dA)``; the sign of a real matrix is constant."""
    of_sign, of_log = c.g
    weight = of_log
    if of_sign is not None and of_sign.dtype.is_complex:
        turning = -ltorch.imag(conj(of_sign) * c.out[0])
        weight = ltorch.complex(ltorch.zeros_like(turning) if of_log is None else of_log, turning)
    if weight is None:
        return {"A": ltorch.zeros_like(c.A)}
    return {"A": ltorch.log_det_backward(weight, c.A)}


def _of_det(c: VjpCall) -> Tensor:
    if c.A.dtype in (float16, bfloat16, complex32):  # torch has that of matrices without elements alone
        return ltorch.zeros_like(c.A)
    return ltorch.det_backward(c.g, c.A, c.out)


formulas("torch.linalg.det", A=_of_det)


def _of_logdet(c: VjpCall) -> Tensor:
    """The gradient of ``log|det|``; zero where a real determinant is negative, and the result NaN."""
    g = c.g if c.g.dtype.is_complex else ltorch.masked_fill(c.g, ltorch.isnan(c.out), 0.0)
    return ltorch.log_det_backward(g, c.input)


formulas("torch.logdet", input=_of_logdet)

# -- inverses and solutions ----------------------------------------------------------------------------------

formulas("torch.linalg.inv", A=lambda c: -(adjoint(c.out) @ c.g @ adjoint(c.out)))


@vjp("torch.linalg.pinv")
def _of_pinv(c: VjpCall) -> dict[str, Any]:
    """The gradient of a pseudo-inverse, for a constant rank.

    Golub and Pereyra, The differentiation of pseudo-inverses and nonlinear least squares problems whose
    variables separate (1973), equation 4.12.
    """
    a, p, ph, gh = c.A, c.out, adjoint(c.out), adjoint(c.g)
    outside_range = gh - a @ (p @ gh)
    outside_rows = gh - (gh @ p) @ a
    gradient = (outside_range @ p) @ ph + ph @ (p @ outside_rows) - (ph @ c.g) @ ph
    return {"A": gradient}


@vjp("torch.linalg.solve")
def _of_solve(c: VjpCall) -> dict[str, Any]:
    """Gradients of ``solve`` for ``B: (*, n, k)``, or vectors ``(n,)`` and ``(*, n)``.

    Torch tells vectors from matrices by the shape.
    """
    ndim = len(c.B.shape)
    vectors = ndim == 1 or (ndim == len(c.A.shape) - 1 and c.B.shape == c.A.shape[:-1])
    left = c.left or vectors
    g, x = (ltorch.unsqueeze(t, -1) if vectors else t for t in (c.g, c.out))
    of_b = ltorch.solve(adjoint(c.A), g, left=left)
    gradients = {"B": ltorch.squeeze(of_b, -1) if vectors else of_b}
    if c.needs("A"):
        gradients["A"] = -(of_b @ adjoint(x)) if left else -(adjoint(x) @ of_b)
    return gradients


@vjp("torch.linalg.solve_triangular")
def _of_solve_triangular(c: VjpCall) -> dict[str, Any]:
    """Like ``solve``, restricted to one triangle of ``A``, without a diagonal taken as ones."""
    of_b = ltorch.solve_triangular(
        adjoint(c.A), c.g, upper=not c.upper, left=c.left, unitriangular=c.unitriangular
    )
    gradients = {"B": of_b}
    if c.needs("A"):
        whole = -(of_b @ adjoint(c.out)) if c.left else -(adjoint(c.out) @ of_b)
        offset = int(c.unitriangular)
        gradients["A"] = ltorch.triu(whole, offset) if c.upper else ltorch.tril(whole, -offset)
    return gradients


# -- powers and exponentials ---------------------------------------------------------------------------------


def _power_gradient(a: Tensor, g: Tensor, n: int) -> Tensor:
    """``sum of a^i g a^(n-1-i)``, by squaring pairs of a power and its derivative along ``g``."""

    def product(x: tuple[Tensor, Tensor], y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return x[0] @ y[0], x[1] @ y[0] + x[0] @ y[1]

    result, square = None, (a, g)
    while True:
        if n & 1:
            result = square if result is None else product(result, square)
        n >>= 1
        if n == 0:
            assert result is not None, "a positive number has a bit"
            return result[1]
        square = product(square, square)


@vjp("torch.linalg.matrix_power")
def _of_matrix_power(c: VjpCall) -> dict[str, Any]:
    if c.n == 0:
        return {"A": ltorch.zeros_like(c.A)}
    if c.n > 0:
        return {"A": _power_gradient(adjoint(c.A), c.g, c.n)}
    inverse = adjoint(ltorch.inv(c.A))
    return {"A": -(inverse @ _power_gradient(inverse, c.g, -c.n) @ inverse)}


@vjp("torch.matrix_exp")
def _of_matrix_exp(c: VjpCall) -> dict[str, Any]:
    """The derivative at ``A`` along ``G`` is a block of ``exp([[A, G], [0, A]])``.

    Mathias, A chain rule for matrix functions (1996), theorem 2.1. Its adjoint is the derivative at ``Aᴴ``.
    """
    n, a = c.input.shape[-1], adjoint(c.input)
    upper, lower = ltorch.cat((a, c.g), -1), ltorch.cat((ltorch.zeros_like(a), a), -1)
    whole = ltorch.matrix_exp(ltorch.cat((upper, lower), -2))
    return {"input": ltorch.narrow(ltorch.narrow(whole, -2, 0, n), -1, n, n)}


def _vander_gradient(g: Tensor, x: Tensor) -> Tensor:
    """Column ``j`` is ``x^j``, whose derivative is ``j`` times the column before it.

    The columns are computed again: the result may be overwritten before the backward.
    """
    columns = g.shape[-1] - 1
    if columns < 1:
        return ltorch.zeros_like(x)
    before = ltorch.pow(ltorch.unsqueeze(x, -1), ltorch.arange(columns, device=g.device))
    factors = ltorch.arange(1, columns + 1, device=g.device)
    return ltorch.sum(ltorch.narrow(g, -1, 1, columns) * conj(before) * factors, -1)


def _of_vander(c: VjpCall) -> Tensor:
    return _vander_gradient(c.g if c.increasing else ltorch.flip(c.g, (-1,)), c.x)


formulas("torch.linalg.vander", x=lambda c: _vander_gradient(c.g, c.x))
formulas("torch.vander", x=_of_vander)

# -- norms ---------------------------------------------------------------------------------------------------


def _frobenius(g: Tensor, a: Tensor, norm: Tensor) -> Tensor:
    rank = len(a.shape)
    return norm_gradient(g, a, 2, norm, (rank - 2, rank - 1), True)


def _nuclear(g: Tensor, a: Tensor, norm: Tensor) -> Tensor:
    """The gradient of the sum of singular values.

    Watson, Characterization of the subdifferential of some matrix norms (1992).
    """
    u, _, vh = ltorch.svd(a, False)
    return g * (u @ vh)


def _extreme(values: Tensor, g: Tensor, dim: int, extremum: str) -> Tensor:
    """Distribute ``g`` to the largest or smallest values along a dimension.

    The values are recomputed here, and may differ from the norm in the last bit.
    """
    holders = values == getattr(ltorch, extremum)(values, dim, True)
    return shared(g, holders, (dim % len(values.shape),))


def _of_singular_values(extremum: str) -> _NormGradient:
    """The gradient of the largest or smallest singular value."""

    def gradient(g: Tensor, a: Tensor, norm: Tensor) -> Tensor:
        u, s, vh = ltorch.svd(a, False)
        return (u * ltorch.unsqueeze(_extreme(s, ltorch.squeeze(g, -1), -1, extremum), -2)) @ vh

    return gradient


def _of_sums(along: int, extremum: str) -> _NormGradient:
    """The gradient of the largest or smallest absolute sum of rows (-1) or columns (-2)."""

    def gradient(g: Tensor, a: Tensor, norm: Tensor) -> Tensor:
        sums = ltorch.sum(ltorch.abs(a), along, True)
        return ltorch.sgn(a) * _extreme(sums, g, -3 - along, extremum)

    return gradient


_MATRIX_NORMS: dict[Any, _NormGradient] = {
    "fro": _frobenius,
    "nuc": _nuclear,
    2: _of_singular_values("amax"),
    -2: _of_singular_values("amin"),
    1: _of_sums(-2, "amax"),
    -1: _of_sums(-2, "amin"),
    math.inf: _of_sums(-1, "amax"),
    -math.inf: _of_sums(-1, "amin"),
}


@vjp("torch.linalg.matrix_norm")
def _of_matrix_norm(c: VjpCall) -> dict[str, Any]:
    """The gradient of norms of the matrices in dimensions ``dim``, which are moved to the end."""
    a = c.A if c.dtype is None else ltorch.to(c.A, c.dtype)
    dims = canonical_dims(c.dim, len(a.shape))
    last = (-2, -1)
    g, norm = (ltorch.movedim(t, dims, last) if c.keepdim else _as_matrices(t) for t in (c.g, c.out))
    gradient = _MATRIX_NORMS[c.ord](g, ltorch.movedim(a, dims, last), norm)
    return {"A": ltorch.movedim(gradient, last, dims)}
