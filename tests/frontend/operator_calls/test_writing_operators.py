"""Operators of ``torch.library`` that write to their arguments, and those whose gradient torch has."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import thunder
from comparison.derivatives import assert_as_eager
from comparison.inputs import leaf

LIBRARY = "thunder_writing"
OPS = getattr(torch.ops, LIBRARY)


@torch.library.custom_op(f"{LIBRARY}::grow", mutates_args=("x",))
def grow(x: Tensor, factor: float = 2.0) -> None:
    x.mul_(factor).add_(1)


@torch.library.custom_op(f"{LIBRARY}::fill", mutates_args=("out",))
def fill(x: Tensor, out: Tensor, *, factor: int = 1) -> Tensor:
    out.copy_(x * factor)
    return x.sum(0).clone()


@fill.register_fake
def _(x, out, *, factor=1):
    return x.new_empty(x.shape[1:])


@torch.library.custom_op(f"{LIBRARY}::add_to_all", mutates_args=("xs",))
def add_to_all(xs: list[Tensor], y: Tensor) -> None:
    for x in xs:
        x.add_(y)


_library = torch.library.Library(LIBRARY, "FRAGMENT")
_library.define("add_(Tensor(a!) self, Tensor other) -> Tensor(a!)")
_library.impl("add_", lambda self, other: self.add_(other), "CPU")
_library.define("both(Tensor x, float factor) -> (Tensor, Tensor)")
_library.impl("both", lambda x, factor: (x * factor, x.sin()), "CompositeImplicitAutograd")
_library.define("noisy(Tensor x) -> Tensor")
_library.impl("noisy", lambda x: torch.dropout(x, 0.5, True), "CompositeImplicitAutograd")


def _filled(x):
    out = torch.empty_like(x)
    total = fill(x, out, factor=3)
    return out + total


def _all(x):
    a, b = x * 1, x * 2
    add_to_all([a, b], x)
    return a * b


def _returned(x):
    y = x * 2
    z = OPS.add_(y, x)
    assert z is y
    return z + y


def _views(x):
    y = x * 2
    grow(y[0])
    OPS.grow(y.t()[1], 3.0)
    return y


WRITES = {"a result": _filled, "a list": _all, "its argument returned": _returned, "views": _views}


@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_is_eagers(name):
    assert_as_eager(WRITES[name], leaf(3, 3, grad=False), order=0)


def test_an_input_is_written_at_the_end_of_each_call():
    compiled = thunder.jit(lambda x: (grow(x), x + 1)[1])
    x, y = torch.arange(3.0), torch.arange(3.0)
    for _ in range(2):
        assert torch.equal(compiled(x), (grow(y), y + 1)[1])
        assert torch.equal(x, y)
    assert thunder.cache_misses(compiled) == 1


def test_a_written_tensor_keeps_its_history_as_in_eager():
    def program(x):
        y = x * 2
        grow(y)
        return (y * 3).sum()

    gradients = []
    for call in (program, thunder.jit(program)):
        x = leaf(3)
        call(x).backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)


@pytest.mark.parametrize(
    "program",
    [lambda y: fill(y, y), lambda y: fill(y[1:], y[:-1]), lambda y: add_to_all([y, y.t()], y[0])],
)
def test_arguments_that_share_memory_are_refused(program):
    with pytest.raises(thunder.UnsupportedOperator, match="memory that another argument may share"):
        thunder.jit(lambda x: program(x * 1))(leaf(3, 3, grad=False))


def test_results_that_would_need_a_gradient_are_refused():
    with pytest.raises(thunder.UnsupportedOperator, match="and an argument requires grad"):
        thunder.jit(_filled)(leaf(3, 3))


def test_under_autocast_it_is_refused():
    with torch.autocast("cpu"), pytest.raises(thunder.UnsupportedOperator, match="autocast is on"):
        thunder.jit(lambda x: grow(x))(leaf(3, grad=False))


def test_a_composite_has_torchs_gradient():
    assert_as_eager(lambda x: OPS.both(x, 2.0)[0] * OPS.both(x, 2.0)[1], leaf(3))


def test_a_composite_that_draws_numbers_draws_them_at_each_call():
    def program(x):
        return OPS.noisy(x) - OPS.noisy(x)

    x, results = leaf(20, grad=False), []
    for call in (program, thunder.jit(program)):
        torch.manual_seed(0)
        results.append(call(x))
    assert torch.equal(*results)
    assert results[0].any()
