"""Gradients of torch's samples, taken apart into primitives, against eager's, to second order.

Composites have rules of their own, so that a program of torch's operators never asks the primitives for
theirs; other languages, and what is taken apart for an executor, do.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from recorded_refusals import refusals_as_recorded
from sweeping import in_turn
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops import prims
from thunder.ops.operator import row_of
from torch_language.gradients.differentiated_samples import (
    check_gradients,
    gradient_samples,
    has_second_order,
    sample_of,
)
from torch_language.gradients.test_gradients import ENTRIES
from torch_language.samples import RANDOM

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about deprecated functions


#: what a primitive draws, the composite need not
NAMES = [name for name, op in ENTRIES.items() if op.name not in RANDOM]

#: of complex numbers torch has convolutions, and no kernels for them
REAL = frozenset(name for name in NAMES if ".conv" in name)


@pytest.mark.parametrize(("name", "dtype"), in_turn(NAMES, [torch.float64, torch.complex128], 2), ids=str)
def test_gradients_of_an_operators_primitives_are_eagers(name: str, dtype: torch.dtype) -> None:
    if dtype.is_complex and name in REAL:
        pytest.skip("the primitive takes no complex numbers")
    samples = list(gradient_samples(ENTRIES[name], dtype))
    ran = 0
    with refusals_as_recorded(f"gradients of primitives, {dtype}", name) as refusals:
        for sample in samples[len(samples) // 2 :][:1]:
            with refusals.of("the sample in the middle"):
                ran += check_gradients(sample, second=has_second_order(ENTRIES[name]), apart=True)
    if not ran:
        pytest.skip("nothing to compare")


def real(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


COLUMNS = torch.tensor([[0, 2], [1, 1], [3, 0]])

ROWS = torch.tensor([[0, 2, 1], [2, 2, 3]])

#: those that no operator of torch's database consists of
OTHERS: dict[str, tuple[Symbol, tuple[Any, ...]]] = {
    "take_along_axis": (prims.take_along_axis, (real(3, 4), COLUMNS, 1)),
    "take": (prims.take, (real(3, 4, 2), COLUMNS, 1)),
    "gather": (prims.gather, (real(3, 4), COLUMNS, 1)),
    "scatter": (prims.scatter, (real(3, 4), torch.tensor([[0, 2], [1, 0], [3, 0]]), real(3, 2), 1)),
    "scatter_add": (prims.scatter_add, (real(3, 4), COLUMNS, real(3, 2), 1)),
    "index_add": (prims.index_add, (real(3, 4), torch.tensor([1, 1]), real(3, 2), 1)),
    "index_copy": (prims.index_copy, (real(3, 4), torch.tensor([1, 3]), real(3, 2), 1)),
    "index_put": (prims.index_put, (real(3, 4), [None, torch.tensor([1, 3])], real(2), False)),
    "index_put added": (prims.index_put, (real(3, 4), [torch.tensor([1, 1])], real(2, 4), True)),
    "copy_with_setitem": (prims.copy_with_setitem, (real(3, 4), (slice(1), slice(0, 4, 2)), real(2))),
    "as_strided": (prims.as_strided, (real(3, 4), (2, 3), (3, 1), 2)),
    "as_strided that overlaps": (prims.as_strided, (real(3, 4), (2, 3), (1, 1), 2)),
    "as_strided_scatter": (prims.as_strided_scatter, (real(3, 4), real(2, 3), (2, 3), (3, 1), 2)),
    "diagonal_scatter": (prims.diagonal_scatter, (real(3, 4), real(3), 1, 0, 1)),
    "pad between": (prims.pad, (real(3, 4), 2.0, ((1, 0, 2), (-1, 2, 1)))),
    "pad with cuts": (prims.pad, (real(3, 4), 2.0, ((-1, -1, 0), (0, -3, 1)))),
    "slice": (prims.slice_prim, (real(5, 4), (1, 0), (5, 3), (3, 1))),
    "broadcast_in_dim": (prims.broadcast_in_dim, (real(3, 1), (2, 3, 5, 4), (1, 2))),
    "stride_order": (prims.stride_order, (real(2, 3, 4), (0, 2, 1))),
    "embedding_backward": (prims.embedding_backward, (real(2, 3, 5), ROWS, 4, 1, False)),
    "embedding_backward without padding": (prims.embedding_backward, (real(2, 3, 5), ROWS, 4, None, False)),
    "embedding_backward by frequency": (prims.embedding_backward, (real(2, 3, 5), ROWS, 4, 1, True)),
}


def _written_through_window(a: torch.Tensor, value: torch.Tensor, *window: Any) -> torch.Tensor:
    out = a.clone()
    out.as_strided(*window).copy_(value)
    return out


def _summed_by_rows(
    grad: torch.Tensor, indices: torch.Tensor, rows: int, padding: int, scaled: bool
) -> torch.Tensor:
    places, g = indices.flatten(), grad.flatten(0, -2)
    if scaled:
        g = g / torch.bincount(places, minlength=rows)[places].unsqueeze(1)
    others = places != padding
    return g.new_zeros(rows, g.shape[1]).index_add(0, places[others], g[others])


#: in place of torch's functions, whose gradients are wrong: zero outside the window, or not scaled
MEANING = {
    "as_strided_scatter": _written_through_window,
    "embedding_backward by frequency": _summed_by_rows,
}


@pytest.mark.parametrize("name", OTHERS)
def test_gradients_of_a_primitive_are_those_of_what_it_stands_for(name: str) -> None:
    symbol, args = OTHERS[name]
    row = row_of(symbol)
    assert row is not None, "a primitive has a row"
    meaning: Any = MEANING.get(name, row.eager)

    def either(a: Any, *rest: Any) -> Any:
        return symbol(a, *rest) if isinstance(a, TensorProxy) else meaning(a, *rest)

    assert check_gradients(sample_of(either, *args), second=True)


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [
        ((2, 3), (4, 1), 1),
        ((2, 3), (1, 2), 3),
        ((2, 3), (4, 2), 0),
        ((2, 3), (2, 1), 0),
        ((3, 2), (1, 2), 1),
        ((2, 0), (1, 1), 0),
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(12,), (3, 4)], ids=str)
def test_gradients_of_windows_are_finite_differences(
    size: tuple[int, ...], stride: tuple[int, ...], offset: int, shape: tuple[int, ...]
) -> None:
    def write(a: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return prims.as_strided_scatter(a, value, size, stride, offset)

    def read(a: torch.Tensor) -> torch.Tensor:
        return prims.as_strided(a, size, stride, offset)

    assert torch.autograd.gradcheck(thunder.jit(write), (real(*shape), real(*size)))
    assert torch.autograd.gradcheck(thunder.jit(read), (real(*shape),))
