"""Writes and sums at computed places in generated kernels, as the gradients of gathers and extrema are."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import thunder
from sweeping import one_in
from thunder_triton.executor import ex
from thunder_triton.fusions.scatters import MOST_PLACES
from triton_executor.interpreted.generated_inputs import layout

#: dtype → tolerance; in 16 bits eager rounds each sum
BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 6e-2}
DTYPES = [*BOUNDS, torch.int64, torch.int32, torch.uint8, torch.bool]

Program = Callable[..., torch.Tensor]


def changed(x: torch.Tensor) -> torch.Tensor:
    """Other elements, so that a region has more calls than one."""
    return ~x if x.dtype is torch.bool else x * 3


def values(shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape).to(dtype) if dtype.is_floating_point else torch.randint(0, 9, shape).to(dtype)


def written(kind: str, dim: int, number: Any) -> Program:
    """A program that writes at places."""

    def program(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        if kind == "number":
            return torch.scatter(changed(x), dim, index, number)
        if kind == "index_add":
            return torch.index_add(changed(x), dim, index.flatten()[: source.shape[dim]], changed(source))
        return getattr(torch, kind)(changed(x), dim, index, changed(source))

    return program


def refusals(compiled: Any) -> list[str]:
    rows = thunder.explain(compiled).rows
    return [r.code for row in rows for r in row.refusals if r.executor == "triton"]


def check(seed: int) -> None:
    """Compare a write of a seed with eager's."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    kind = choose.choice(("scatter", "scatter_add", "index_add", "number"))
    dtype = choose.choice(DTYPES[:-1] if "add" in kind else DTYPES)
    shape = [choose.choice((1, 2, 3, 5)) for _ in range(choose.randint(1, 3))]
    dim = choose.randrange(len(shape))
    if choose.random() < 0.1:
        shape[choose.randrange(len(shape))] = 0
    places = 0 if 0 in shape else choose.choice((0, 1, 1, 2, MOST_PLACES))
    sizes = [places if d == dim else size for d, size in enumerate(shape)]
    x, source = values(shape, dtype), values(sizes, dtype)
    if choose.random() < 0.3 and len(shape) > 1:
        x, source = x.mT.contiguous().mT, source.mT.contiguous().mT
    index = torch.randint(0, max(shape[dim], 1), sizes, dtype=choose.choice((torch.int64, torch.int32)))
    if kind != "index_add":  # torch takes int64 alone
        index = index.long()
    if kind == "index_add" and index.numel() < places:
        return
    program = written(kind, dim, True if dtype is torch.bool else 2)
    compiled = thunder.jit(program, executors=[ex])
    found, expected = compiled(x, index, source), program(x, index, source)
    bound = BOUNDS.get(dtype, 0.0)
    torch.testing.assert_close(found, expected, rtol=bound, atol=bound)
    assert layout(found) == layout(expected)
    if found.numel() and dtype is not torch.bool:
        assert "triton" in {row.claimed_by for row in thunder.explain(compiled).rows}, refusals(compiled)


@pytest.mark.parametrize("seed", one_in(50, range(500)))
def test_writes_at_places_are_eagers(seed: int):
    check(seed)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_the_last_of_equal_places_counts_as_on_a_cpu(seed: int, size: int):
    torch.manual_seed(seed)
    x, index, source = torch.zeros(6, size), torch.randint(0, size, (6, 5)), torch.randn(6, 5)
    compiled = thunder.jit(lambda x, i, s: torch.scatter(x + 1, 1, i, s * 2), executors=[ex])
    assert torch.equal(compiled(x, index, source), torch.scatter(x + 1, 1, index, source * 2))


def test_elements_without_a_place_keep_their_sign_of_zero():
    x = torch.full((4,), -0.0)
    compiled = thunder.jit(lambda x, i, s: torch.scatter_add(x * 1, 0, i, s * 1), executors=[ex])
    found = compiled(x, torch.tensor([2]), torch.zeros(1))
    assert found.signbit().tolist() == [True, True, False, True]


@pytest.mark.parametrize("place", [-1, 4, 2**40])
@pytest.mark.parametrize("kind", ["scatter", "scatter_add", "index_add", "number"])
def test_a_place_outside_of_the_dimension_is_an_error(kind: str, place: int):
    compiled = thunder.jit(written(kind, 0, 2), executors=[ex])
    with pytest.raises((IndexError, RuntimeError, AssertionError), match="out of"):
        compiled(torch.randn(4), torch.tensor([1, place]), torch.randn(2))


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (lambda x, i: (x * 2).scatter_add(1, i, x * 3), "length"),
        (lambda x, i: (x * 2).scatter(1, i[:3, :2], x[:3, :2] * 3), "shape"),
        (lambda x, i: (x > 0).scatter(1, i[:, :1], x[:, :1] < 0.5), "none"),
        (lambda x, i: (x * 2).long().scatter(1, i[:, :1], 2**62) * 1, "none"),
        (lambda x, i: (x * 2).to(torch.uint8).scatter(1, i[:, :1], 3) * 1, "none"),
    ],
)
def test_other_writes_are_torchs_with_the_reason(program: Program, code: str):
    x, index = torch.rand(4, MOST_PLACES + 1), torch.arange(MOST_PLACES + 1).repeat(4, 1)
    compiled = thunder.jit(program, executors=[ex])
    torch.testing.assert_close(compiled(x, index), program(x, index))
    assert (code in refusals(compiled)) is (code != "none")
