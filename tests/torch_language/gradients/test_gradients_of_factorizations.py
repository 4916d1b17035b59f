"""Gradients of linear algebra on unconstrained matrices, first and second, against torch's autograd.

torch's own samples are symmetric where a function reads one triangle, and so do not show what a gradient has
outside of the symmetric part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from sweeping import in_turn

L = torch.linalg

Program = Callable[..., torch.Tensor]


def weighted(*results: torch.Tensor) -> torch.Tensor:
    """A sum of all elements of the results, each with a weight of its own."""
    total = torch.zeros((), dtype=torch.float64)
    for i, result in enumerate(results):
        weights = torch.arange(1.0, result.numel() + 1, dtype=torch.float64).reshape(result.shape).sin() + i
        if result.is_complex():
            total = total + (result.real * weights).sum() + (result.imag * weights.cos()).sum()
        else:
            total = total + (result * weights).sum()
    return total


def _shifted(a: torch.Tensor, by: float = 3.0) -> torch.Tensor:
    return a + by * torch.eye(a.shape[-1], dtype=a.dtype)


def _eigh(a: torch.Tensor, triangle: str) -> torch.Tensor:
    values, vectors = L.eigh(a, UPLO=triangle)
    projection = (vectors * values.unsqueeze(-2) ** 2) @ vectors.mH
    return weighted(values, vectors.abs(), projection)


def _svd(a: torch.Tensor, full: bool) -> torch.Tensor:
    u, s, vh = L.svd(a, full_matrices=full)
    return weighted(u.abs(), s, vh.abs())


PROGRAMS: dict[str, Program] = {
    "svd": lambda a: _svd(a, False),
    "svd of a tall matrix": lambda a: _svd(a[:, :2], False),
    "svd of a wide matrix": lambda a: _svd(a[:2], False),
    "full svd": lambda a: _svd(a, True),
    "svdvals": lambda a: weighted(L.svdvals(a)),
    "qr": lambda a: weighted(*L.qr(a)),
    "qr of a tall matrix": lambda a: weighted(*L.qr(a[:, :2])),
    "qr of a wide matrix": lambda a: weighted(*L.qr(a[:2])),
    "inv": lambda a: weighted(L.inv(a)),
    "pinv": lambda a: weighted(L.pinv(a[:, :2])),
    "pinverse": lambda a: weighted(torch.pinverse(a[:2])),
    "hermitian pinv": lambda a: weighted(L.pinv(a, hermitian=True)),
    "solve": lambda a, b: weighted(L.solve(a, b)),
    "solve from the right": lambda a, b: weighted(L.solve(a, b.mT, left=False)),
    "lu": lambda a: weighted(*L.lu(a)),
    "lu_factor": lambda a: weighted(L.lu_factor(a)[0]),
    "lu_solve": lambda a, b: weighted(L.lu_solve(*L.lu_factor(a), b, adjoint=True)),
    "lstsq": lambda a, b: weighted(L.lstsq(a[:, :2], b)[0]),
    "matrix_exp": lambda a: weighted(L.matrix_exp(a)),
    "matrix_power": lambda a: weighted(L.matrix_power(a, 3), L.matrix_power(a, -2)),
    "det": lambda a: weighted(L.det(a)),
    "slogdet": lambda a: weighted(*L.slogdet(a)),
    "householder_product": lambda a, b: weighted(L.householder_product(a, b[:, 0] * 0.3)),
    "eigvals": lambda a: weighted(L.eigvals(a).abs()),
    "norms": lambda a: weighted(*(L.matrix_norm(a, p) for p in (2, -2, "nuc", "fro", 1))),
    "cholesky_solve": lambda a, b: weighted(torch.cholesky_solve(b, L.cholesky(_shifted(a @ a.mH)))),
}
for _triangle in "LU":
    _upper = _triangle == "U"
    PROGRAMS |= {
        f"eigh {_triangle}": lambda a, t=_triangle: _eigh(a, t),
        f"eigenvalues of eigh {_triangle}": lambda a, t=_triangle: weighted(L.eigh(a, UPLO=t)[0]),
        f"vectors of eigh {_triangle}": lambda a, t=_triangle: weighted(L.eigh(a, UPLO=t)[1].abs()),
        f"eigvalsh {_triangle}": lambda a, t=_triangle: weighted(L.eigvalsh(a, UPLO=t)),
        f"cholesky {_triangle}": lambda a, u=_upper: weighted(L.cholesky(_shifted(a, 8), upper=u)),
        f"cholesky_ex {_triangle}": lambda a, u=_upper: weighted(L.cholesky_ex(_shifted(a, 8), upper=u)[0]),
        f"cholesky_inverse {_triangle}": lambda a, u=_upper: weighted(
            torch.cholesky_inverse(_shifted(a), upper=u)
        ),
        f"cholesky_solve {_triangle}": lambda a, b, u=_upper: weighted(
            torch.cholesky_solve(b, _shifted(a), upper=u)
        ),
        f"solve_triangular {_triangle}": lambda a, b, u=_upper: weighted(
            L.solve_triangular(_shifted(a), b, upper=u),
            L.solve_triangular(_shifted(a), b.mT, upper=u, left=False, unitriangular=True),
        ),
    }


def derivatives(program: Program, dtype: torch.dtype, *, compiled: bool) -> list[Any]:
    """The value of a program of unconstrained matrices, its gradients, and those of their weighted sum."""
    generator = torch.Generator().manual_seed(5)
    a = torch.randn(4, 4, dtype=dtype, generator=generator).requires_grad_()
    b = torch.randn(4, 2, dtype=dtype, generator=generator).requires_grad_()
    inputs = (a, b)[: program.__code__.co_argcount - len(program.__defaults__ or ())]
    value = (thunder.jit(program) if compiled else program)(*inputs)
    first = torch.autograd.grad(value, inputs, create_graph=True)
    second = torch.autograd.grad(weighted(*first), inputs, allow_unused=True)
    known = (torch.zeros_like(x) if g is None else g for g, x in zip(second, inputs, strict=True))
    return [value, *first, *known]


@pytest.mark.parametrize(("name", "dtype"), in_turn(PROGRAMS, [torch.float64, torch.complex128]), ids=str)
def test_derivatives_of_unconstrained_matrices_are_torchs(name: str, dtype: torch.dtype) -> None:
    program = PROGRAMS[name]
    expected = derivatives(program, dtype, compiled=False)
    found = derivatives(program, dtype, compiled=True)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
