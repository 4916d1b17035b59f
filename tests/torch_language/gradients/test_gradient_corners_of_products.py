"""Gradients of products and of matrix functions for unusual shapes, against eager's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder.torch
from sweeping import in_turn
from torch_language.gradients.differentiated_samples import check_gradients, sample_of

DTYPES = (torch.float64, torch.complex128)
LEFT, RIGHT = [(4,), (3, 4), (2, 3, 4), (5, 1, 3, 4), (0, 4)], [(4,), (4, 6), (2, 4, 6), (5, 2, 4, 1), (4, 0)]

EINSUMS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,kj", [(2, 3), (4, 3)]),
    ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("...ij,...jk->...ik", [(5, 1, 2, 3), (4, 3, 2)]),
    ("i...,i...->...", [(3, 2, 4), (3, 1, 4)]),
    ("ii->i", [(3, 3)]),
    ("ii", [(3, 3)]),
    ("iij->j", [(3, 3, 2)]),
    ("iji->j", [(3, 2, 3)]),
    ("ijij,kk->ik", [(2, 3, 2, 3), (4, 4)]),
    ("ij->", [(2, 3)]),
    ("ij->ji", [(2, 3)]),
    ("ij,k->k", [(2, 3), (4,)]),
    ("i,j,k->ijk", [(2,), (3,), (4,)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
    ("ij,jk->ik", [(2, 1), (3, 4)]),
    ("ij,ij->ij", [(2, 3), (1, 3)]),
    ("ij,jk->k", [(0, 3), (3, 4)]),
    (",i->i", [(), (3,)]),
]

TENSORDOTS = [
    ((2, 3), (3, 4), 1),
    ((2, 3), (4, 5), 0),
    ((2, 3, 4), (3, 4, 2), 2),
    ((2, 3, 4), (4, 3, 2), ([1, 2], [1, 0])),
    ((2, 3, 4), (5, 4, 2), ([-1, 0], [1, -1])),
    ((2, 1), (3, 4), 1),
    ((2, 3), (1, 4), 1),
]


def _tensors(shapes: Any, dtype: torch.dtype) -> list[torch.Tensor]:
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


def _check(fn: Callable[..., Any], *tensors: torch.Tensor) -> None:
    assert check_gradients(sample_of(fn, *tensors), second=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("left", "right"), list(itertools.product(LEFT, RIGHT)))
def test_matmul_of_vectors_matrices_and_batches(left: Any, right: Any, dtype: torch.dtype) -> None:
    assert check_gradients(sample_of(torch.matmul, *_tensors((left, right), dtype)), second=True) or 0 in left


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("equation", "operands"), EINSUMS)
def test_einsum(equation: str, operands: Any, dtype: torch.dtype) -> None:
    _check(lambda *tensors: torch.einsum(equation, *tensors), *_tensors(operands, dtype))


def test_einsum_of_one_tensor_twice() -> None:
    (a,) = _tensors([(2, 3)], torch.float64)
    _check(lambda x: torch.einsum("ij,kj->ik", x, x), a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("left", "right", "dims"), TENSORDOTS)
def test_tensordot(left: Any, right: Any, dims: Any, dtype: torch.dtype) -> None:
    _check(lambda a, b: torch.tensordot(a, b, dims), *_tensors((left, right), dtype))


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((2, 3), (4, 5, 3)), ((), (2, 3)), ((2, 3), ()), ((), ())])
def test_inner(shapes: Any) -> None:
    for dtype in DTYPES:
        _check(torch.inner, *_tensors(shapes, dtype))


@pytest.mark.parametrize("rows", [(), (2,), (2, 3), (0,), (4, 0)])
@pytest.mark.parametrize("weight", [(5, 3), (3,)])
def test_linear_of_any_number_of_dimensions(rows: tuple[int, ...], weight: tuple[int, ...]) -> None:
    for dtype in DTYPES:
        x, w, bias = _tensors(((*rows, 3), weight, weight[:-1]), dtype)
        _check(F.linear, x, w)
        if weight != (3,):
            _check(F.linear, x, w, bias)


def test_linear_gives_only_the_gradients_that_are_wanted() -> None:
    x, w, bias = _tensors(((4, 3), (5, 3), (5,)), torch.float64)
    for wanted in itertools.product((False, True), repeat=3):
        if any(wanted):
            args = [t.detach().requires_grad_(r) for t, r in zip((x, w, bias), wanted, strict=True)]
            _check(F.linear, *args)


@pytest.mark.parametrize("beta", [0, 1, 2.5])
@pytest.mark.parametrize("alpha", [1, -0.5])
def test_sums_with_a_product(beta: float, alpha: float) -> None:
    factors: dict[str, Any] = {"beta": beta, "alpha": alpha}
    for dtype in DTYPES:
        m, v, a, b, x, y = _tensors([(2, 3), (3,), (4, 2, 5), (4, 5, 3), (5,), (2,)], dtype)
        for added in (m, v, v[:1].detach().requires_grad_()):
            _check(lambda i, a, b: torch.addmm(i, a[0], b[0], **factors), added, a, b)
            _check(lambda i, a, b: torch.baddbmm(i, a, b, **factors), added, a, b)
            _check(lambda i, a, b: torch.addbmm(i, a, b, **factors), added, a, b)
        _check(lambda i, a, x: torch.addmv(i, a[0], x, **factors), y, a, x)
        _check(lambda i, y, v: torch.addr(i, y, v, **factors), m, y, v)


@pytest.mark.parametrize("shapes", [[(3,), (3,)], [(3,), (3, 4), (4,)], [(2, 3), (3, 4), (4, 5), (5,)]])
def test_multi_dot_with_vectors_at_its_ends(shapes: Any) -> None:
    for dtype in DTYPES:
        _check(lambda *tensors: torch.linalg.multi_dot(tensors), *_tensors(shapes, dtype))


@pytest.mark.parametrize("increasing", [False, True])
@pytest.mark.parametrize("columns", [1, 2, 5])
def test_a_vandermonde_matrix_of_which_eager_has_no_gradient(columns: int, increasing: bool) -> None:
    """Eager multiplies in place what it keeps for the backward, and refuses it there."""
    x = torch.tensor([0.5, 0.0, -2.0], dtype=torch.float64, requires_grad=True)
    weights = torch.randn(3, columns, dtype=torch.float64)
    powers = torch.stack([x**n for n in range(columns)], -1)
    found = thunder.jit(lambda x: torch.vander(x, columns, increasing))(x)
    (ours,) = torch.autograd.grad(found, x, weights)
    (theirs,) = torch.autograd.grad(powers if increasing else powers.flip(-1), x, weights)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("n", [-3, -1, 0, 1, 2, 5, 6])
def test_matrix_power(n: int) -> None:
    for dtype in DTYPES:
        _check(lambda a: torch.linalg.matrix_power(a, n), *_tensors([(2, 3, 3)], dtype))


def test_the_determinant_of_a_singular_matrix_has_the_cofactors_as_gradient() -> None:
    """Eager has them only under ``create_graph=True``, without it zeros."""
    a = torch.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([[0.0, 0.0], [0.0, 3.0]], dtype=torch.float64, requires_grad=True)
    for matrix in (a, b):
        fn = thunder.jit(torch.linalg.det)
        (ours,) = torch.autograd.grad(fn(matrix), matrix)
        (theirs,) = torch.autograd.grad(torch.linalg.det(matrix), matrix, create_graph=True)
        torch.testing.assert_close(ours, theirs.detach())


def test_the_logarithm_of_the_determinant_of_a_singular_matrix() -> None:
    a = torch.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=torch.float64, requires_grad=True)
    assert check_gradients(sample_of(lambda x: torch.linalg.slogdet(x)[1], a))
    assert check_gradients(sample_of(torch.logdet, a))


def test_one_part_of_a_factorization_may_be_unused() -> None:
    for dtype in DTYPES:
        a, wide, tall = _tensors([(3, 3), (3, 5), (5, 3)], dtype)
        for i in (0, 1):
            _check(lambda x, i=i: torch.linalg.qr(x)[i], wide)
            _check(lambda x, i=i: torch.linalg.qr(x)[i], tall)
        _check(lambda x: torch.linalg.eigh(x + x.mH)[0], a)
        _check(lambda x: torch.linalg.eigh(x + x.mH)[1].abs(), a)
        for x in (wide, tall):
            _check(lambda x: torch.linalg.svd(x, full_matrices=False)[1], x)
            _check(lambda x: torch.linalg.svd(x, full_matrices=True)[1], x)
            _check(lambda x: torch.linalg.svd(x, full_matrices=False)[0].abs(), x)
            _check(lambda x: torch.linalg.svd(x, full_matrices=False)[2].abs(), x)
            _check(lambda x: torch.linalg.svd(x, full_matrices=True)[0][..., :3].abs(), x)


PARTS: dict[str, Callable[..., Any]] = {
    "R": lambda x: torch.linalg.qr(x).R,
    "Q": lambda x: torch.linalg.qr(x).Q,
    "eigenvalues": lambda x: torch.linalg.eigh(x.mT @ x).eigenvalues,
    "eigenvectors": lambda x: torch.linalg.eigh(x.mT @ x).eigenvectors.abs(),
    "singular values": lambda x: torch.linalg.svd(x).S,
    "left singular vectors": lambda x: torch.linalg.svd(x, full_matrices=False).U.abs(),
    "the maximum": lambda x: torch.max(x * x, 0).values,
    "the deviation": lambda x: torch.std_mean(x, 0)[0],
    "the logarithm": lambda x: torch.linalg.slogdet(x.mT @ x).logabsdet,
}


@pytest.mark.parametrize("name", PARTS)
def test_second_derivatives_of_a_compiled_program_that_uses_one_of_several_results(name: str) -> None:
    """The other results are intermediate values, in which a second derivative must not get lost."""
    torch.manual_seed(0)
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    fn = thunder.jit(PARTS[name])
    assert torch.autograd.gradcheck(fn, [x])
    assert torch.autograd.gradgradcheck(fn, [x])


def test_qr_without_q_is_refused_as_by_eager() -> None:
    (a,) = _tensors([(4, 3)], torch.float64)
    with pytest.raises(RuntimeError, match=r"The derivative of linalg\.qr depends on Q"):
        torch.linalg.qr(a, mode="r").R.sum().backward()
    with pytest.raises(thunder.core.errors.ThunderError, match="mode='r'"):
        thunder.jit(lambda x: torch.linalg.qr(x, mode="r").R)(a)


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, float("inf"), float("-inf")])
def test_matrix_norms_of_dimensions_in_any_order(ord: Any) -> None:
    for dtype in DTYPES:
        (a,) = _tensors([(2, 3, 4, 2)], dtype)
        for dims in ((-2, -1), (2, 0), (0, 1)):
            for keepdim in (False, True):
                _check(lambda x, d=dims, k=keepdim: torch.linalg.matrix_norm(x, ord, d, k), a)


NORMS = (None, "backward", "ortho", "forward")


@pytest.mark.parametrize(
    ("name", "norm"), in_turn(["fft", "ifft", "irfft", "hfft", "rfft", "ihfft"], NORMS), ids=str
)
def test_transforms_that_pad_or_cut(name: str, norm: Any) -> None:
    one, many = getattr(torch.fft, name), getattr(torch.fft, name + "n")
    for size in (5, 6):
        dtypes = (torch.float64,) if name in ("rfft", "ihfft") else DTYPES
        for dtype, n in itertools.product(dtypes, (None, 4, 5, 9, 10)):
            (x,) = _tensors([(2, size, 3)], dtype)
            _check(lambda x, n=n: one(x, n, 1, norm), x)
            _check(lambda x, n=n: many(x, None if n is None else (n,), (1,), norm), x)
            _check(lambda x, n=n: many(x, None if n is None else (4, n), None, norm), x)
