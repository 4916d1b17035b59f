"""Calls raise where eager raises: refused, without a kernel for a dtype, without a derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import thunder
from comparison.errors import is_a
from comparison.inputs import leaf
from sweeping import one_in
from torch_language.errors_as_eager import cases, entries, seed_outside, unexpected

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about deprecated functions

Program = Callable[[torch.Tensor], torch.Tensor]

ENTRIES = entries()


@pytest.fixture(autouse=True)
def _seeds() -> None:
    seed_outside()


@pytest.mark.parametrize("name", one_in(80, ENTRIES, start=7))
def test_a_call_raises_where_eager_raises(name: str) -> None:
    assert not list(unexpected(name, cases(ENTRIES[name]), executors=["torch"]))


#: programs of which eager has no derivative, with parts that have one
UNDERIVED: dict[str, Program] = {
    "floor_divide": lambda x: x + x // 2,
    "reflected floor_divide": lambda x: x + 2 // x,
    "floor_divide in place": lambda x: x.clone().floor_divide_(2) * x,
    "reflected remainder": lambda x: x * (5 % x),
    "heaviside": lambda x: x + torch.heaviside(x, x),
    "zeta by its first argument": lambda x: torch.special.zeta(x + 1, x),
    "igamma by its first argument": lambda x: torch.igamma(x, x) * 2,
    "i1 in half precision": lambda x: x + torch.special.i1(x.bfloat16()),
    "norm of complex numbers in half precision": lambda x: x + torch.norm(torch.complex(x.half(), x.half())),
}

#: programs with a call that eager refuses
REFUSED: dict[str, Program] = {
    "ceil of truth values": lambda x: torch.ceil(x > 0) + x,
    "xlogy of complex numbers": lambda x: torch.xlogy(x + 0j, x).real,
    "a target that requires grad": lambda x: F.soft_margin_loss(x, x),
    "a group of one value": lambda x: F.group_norm(x.reshape(1, -1), x.numel()),
    "round of integers to 0 places": lambda x: torch.round(x.long(), decimals=0) + x,
    "nuclear norm of three dimensions": lambda x: torch.norm(x.reshape(1, 1, -1), "nuc"),
    "cuts of another dtype": lambda x: torch.tensor_split(x, torch.tensor([1], dtype=torch.int32))[0],
    "a slice of no dimension": lambda x: torch.ops.aten.slice.Tensor(x, 1, 0, 1),
    "no groups": lambda x: F.group_norm(x.reshape(1, -1), 0),
    "no examples, with a weight": lambda x: F.instance_norm(x.reshape(1, 1, -1)[:0], weight=x[:1]),
    "a range to a complex number": lambda x: torch.arange(3 + 2j) * x[0],
    "unsigned numbers selected by a mask": lambda x: x.to(torch.uint16).masked_select(x > 0) + x,
    "no neighbours": lambda x: F.local_response_norm(x.reshape(1, -1, 1), 0),
}

#: programs that have a part without a derivative and need none of it
DERIVED: dict[str, Program] = {
    "zeta by its second argument": lambda x: torch.special.zeta(2.0, x + 1),
    "igamma by its second argument": lambda x: torch.igamma(x.detach(), x),
    "a detached quotient": lambda x: x + (x // 2).detach(),
    "a quotient as an index": lambda x: x[(x // 2).long().clamp(0, 1)],
    "remainder of a number": lambda x: x % 5,
    "attention without a finite score": lambda x: F.scaled_dot_product_attention(
        *[x.reshape(1, -1, 1)] * 3, scale=float("-inf")
    ),
    "cosines with integers": lambda x: F.cosine_similarity(x, torch.arange(x.numel()), 0),
    "diff of no order": lambda x: torch.diff(x, 0, 7) * x,
    "the determinant of nothing in half precision": lambda x: (
        x * torch.linalg.det(x.half()[:0].reshape(0, 0))
    ),
    "powers of 8-bit floats": lambda x: x * torch.float_power(x.to(torch.float8_e4m3fn), 2),
    "a tensor that is filled": lambda x: torch.fill(x, True) + torch.fill(x.clone(), 2.0),
    "a range to a complex number that is real": lambda x: torch.arange(np.complex128(x.numel())) * x,
    "round to 0 places": lambda x: torch.round(x, decimals=0) * x,
}


def backward(run: Program, x: torch.Tensor) -> Any:
    """Compute the gradient of a program's result by `backward`."""
    run(x).sum().backward()
    return x.grad


def result(run: Program, x: torch.Tensor) -> Any:
    """Run a program without gradients."""
    with torch.no_grad():
        return run(x)


def under_autocast(run: Program, x: torch.Tensor) -> Any:
    """As `backward`, with the forward under autocast."""
    with torch.autocast("cpu", torch.bfloat16):
        out = run(x)
    out.sum().backward()
    return x.grad


def of_func(run: Program, x: torch.Tensor) -> Any:
    """Compute the gradient by `torch.func.grad`."""
    return torch.func.grad(lambda x: run(x).sum())(x.detach())


def of_a_batch(run: Program, x: torch.Tensor) -> Any:
    """Map a program over a batch of two, and compute the gradient."""
    batch = torch.stack([x, x + 1]).detach().requires_grad_()
    torch.vmap(run)(batch).sum().backward()
    return batch.grad


WAYS = (backward, result, under_autocast, of_func, of_a_batch)


def outcome(way: Callable[..., Any], run: Program, size: int) -> Any:
    """Return what a way of running a program gives, or the error that it raises."""
    try:
        return way(run, leaf(size))
    except Exception as error:
        return error


def assert_raises_as_eager(way: Callable[..., Any], program: Program, **options: Any) -> None:
    """Assert that a compiled program raises what eager raises, with two sizes, or gives the same."""
    compiled = thunder.jit(program, **options)
    for size in (3, 5):
        expected, found = outcome(way, program, size), outcome(way, compiled, size)
        if isinstance(expected, Exception):
            assert is_a(found, type(expected).__name__), f"{found!r}, eager raises {expected!r}"
            assert str(found).startswith(str(expected)[:20])
        else:
            assert not isinstance(found, Exception), f"{found!r}, eager raises nothing"
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6, equal_nan=True)


PROGRAMS = UNDERIVED | REFUSED | DERIVED


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_raises_where_eager_raises(name: str, way: Callable[..., Any]) -> None:
    assert_raises_as_eager(way, PROGRAMS[name], executors=["torch"])


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_raises_with_symbolic_sizes(name: str) -> None:
    assert_raises_as_eager(backward, PROGRAMS[name], executors=["torch"], cache="symbolic values")


@pytest.mark.parametrize("name", one_in(6, PROGRAMS))
def test_it_raises_beside_fusion_regions(name: str) -> None:
    assert_raises_as_eager(backward, lambda x: PROGRAMS[name](x * 2) * torch.exp(x))


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_raises_in_a_gradient_within_the_program(name: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        (gradient,) = torch.autograd.grad(PROGRAMS[name](x).sum(), x)
        return gradient

    def run(run: Program, x: torch.Tensor) -> Any:
        return run(x)

    assert_raises_as_eager(run, program, executors=["torch"])


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_whose_result_is_not_read_raises(name: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        REFUSED[name](x)
        return x * 2

    assert_raises_as_eager(backward, program, executors=["torch"])


@pytest.mark.parametrize("name", REFUSED)
def test_a_program_handles_the_error(name: str) -> None:
    def program(x: torch.Tensor) -> Any:
        try:
            return REFUSED[name](x)
        except (RuntimeError, ValueError, IndexError) as error:
            return x * len(type(error).__name__)

    assert_raises_as_eager(backward, program, executors=["torch"])


@pytest.mark.parametrize("elements", [8, 1 << 17])
def test_whether_there_is_a_kernel_does_not_depend_on_the_size(elements: int) -> None:
    x = torch.zeros(elements, dtype=torch.bool)
    with pytest.raises(NotImplementedError, match="ceil"):
        thunder.jit(lambda x: torch.ceil(x), executors=["torch"])(x)


@pytest.mark.parametrize("cache", ["constant values", "symbolic values"])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.complex32])
def test_a_selection_has_no_gradient_where_eager_lacks_a_kernel(dtype: torch.dtype, cache: str) -> None:
    x, mask = torch.ones(2, 3).to(dtype).requires_grad_(), torch.tensor([True, False, True])
    for fn in (torch.masked_select, thunder.jit(torch.masked_select, executors=["torch"], cache=cache)):
        result = fn(x, mask)
        with pytest.raises(NotImplementedError, match="masked_scatter"):
            result.backward(torch.ones_like(result))


Y = torch.linspace(0.5, 2.0, 3, dtype=torch.float64)

#: programs whose backward has a fault in eager, and the same function without what leads to it
FAULTS: dict[str, tuple[Program, Program]] = {
    "two dtypes": (lambda x: F.huber_loss(x.float(), Y), lambda x: F.huber_loss(x, Y)),
    "real and complex": (
        lambda x: torch.logaddexp(x, Y + 0.5j).real,
        lambda x: torch.log(torch.exp(x + 0j) + torch.exp(Y + 0.5j)).real,
    ),
    "a source that is larger than the index": (
        lambda x: torch.zeros(3, dtype=x.dtype).scatter_add(0, torch.tensor([0, 2]), x),
        lambda x: torch.zeros(3, dtype=x.dtype).scatter_add(0, torch.tensor([0, 2]), x[:2]),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_gradient_exists_where_eagers_backward_has_a_fault(name: str) -> None:
    program, equal = FAULTS[name]
    with pytest.raises(RuntimeError, match=r"dtype|to be true|gradient"):
        backward(program, leaf(3))
    found = backward(thunder.jit(program, executors=["torch"]), leaf(3))
    torch.testing.assert_close(found, backward(equal, leaf(3)), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("default")
def test_a_warning_of_an_operator_is_seen_once() -> None:
    program = thunder.jit(lambda x: F.mse_loss(x, x[:1]), executors=["torch"])
    with pytest.warns(UserWarning, match="Using a target size") as seen:
        program(leaf(3))
    assert len(seen) == 1
