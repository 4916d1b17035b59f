"""Gradients of views, cuts, indices and orders, in programs: first and second derivatives are eager's; the
forward keeps every call whole, and keeps no tensor that its backward has no use for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder

Program = Callable[..., Any]
Case = tuple[Program, tuple[torch.Tensor, ...]]

ROWS = torch.tensor([0, 2, 2])
COLUMNS = torch.tensor([[1], [0]])

CASES: dict[str, Case] = {}


def real(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def case(*args: torch.Tensor) -> Callable[[Program], Program]:
    def add(program: Program) -> Program:
        CASES[program.__name__] = program, args
        return program

    return add


def squares(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(v * v for v in values)


# -- x[key] --------------------------------------------------------------------------------------------------


@case(real(4, 5, 6))
def reads_by_numbers_and_slices(x):
    return squares(x[1], x[..., 2], x[:, None, 1:3, ::2], x[-1, :, 3], x[...], x[None], x[2:2])


@case(real(4, 5, 6))
def reads_by_tensors(x):
    return squares(x[:, [0, 2, 2]], x[ROWS][:, :, 1], x[:, COLUMNS, ROWS[:2]], x[ROWS, 1:3, ROWS])


@case(real(4, 5, 6))
def reads_by_both(x):
    return squares(x[1:3, ROWS], x[0, :, ROWS], x[None, ROWS, 1:3])


@case(real(4, 5), real(3, 5))
def writes_rows(x, v):
    y = x.clone()
    y[1:4] = v
    return squares(y)


@case(real(4, 5), real(5))
def writes_that_broadcast(x, v):
    y = x * 1
    y[:, ::2] = v[:3]
    y[0] = 3.0
    return squares(y)


@case(real(4, 5), real(3, 1))
def writes_at_tensors(x, v):
    y = x * 1
    y[torch.tensor([0, 1, 3])] = v
    return squares(y)


@case(real(4, 5), real(1, 1, 5))
def writes_a_value_with_more_dimensions(x, v):
    y = x * 1
    y[2:3] = v
    return squares(y)


@case(real(4, 5), real())
def writes_through_a_mask(x, v):
    y, z = x * 1, x * 2
    y[x > 0] = v
    z[x > 0] = 2.0
    return squares(y, z)


@case(real(2, 3, 8))
def writes_through_views(x):
    y = x * 2
    y[:, 1].mul_(3)
    y.transpose(0, 1)[0].add_(x[:, 0])
    y[0, :, :3].diagonal().mul_(x[1, 0, :3])
    return squares(y)


@case(real(4, 6), torch.tensor([1, 3]), real(4, 2))
def indices_along_a_dimension(x, at, v):
    spread = at.expand(4, 2)
    reads = x.index_select(1, at), x.gather(1, spread), x.take(at), torch.take_along_dim(x, at[None], 1)
    adds = x.index_add(1, at, v, alpha=2), x.scatter_add(1, spread, v)
    writes = x.index_copy(1, at, v), x.index_fill(1, at, 3.0), x.scatter(1, spread, v)
    return squares(*reads, *adds, *writes)


@case(real(4, 5), torch.tensor([True, False, True, True, False]), real())
def masks(x, mask, v):
    return squares(x.masked_fill(mask, 0.0), x.masked_fill(mask, v), x[:1, 0].masked_fill(mask, v), x.tril(1))


# -- cutting and joining -------------------------------------------------------------------------------------


@case(real(6, 4))
def one_piece_of_several(x):
    return squares(x.split([1, 2, 3])[1], x.unbind(1)[2], x.chunk(3)[-1])


@case(real(6, 4))
def some_pieces_of_several(x):
    a, _, c = x.split([1, 2, 3])
    d, e, _ = x.chunk(3)
    f, _, _, g = x.unbind(1)
    return a * c[:1], d * e, f * g


@case(real(6, 4))
def pieces_that_overlap(x):
    a, _, c = torch.tensor_split(x, (4, 2))
    return squares(a, c)


@case(real(3, 4), real(2, 4, dtype=torch.float32), real(0))
def joins(a, b, empty):
    return squares(torch.cat([a, b]), torch.stack([a[0], b[0]], -1), torch.cat([empty, a[0]]))


@case(real(2, 3, 8))
def borders(x):
    own = [F.pad(x, (3, 2), mode=mode) for mode in ("reflect", "replicate", "circular")]
    return squares(F.pad(x, (1, 2)), F.pad(x, (-1, 2, 0, -1), value=3.0), *own)


# -- views ---------------------------------------------------------------------------------------------------


@case(real(2, 3, 4))
def other_orders(x):
    return squares(x.permute(2, 0, 1), x.transpose(-1, 0), x.movedim((0, 1), (2, 0)), x.mT, x[0].T, x[0].t())


@case(real(3, 1, 4))
def repeated_views(x):
    return squares(
        x.expand(2, 3, 5, 4), x.expand(-1, 7, -1), x.squeeze(1), x.unsqueeze(0), x.sum_to_size(1, 4)
    )


@case(real(10))
def windows(x):
    return squares(x.unfold(0, 3, 2), x.reshape(2, 5).unfold(1, 2, 1))


@case(real(2, 12, 6))
def patches(x):
    image = F.fold(x, (4, 3), (2, 2), dilation=(1, 1))
    return squares(image, F.unfold(image, (3, 2), padding=1, stride=2), F.pixel_shuffle(image, 1))


@case(real(3, 4))
def windows_onto_memory(x):
    return squares(
        x.as_strided((3, 4), (2, 1), 1),
        x.t().as_strided((2, 2), (1, 3), 1),
        (x[1:] * 2)[1].as_strided((2,), (2,)),
    )


@case(real(12))
def windows_onto_memory_that_elements_share(x):
    return squares(x[:4].expand(3, 4).as_strided((2, 3), (1, 1)))


@case(torch.randn(3, 4, dtype=torch.complex128, requires_grad=True))
def complex_numbers(x):
    pairs = torch.view_as_real(x)
    return (*squares(pairs, x.mH, torch.view_as_complex(pairs * pairs), x.real, x.imag), x.conj() * x)


@case(real(3, 4))
def arrangements(x):
    repeats = x.repeat(2, 1, 3), x.tile(2), x.repeat_interleave(2, 1), torch.kron(x, x)
    turns = x.roll((1, 2), (0, 1)), x.flip(0), torch.rot90(x), torch.block_diag(x, x[0], x[0, 0])
    return squares(*repeats, *turns, torch.diag(x[0]), torch.diag(x), torch.cartesian_prod(x[0], x[1]))


# -- order ---------------------------------------------------------------------------------------------------


@case(real(4, 6))
def elements_by_their_order(x):
    return squares(
        x.sort(1)[0],
        x.topk(2, 0)[0],
        x.median(1).values,
        x.median(),
        x.kthvalue(2, 1, True)[0],
        x.cummax(1)[0],
    )


@case(real(4, 6))
def scans(x):
    return squares(x.cumsum(1), x.cumprod(1), x.logcumsumexp(0), x.diff(dim=0))


@case(torch.tensor([[2.0, 0.0, 3.0, 0.0], [0.0, 5.0, 1.0, 2.0]], dtype=torch.float64, requires_grad=True))
def products_so_far_with_zeros(x):
    return squares(x.cumprod(1))


@case(torch.tensor([-900.0, 800.0, 801.0, -900.0], dtype=torch.float64, requires_grad=True))
def exponentials_out_of_range(x):
    return squares(x.logcumsumexp(0))


def derivatives(program: Program, args: tuple[torch.Tensor, ...]) -> list[torch.Tensor | None]:
    """Results, gradients for random cotangents, and for random cotangents of these the gradients of inputs
    and cotangents. None for what has no influence.
    """
    args = tuple(a.detach().clone().requires_grad_(a.requires_grad) for a in args)
    draw = torch.Generator().manual_seed(1)
    results = program(*args)
    given = [torch.randn(r.shape, dtype=r.dtype, generator=draw).requires_grad_() for r in results]
    inputs = [a for a in args if a.requires_grad]
    first = torch.autograd.grad(results, inputs, given, create_graph=True, allow_unused=True)
    known = [g for g in first if g is not None and g.requires_grad]
    again = [torch.randn(g.shape, dtype=g.dtype, generator=draw) for g in known]
    second = torch.autograd.grad(known, [*inputs, *given], again, allow_unused=True)
    return [*results, *first, *second]


@pytest.mark.parametrize("name", CASES)
def test_first_and_second_derivatives_of_a_program_are_eagers(name: str) -> None:
    program, args = CASES[name]
    expected, found = derivatives(program, args), derivatives(thunder.jit(program), args)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert theirs is None or ours is not None or not theirs.any()
        if ours is not None:
            torch.testing.assert_close(ours, torch.zeros_like(ours) if theirs is None else theirs)


def test_what_scatter_does_not_use_of_its_source_has_gradient_zero() -> None:
    # eager's backward refuses such a source, so it is cut for eager
    def program(x, v):
        return squares(x.scatter(1, at, v), x.scatter_add(1, at, v))

    at, args = torch.tensor([[1], [3], [0], [1]]), (real(4, 6), real(4, 3))
    expected = derivatives(lambda x, v: program(x, v[:, :1]), args)
    for ours, theirs in zip(derivatives(thunder.jit(program), args), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


# -- what the forward is, and keeps --------------------------------------------------------------------------

WHOLE = {
    "reshape": lambda x: x.reshape(12, 2),
    "view": lambda x: x.view(-1),
    "flatten": lambda x: x.flatten(1),
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(1, 2, 0),
    "expand": lambda x: x.expand(5, 2, 3, 4),
    "squeeze": lambda x: x[:1].squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "getitem": lambda x: x[..., None, 1:3],
    "getitem by tensor": lambda x: x[:, ROWS],
    "split": lambda x: x.split(2, -1),
    "chunk": lambda x: x.chunk(2, -1),
    "unbind": lambda x: x.unbind(0),
    "cat": lambda x: torch.cat((x, x), 1),
    "stack": lambda x: torch.stack((x, x), 1),
    "masked_fill": lambda x: x.masked_fill(MASK, 0.0),
    "pad": lambda x: F.pad(x, (1, 1)),
    "reflected pad": lambda x: F.pad(x, (1, 1), mode="reflect"),
    "repeat": lambda x: x.repeat(2, 1, 1),
    "roll": lambda x: x.roll(1, 0),
    "cumsum": lambda x: x.cumsum(-1),
    "tril": lambda x: x.tril(),
}

MASK = torch.tensor([True, False, True, False])

#: those whose forward or backward needs a mask or indices
KEEPING = {"masked_fill", "getitem by tensor"}


@pytest.mark.parametrize("name", WHOLE)
def test_the_forward_is_the_programs_calls(name: str) -> None:
    x = torch.randn(2, 3, 4, requires_grad=True)
    compiled = thunder.jit(WHOLE[name])
    compiled(x)
    first, last = thunder.last_traces(compiled)[0], thunder.last_traces(compiled)[-1]
    names = [
        [b.sym.name for b in t.bound_symbols if b.flat_proxy_outs and b.flat_proxy_args]
        for t in (first, last)
    ]
    assert names[0] == names[1]


@pytest.mark.parametrize("name", [name for name in WHOLE if name not in KEEPING])
def test_the_forward_keeps_no_tensor(name: str) -> None:
    x = torch.randn(2, 3, 4, requires_grad=True)
    out = thunder.jit(lambda x: WHOLE[name](x * 2))(x)
    out = out if isinstance(out, torch.Tensor) else out[0]
    assert out.grad_fn.saved_tensors == ()


def test_the_gradient_of_a_view_is_a_view() -> None:
    x = torch.randn(2, 3, 4, requires_grad=True)
    cotangent = torch.randn(4, 6)
    compiled = thunder.jit(lambda x: x.permute(2, 0, 1).reshape(4, 6).unsqueeze(0).squeeze(0))
    (g,) = torch.autograd.grad(compiled(x), x, cotangent)
    assert g.data_ptr() == cotangent.data_ptr()
