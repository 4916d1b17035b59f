"""Gradients of factorizations of a matrix: Cholesky, QR, eigenvalues, singular values.

Each needs all its factors for the gradient of any. Factors that the program does not use may not be saved for
the backward, since no gradient flows back into them; then the backward factors the matrix again (Note [What a
rule may save] in ``thunder.ops.gradient_rules``).

Where a factorization is not unique (phases of eigenvectors and of singular vectors), the gradient is right
for functions that do not depend on the choice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.base.errors import OperatorError
from thunder.ops.gradient_rules import VjpCall, formulas, vjp
from thunder.ops.promotion import real_result
from thunder.torch.gradients.products import adjoint
from thunder.torch.namespace import ltorch
from thunder.torch.rows import torch_kernels  # noqa: F401  (the rows)

#: a proxy; its operators are typed as torch's
Tensor = Any


def _identity(like: Tensor) -> Tensor:
    """Return the real identity of the size of ``like: (*, n, n)``."""
    return ltorch.eye(like.shape[-1], dtype=real_result(like.dtype), device=like.device)


def _as_columns(values: Tensor) -> Tensor:
    """``(*, k)`` → ``(*, 1, k)``, to scale the columns of a matrix."""
    return ltorch.unsqueeze(values, -2)


def _as_rows(values: Tensor) -> Tensor:
    """``(*, k)`` → ``(*, k, 1)``, to scale the rows of a matrix."""
    return ltorch.unsqueeze(values, -1)


def _symmetric_from(triangle: Tensor) -> Tensor:
    """Return the Hermitian matrix with this triangle, and the real part of its diagonal."""
    return (triangle + adjoint(triangle)) * (1 - _identity(triangle) / 2)


def _skew(x: Tensor) -> Tensor:
    return x - adjoint(x)


def _factors(c: VjpCall, again: Callable[[], Any]) -> Any:
    """Return the results of a call, or those of ``again`` if the program uses only some.

    Factors of two calls may then occur in one second derivative, so that their derivatives must have the same
    choice of phases.
    """
    return again() if any(g is None for g in c.g) else c.out


# -- Cholesky ------------------------------------------------------------------------------------------------


def _cholesky_gradient(g: Tensor, factor: Tensor, upper: bool) -> Tensor:
    """``L^-H Φ(Lᴴ G) L^-1``, where ``Φ`` mirrors a lower triangle, halved.

    Murray, Differentiation of the Cholesky decomposition (2016), equation 10. As in torch a complex diagonal
    stays complex.
    """
    lower, g = (adjoint(factor), adjoint(g)) if upper else (factor, g)
    triangle = ltorch.tril(adjoint(lower) @ g)
    middle = (triangle + adjoint(ltorch.tril(triangle, -1))) / 2
    left = ltorch.solve_triangular(adjoint(lower), middle, upper=True)
    return ltorch.solve_triangular(lower, left, upper=False, left=False)


formulas("torch.linalg.cholesky", A=lambda c: _cholesky_gradient(c.g, c.out, c.upper))
formulas("torch.linalg.cholesky_ex", A=lambda c: _cholesky_gradient(c.g[0], c.out[0], c.upper))


def _of_factor(of_product: Tensor, factor: Tensor, upper: bool) -> Tensor:
    """The gradient of ``L`` from that of ``L Lᴴ``, or of ``U`` from that of ``Uᴴ U``."""
    return _from_product(of_product + adjoint(of_product), factor, upper)


def _from_product(both: Tensor, factor: Tensor, upper: bool) -> Tensor:
    """Like ``_of_factor``, from the sum of the gradient of the product and its adjoint."""
    return factor @ both if upper else both @ factor


@vjp("torch.cholesky_solve")
def _of_cholesky_solve(c: VjpCall) -> dict[str, Any]:
    """Gradients of ``X = A^-1 B``: ``A^-1 G`` for ``B``, and ``-A^-1 G Xᴴ`` for ``A``.

    ``A`` is the product of the factor ``L`` and its adjoint.
    """
    of_b = ltorch.cholesky_solve(c.g, c.L, c.upper)
    gradients = {"B": of_b}
    if c.needs("L"):
        gradients["L"] = _of_factor(-(of_b @ adjoint(c.out)), c.L, c.upper)
    return gradients


formulas(
    "torch.cholesky_inverse",
    L=lambda c: _from_product(-(c.out @ (c.g + adjoint(c.g)) @ c.out), c.L, c.upper),
)

# -- QR ------------------------------------------------------------------------------------------------------


def _square_qr_gradient(of_q: Tensor, of_r: Tensor, q: Tensor, r: Tensor) -> Tensor:
    """The gradient of ``A`` in ``A = Q R`` with an invertible ``R``.

    Walter and Lehmann, Algorithmic differentiation of linear algebra functions with application in optimum
    experimental design (2010), section 2.3.
    """
    middle = ltorch.triu(of_r @ adjoint(r) - adjoint(q) @ of_q)
    return ltorch.solve_triangular(adjoint(r), of_q + q @ _symmetric_from(middle), upper=False, left=False)


@vjp("torch.linalg.qr")
def _of_qr(c: VjpCall) -> dict[str, Any]:
    """The gradient of a QR factorization; a wide matrix is ``[A1, A2] = Q [R1, R2]``.

    That is a square factorization, and ``R2 = Qᴴ A2`` (Roberts and Roberts, QR and LQ decomposition matrix
    backpropagation algorithms, 2020).
    """
    m, n = c.A.shape[-2:]
    if c.mode == "r" or (c.mode == "complete" and m > n):
        raise OperatorError(
            f"linalg.qr: a {m} x {n} matrix has no gradient with mode={c.mode!r}",
            hint='Use mode="reduced".',
        )
    q, r = _factors(c, lambda: ltorch.qr(c.A, c.mode))
    of_q = ltorch.zeros_like(q) if c.g[0] is None else c.g[0]
    of_r = ltorch.zeros_like(r) if c.g[1] is None else c.g[1]
    if m >= n:
        return {"A": _square_qr_gradient(of_q, of_r, q, r)}
    of_r1, of_r2 = ltorch.narrow(of_r, -1, 0, m), ltorch.narrow(of_r, -1, m, n - m)
    of_q = of_q + ltorch.narrow(c.A, -1, m, n - m) @ adjoint(of_r2)
    of_a1 = _square_qr_gradient(of_q, of_r1, q, ltorch.narrow(r, -1, 0, m))
    return {"A": ltorch.cat((of_a1, q @ of_r2), -1)}


# -- eigenvalues of Hermitian matrices -----------------------------------------------------------------------


def _gaps(values: Tensor) -> Tensor:
    """``(*, k)`` → ``values[j] - values[i]`` at ``(i, j)``, with ones on the diagonal."""
    differences = _as_columns(values) - _as_rows(values)
    return differences + ltorch.eye(values.shape[-1], dtype=values.dtype, device=values.device)


@vjp("torch.linalg.eigh")
def _of_eigh(c: VjpCall) -> dict[str, Any]:
    """``V (diag(g) + skew(Vᴴ G) / gaps) Vᴴ``, the gradient of an eigendecomposition.

    Giles, An extended collection of matrix derivative results (2008), section 3.1; for complex matrices
    Boeddeker et al., On the computation of complex-valued gradients with application to statistically optimum
    beamforming (2017). Columns of a unitary matrix move by skew-Hermitian matrices only.
    """
    of_values, of_vectors = c.g
    values, v = _factors(c, lambda: ltorch.eigh(c.A, c.UPLO))
    if of_vectors is None:
        return {"A": (v * _as_columns(of_values)) @ adjoint(v)}
    turned = _skew(adjoint(v) @ of_vectors) / 2
    middle = (turned * (1 - _identity(turned))) / _gaps(values)
    if of_values is not None:
        middle = middle + ltorch.diag_embed(of_values)
    return {"A": v @ middle @ adjoint(v)}


@vjp("torch.linalg.eigvalsh")
def _of_eigvalsh(c: VjpCall) -> dict[str, Any]:
    _, v = ltorch.eigh(c.A, c.UPLO)
    return {"A": (v * _as_columns(c.g)) @ adjoint(v)}


# -- singular values -----------------------------------------------------------------------------------------


def _svd_gradient(
    of_u: Tensor | None, of_s: Tensor | None, of_vh: Tensor | None, u: Tensor, s: Tensor, vh: Tensor
) -> Tensor:
    """The gradient of ``A: (*, m, n)`` by ``u: (*, m, k)``, ``s: (*, k)``, ``vh: (*, k, n)``.

    Townsend, Differentiating the singular value decomposition (2016); the phase of complex vectors: Wan and
    Zhang, Automatic differentiation for complex valued SVD (2019).
    """
    if of_u is None and of_vh is None:
        assert of_s is not None, "a rule runs only if a gradient flows"
        return (u * _as_columns(of_s)) @ vh
    gaps = _gaps(s * s)
    parts = []
    if of_u is not None:
        turned = _skew(adjoint(u) @ of_u)
        parts.append(turned / gaps * _as_columns(s))
        if u.dtype.is_complex:  # phases turn with ``u`` alone, in every call: see _factors
            parts.append(ltorch.diag_embed(ltorch.diagonal(turned, 0, -2, -1) / (2 * s)))
    if of_vh is not None:
        parts.append(_as_rows(s) * (_skew(vh @ adjoint(of_vh)) / gaps))
    if of_s is not None:
        parts.append(ltorch.diag_embed(of_s))
    middle = sum(parts[1:], parts[0])
    m, n, k = u.shape[-2], vh.shape[-1], s.shape[-1]
    left = u @ middle
    if m > k and of_u is not None:
        outer = of_u / _as_columns(s)
        left = left + outer - u @ (adjoint(u) @ outer)
    gradient = left @ vh
    if n > k and of_vh is not None:
        outer = of_vh / _as_rows(s)
        gradient = gradient + u @ (outer - (outer @ adjoint(vh)) @ vh)
    return gradient


@vjp("torch.linalg.svd")
def _of_svd(c: VjpCall) -> dict[str, Any]:
    """The gradient of a singular value decomposition.

    With ``full_matrices`` the vectors beyond the singular values are arbitrary and have no gradient.
    """
    of_u, of_s, of_vh = c.g
    u, s, vh = _factors(c, lambda: ltorch.svd(c.A, c.full_matrices))
    k = s.shape[-1]
    return {
        "A": _svd_gradient(
            _first(of_u, -1, k), of_s, _first(of_vh, -2, k), _first(u, -1, k), s, _first(vh, -2, k)
        )
    }


def _first(x: Tensor | None, dim: int, k: int) -> Any:
    return x if x is None or x.shape[dim] == k else ltorch.narrow(x, dim, 0, k)


@vjp("torch.linalg.svdvals")
def _of_svdvals(c: VjpCall) -> dict[str, Any]:
    u, _, vh = ltorch.svd(c.A, False)
    return {"A": (u * _as_columns(c.g)) @ vh}
