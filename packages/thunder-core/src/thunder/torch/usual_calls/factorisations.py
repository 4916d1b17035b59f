"""Spectra and matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch

from thunder.torch import kernel_shapes
from thunder.torch.usual_calls.conditions import (
    COMPLEX,
    REAL,
    REAL_OF,
    RESULTS,
    alike,
    dims_of,
    lengths,
    result_of,
    rule,
)

_F: Final = "torch.nn.functional."


_NORMS: Final = (None, "ortho", "forward", "backward")


def _spectrum(name: str, several: str) -> Callable[..., Any]:
    shapes = kernel_shapes.spectra(name, (-2, -1) if several == "2" else None)
    shape_of = shapes if several else kernel_shapes.one_spectrum(name)

    def result(input: Any, n: Any = None, dim: Any = -1, norm: Any = None) -> Any:
        takes = REAL if name in ("rfft", "ihfft") else REAL_OF
        if (
            not alike(input, of=takes)
            or not input.shape
            or norm not in (None, "ortho", "forward", "backward")
        ):
            return None
        dims = dims_of(tuple(range(len(input.shape))) if dim is None else dim, len(input.shape))
        if not dims or (n is not None and (dim is None or lengths(n, len(dims)) is None)):
            return None
        shape = shape_of(input, n, dim, norm)
        is_real = name in ("irfft", "hfft")
        real = REAL_OF[input.dtype]
        return result_of(input, shape, real if is_real else COMPLEX[real]) if all(shape) else None

    return result


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    for _several in ("", "2", "n"):
        RESULTS[f"torch.fft.{_name}{_several}"] = _spectrum(_name, _several)


@rule("torch.fft.fftshift", "torch.fft.ifftshift")
def _shifted(input: Any, dim: Any = None) -> Any:
    is_usual = alike(input, of=REAL_OF) and (dim is None or dims_of(dim, len(input.shape)))
    return result_of(input, input.shape) if is_usual else None


# -- matrices ------------------------------------------------------------------------------------------------


def _is_matrix(A: Any) -> bool:
    return alike(A, of=REAL_OF) and len(A.shape) >= 2


def _is_square(A: Any) -> bool:
    return _is_matrix(A) and A.shape[-1] == A.shape[-2]


@rule("torch.linalg.inv", "torch.matrix_exp", "torch.linalg.cholesky")
def _square(A: Any, *, upper: bool = False) -> Any:
    return result_of(A, A.shape) if _is_square(A) else None


@rule("torch.linalg.det")
def _determinant(A: Any) -> Any:
    return result_of(A, A.shape[:-2]) if _is_square(A) else None


@rule("torch.linalg.slogdet")
def _slogdet(A: Any) -> Any:
    if not _is_square(A):
        return None
    batch = A.shape[:-2]
    return torch.return_types.linalg_slogdet((result_of(A, batch), result_of(A, batch, REAL_OF[A.dtype])))  # type: ignore[attr-defined]


@rule("torch.linalg.eigh")
def _eigh(A: Any, UPLO: Any = "L") -> Any:
    if not _is_square(A) or UPLO not in ("L", "U"):
        return None
    return torch.return_types.linalg_eigh(  # type: ignore[attr-defined]
        (result_of(A, A.shape[:-1], REAL_OF[A.dtype]), result_of(A, A.shape))
    )


@rule("torch.linalg.eigvalsh")
def _eigvalsh(A: Any, UPLO: Any = "L") -> Any:
    is_usual = _is_square(A) and UPLO in ("L", "U")
    return result_of(A, A.shape[:-1], REAL_OF[A.dtype]) if is_usual else None


@rule("torch.linalg.svd")
def _svd(A: Any, full_matrices: Any = True, *, driver: Any = None) -> Any:
    if not _is_matrix(A) or type(full_matrices) is not bool or driver is not None:
        return None
    *batch, m, n = A.shape
    k = min(m, n)
    left, right = (m, n) if full_matrices else (k, k)
    parts = (
        result_of(A, (*batch, m, left)),
        result_of(A, (*batch, k), REAL_OF[A.dtype]),
        result_of(A, (*batch, right, n)),
    )
    return torch.return_types.linalg_svd(parts)  # type: ignore[attr-defined]


@rule("torch.linalg.svdvals")
def _svdvals(A: Any, *, driver: Any = None) -> Any:
    if not _is_matrix(A) or driver is not None:
        return None
    return result_of(A, (*A.shape[:-2], min(A.shape[-2:])), REAL_OF[A.dtype])


@rule("torch.linalg.qr")
def _qr(A: Any, mode: Any = "reduced") -> Any:
    if not _is_matrix(A) or mode not in ("reduced", "complete"):
        return None
    *batch, m, n = A.shape
    k = min(m, n) if mode == "reduced" else m
    return torch.return_types.linalg_qr((result_of(A, (*batch, m, k)), result_of(A, (*batch, k, n))))  # type: ignore[attr-defined]


@rule("torch.linalg.solve")
def _solve(A: Any, B: Any, *, left: Any = True) -> Any:
    if left is not True or not _is_square(A) or not alike(A, B, of=REAL_OF):
        return None
    is_of_matrices = len(B.shape) == len(A.shape) and B.shape[:-1] == A.shape[:-1]
    return result_of(B, B.shape) if is_of_matrices else None


@rule("torch.linalg.pinv")
def _pinv(A: Any, *, atol: Any = None, rtol: Any = None, hermitian: Any = False) -> Any:
    if not _is_matrix(A) or hermitian is not False or not {type(atol), type(rtol)} <= {float, type(None)}:
        return None
    return result_of(A, (*A.shape[:-2], A.shape[-1], A.shape[-2]))


@rule("torch.linalg.matrix_norm")
def _norm_of_matrices(
    A: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: Any = False, *, dtype: Any = None
) -> Any:
    is_usual = ord in ("fro", "nuc", 1, 2, -1, -2, math.inf, -math.inf) and dtype is None
    dims = dims_of(dim, len(A.shape)) if is_usual and _is_matrix(A) else None
    if dims is None or len(dims) != 2 or type(keepdim) is not bool:
        return None
    return result_of(A, kernel_shapes.matrix_norm(A, ord, dim, keepdim), REAL_OF[A.dtype])


@rule("torch.kron")
def _kron(input: Any, other: Any) -> Any:
    return result_of(input, kernel_shapes.kron(input, other)) if alike(input, other) else None


@rule("torch.cdist")
def _distances(x1: Any, x2: Any, p: Any = 2.0, compute_mode: Any = None) -> Any:
    modes = "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"
    if not alike(x1, x2) or len(x1.shape) < 2 or type(p) not in (int, float) or not p >= 0:
        return None
    is_usual = x1.shape[:-2] == x2.shape[:-2] and x1.shape[-1] == x2.shape[-1] and compute_mode in modes
    return result_of(x1, (*x1.shape[:-1], x2.shape[-2])) if is_usual else None


@rule(f"{_F}bilinear")
def _bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    if not alike(input1, input2, weight, *(() if bias is None else (bias,))) or not input1.shape:
        return None
    k = weight.shape[:1]
    is_usual = (
        input1.shape[:-1] == input2.shape[:-1]
        and weight.shape == (*k, input1.shape[-1], input2.shape[-1])
        and (bias is None or bias.shape == k)
    )
    return result_of(input1, (*input1.shape[:-1], *k)) if is_usual else None
