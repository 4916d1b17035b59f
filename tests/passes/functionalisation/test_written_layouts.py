"""What was written lies in memory as eager's tensor does: in the strides of the memory, not of the value."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from sweeping import one_in
from thunder.ops.layout_rules import REORDERED
from thunder.ops.operator import all_rows
from torch_language.database import op_db


def copied(x):
    y = torch.empty(4, 3)
    y.copy_(x.t())
    return y


def copied_and_viewed(x):
    y = torch.empty(4, 3)
    y.copy_(x.t())
    return y, y.view(-1)


def copied_through_a_view(x):
    y = torch.empty(4, 3).t()
    y.copy_(x)
    return y.t().view(-1)


def assigned_whole(x):
    y = torch.zeros(4, 3).t()
    y[:] = x
    return y


def computed_into(x):
    y = torch.empty(4, 3).t()
    torch.exp(x, out=y)
    return y


def strided(x):
    y = torch.empty_strided((3, 4), (1, 3))
    y.copy_(x)
    return y + 1, y


def added_to(x):
    y = torch.zeros(4, 3)
    y += x.t()
    return y


def copied_and_written_in_part(x):
    y = torch.empty(4, 3)
    y.copy_(x.t())
    y[1:].mul_(2)
    return y, y.view(2, 6)


def copied_twice(x):
    y = torch.empty(4, 3)
    y.copy_(x.t())
    y.t().copy_(x + 1)
    return y


def kept_apart(x):
    z = (x * 2).t()
    y = torch.empty(4, 3)
    y.copy_(z)
    y.add_(1)
    return y, z


def an_input_and_a_view_of_it(x):
    x.t().copy_(x.t() * 2)
    part = x[:]
    return part.view(-1)


@pytest.mark.parametrize(
    "program",
    [
        copied,
        copied_and_viewed,
        copied_through_a_view,
        assigned_whole,
        computed_into,
        strided,
        added_to,
        copied_and_written_in_part,
        copied_twice,
        kept_apart,
        an_input_and_a_view_of_it,
    ],
)
def test_strides_and_values_are_eagers(program):
    results = []
    for call in (program, thunder.jit(program)):
        x = torch.arange(12.0).reshape(3, 4)
        out = call(x)
        results.append([x, *(out if isinstance(out, tuple) else (out,))])
    for expected, found in zip(*results, strict=True):
        assert found.stride() == expected.stride()
        assert torch.equal(found, expected)


def test_gradients_flow_through_what_was_placed():
    grads = []
    for call in (copied_and_viewed, thunder.jit(copied_and_viewed)):
        x = torch.arange(12.0, dtype=torch.float32).reshape(3, 4).requires_grad_()
        whole, flat = call(x)
        ((whole * torch.arange(3.0)).sum() + (flat * torch.arange(12.0)).sum()).backward()
        grads.append(x.grad)
    assert torch.equal(*grads)


# -- a write of each kind through views of each kind, on memory of each layout ---------------------------

MEMORIES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "input": lambda x: x,
    "computed": lambda x: x * 1.0,
    "copied in another order": lambda x: x.permute(2, 0, 1).clone().permute(1, 2, 0),
    "made": lambda x: torch.zeros_like(x.transpose(0, 1)).transpose(0, 1),
}
VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "whole": lambda y: y,
    "t01": lambda y: y.transpose(0, 1),
    "t02": lambda y: y.transpose(0, 2),
    "mT": lambda y: y.mT,
    "permuted": lambda y: y.permute(1, 2, 0),
    "rows": lambda y: y[1:],
    "every other": lambda y: y[:, ::2],
    "permuted part": lambda y: y.permute(2, 0, 1)[:, 1:],
    "diagonal": lambda y: y.diagonal(0, 0, 1),
    "chunk": lambda y: y.chunk(2, 1)[1],
    "reshaped": lambda y: y.reshape(4, -1),
}


def reversed_dimensions(v: torch.Tensor) -> torch.Tensor:
    return torch.ones(v.shape[::-1]).permute(*range(v.dim() - 1, -1, -1))


WRITES: dict[str, Callable[[torch.Tensor], Any]] = {
    "add_": lambda v: v.add_(1),
    "add_ of another order": lambda v: v.add_(reversed_dimensions(v)),
    "copy_": lambda v: v.copy_(torch.ones(v.shape)),
    "copy_ of another order": lambda v: v.copy_(reversed_dimensions(v)),
    "zero_": lambda v: v.zero_(),
    "normal_": lambda v: v.normal_(),
    "[0] =": lambda v: v.__setitem__(0, 5.0),
    "[mask] =": lambda v: v.__setitem__(v > 1.0, 0.0),
    "masked_fill_": lambda v: v.masked_fill_(v > 1, 2.0),
    "masked_fill_ of another order": lambda v: v.masked_fill_(reversed_dimensions(v) > 0, 2.0),
    "index_fill_": lambda v: v.index_fill_(0, torch.tensor([0]), 3.0),
    "index_add_": lambda v: v.index_add_(0, torch.tensor([0]), torch.ones_like(v[:1])),
    "scatter_": lambda v: v.scatter_(0, torch.zeros(v.shape, dtype=torch.long), 1.0),
    "cumsum_": lambda v: v.cumsum_(0),
    "tril_": lambda v: v.tril_(),
    "renorm_": lambda v: v.renorm_(2, 0, 1.0),
    "lerp_": lambda v: v.lerp_(torch.ones(v.shape), 0.5),
    "out=": lambda v: torch.exp(v, out=v),
    "dropout": lambda v: torch.nn.functional.dropout(v, 0.5, True, True),
    "[:1].fill_": lambda v: v[:1].fill_(1.0),
}
INPUTS: tuple[Callable[[], torch.Tensor], ...] = (
    lambda: torch.randn(3, 4, 2),
    lambda: torch.randn(2, 4, 3).transpose(0, 2),
    lambda: torch.randn(4, 3, 2).transpose(0, 1),
    lambda: torch.randn(3, 4, 4)[:, :, ::2],
)


def laid_out(tensors: tuple[torch.Tensor, ...]) -> list[Any]:
    """Of each tensor: strides, but those of dimensions of size 1, offset, and the number of its memory."""
    storages: dict[int, int] = {}
    return [
        (
            [stride for stride, size in zip(t.stride(), t.shape, strict=True) if size != 1],
            t.storage_offset(),
            storages.setdefault(t.untyped_storage()._cdata, len(storages)),
        )
        for t in tensors
    ]


def run(fn: Callable[..., Any], make: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, ...] | None:
    """The results and the input after the call, for equal random numbers; None if the call raises."""
    torch.manual_seed(0)
    x = make()
    try:
        return (*fn(x), x)
    except (RuntimeError, IndexError):
        return None


@pytest.mark.parametrize("seed", one_in(3, range(6)))
def test_what_is_written_through_a_view_has_eagers_strides(seed: int) -> None:
    rng, compared = random.Random(seed), 0
    for _ in range(60):
        memory, write, make = (rng.choice(list(x)) for x in (MEMORIES, WRITES, INPUTS))
        views = rng.choices(list(VIEWS), k=rng.choice((1, 2)))

        def program(x, memory=memory, write=write, views=views):
            y = v = MEMORIES[memory](x)
            for view in views:
                v = VIEWS[view](v)
            WRITES[write](v)
            return y, v, y.clone(), v.clone(), v + 1.0, v.reshape(-1)

        expected, found = run(program, make), run(thunder.jit(program), make)
        if expected is None:
            continue
        case = (memory, views, write)
        assert found is not None, case
        assert all(map(torch.equal, expected, found)), case
        assert laid_out(found) == laid_out(expected), case
        compared += 1
    assert compared > 30


#: parts of torch's database of operators, of which a default run has one
PARTS = 6


@pytest.mark.parametrize("part", one_in(PARTS, range(PARTS)))
@pytest.mark.filterwarnings("ignore")  # torch's own, about deprecated arguments
def test_the_operators_with_contiguous_results_are_torchs(part: int) -> None:
    """Those whose in-place form keeps an order of dimensions that the other form does not keep."""
    found: set[str] = set()
    names = set(sorted({op.name for op in op_db})[part::PARTS])
    for op in (op for op in op_db if op.name in names):
        if op.inplace_variant is None or torch.float32 not in op.dtypes:
            continue
        for sample in itertools.islice(op.sample_inputs("cpu", torch.float32), 20):
            x = sample.input
            if not isinstance(x, torch.Tensor) or x.dim() < 2 or min(x.shape) < 2:
                continue
            x = x.detach().transpose(0, -1).contiguous().transpose(0, -1)
            try:
                result = op.op(x, *sample.args, **sample.kwargs)
            except RuntimeError:  # the sample is for the shape before
                continue
            if not isinstance(result, torch.Tensor) or result.shape != x.shape or result._is_view():
                continue
            if result.stride() != x.stride():
                found.add(f"torch.{op.name}")
                break
    assert found == {row.id for row in all_rows() if row.layout is REORDERED} & {
        f"torch.{name}" for name in names
    }
