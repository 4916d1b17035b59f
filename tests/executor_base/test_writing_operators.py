"""Operators of executors that write to their arguments: `mutates=`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder import TensorProxy
from thunder.base.errors import RegistrationError, UnsupportedOperator
from thunder.extend import OperatorExecutor, Refusal

_numbers = itertools.count()


def extend(k: torch.Tensor, v: torch.Tensor, new: torch.Tensor, at: int) -> torch.Tensor:
    k[at].copy_(new)
    v[at].copy_(new * 2)
    return new.sum(-1)


def scale_(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x.mul_(factor)


def double_all(tensors: list[torch.Tensor]) -> None:
    for t in tensors:
        t.mul_(2)


def made() -> OperatorExecutor:
    ex = OperatorExecutor(f"writing_ex{next(_numbers)}")
    ex.register_operator(
        "extend",
        meta=lambda k, v, new, at: TensorProxy(like=new, shape=tuple(new.shape)[:-1]),
        fn=extend,
        mutates=("k", "v"),
        replaces=extend,
    )
    ex.register_operator("scale_", meta=lambda x, factor: x, fn=scale_, mutates="x", replaces=scale_)
    ex.register_operator(
        "double_all", meta=lambda tensors: None, fn=double_all, mutates="tensors", replaces=double_all
    )
    return ex


def between_reads(k: Any, v: Any, x: Any) -> Any:
    first = k.sum()
    one = extend(k, v, x, 0)
    second = k.sum() - v.sum()
    two = extend(k, v, x * 3, 1)
    return first, one, second, two, k * 2, v.sum(0)


def twice(k: Any, v: Any, x: Any) -> Any:
    extend(k, v, x, 0)
    extend(k, v, x, 0)
    return k


def unused(k: Any, v: Any, x: Any) -> Any:
    extend(k, v, x, 1)


def of_a_view(k: Any, v: Any, x: Any) -> Any:
    extend(k[1:], v[:-1], x, 0)
    return k, v


def of_a_temporary(k: Any, v: Any, x: Any) -> Any:
    other = k + 1
    extend(other, v, x, 0)
    return other


def returned(k: Any, v: Any, x: Any) -> Any:
    y = scale_(k, 3.0)
    y.add_(1)
    return y, k + 1, scale_(v.t(), 0.5).sum(0)


def of_a_list(k: Any, v: Any, x: Any) -> Any:
    double_all([k, v])
    return k.sum(0) + v.sum(0)


def after_a_write(k: Any, v: Any, x: Any) -> Any:
    k.add_(1)
    extend(k, v, x, 0)
    k.mul_(2)
    return k.clone()


PROGRAMS = [between_reads, twice, unused, of_a_view, of_a_temporary, returned, of_a_list, after_a_write]


@pytest.mark.parametrize("cache", ["constant values", "symbolic values"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_writes_are_eager_s_in_the_program_s_order(program: Callable[..., Any], cache: str) -> None:
    compiled = thunder.jit(program, executors=[made()], cache=cache)
    for seed in range(2):
        ours, theirs = (
            [torch.randn(n, 3, generator=torch.Generator().manual_seed(seed + n)) for n in (4, 5)]
            + [torch.full((3,), float(seed + 1))]
            for _ in range(2)
        )
        torch.testing.assert_close(compiled(*ours), program(*theirs))
        torch.testing.assert_close(ours, theirs)
    assert any(
        "functional" in row.symbol and row.claimed_by.startswith("writing_ex")
        for row in thunder.explain(compiled).rows
    )


def test_a_checker_refuses_calls() -> None:
    ex = made()
    ex.register_implementation(
        f"{ex.name}.scale_",
        ex.opmap["scale_"],
        checker=lambda x, factor: factor > 0 or Refusal("factor", "factors are positive", factor=factor),
    )
    assert torch.equal(thunder.jit(scale_, executors=[ex])(torch.ones(2), 2.0), torch.full((2,), 2.0))
    with pytest.raises(thunder.NoExecutor, match="factors are positive"):
        thunder.jit(scale_, executors=[ex])(torch.ones(2), -2.0)


def test_a_call_whose_program_would_mean_something_else_is_refused() -> None:
    ex = made()
    with pytest.raises(UnsupportedOperator, match="one of its arguments requires grad") as error:
        thunder.jit(scale_, executors=[ex])(torch.ones(2).requires_grad_(), 2.0)
    assert "Call it under torch.no_grad(), or register a functional form, without mutates=." in str(
        error.value
    )
    with pytest.raises(UnsupportedOperator, match="memory that another of its arguments may share") as error:
        thunder.jit(lambda k: extend(k, k.view(3, 3), k[0], 1), executors=[ex])(torch.ones(3, 3))
    assert "Pass a clone of the other argument." in str(error.value)


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({"mutates": "y"}, r"mutates=\('y',\), and no parameter 'y'"),
        ({"mutates": "x", "fn": None}, "has mutates=, and lacks fn="),
        ({"mutates": "x", "vjp": {"x": None}}, "has both of mutates= and vjp="),
    ],
)
def test_a_definition_that_cannot_be_is_refused(definition: dict[str, Any], message: str) -> None:
    ex = OperatorExecutor(f"writing_ex{next(_numbers)}")
    whole = {"meta": lambda x, factor: x, "fn": scale_, **definition}
    with pytest.raises(RegistrationError, match=message):
        ex.register_operator("scale_", **whole)


def test_an_implementation_of_one_that_writes_has_no_transform() -> None:
    ex = made()
    with pytest.raises(RegistrationError, match="has mutates=, and its implementation a transform"):
        ex.register_implementation(ex.opmap["scale_"], execution_transform=lambda x, factor: x)


def test_under_autocast_the_replaced_function_is_traced() -> None:
    compiled = thunder.jit(twice, executors=[made()])
    ours, theirs = (
        [torch.randn(4, 3, generator=torch.Generator().manual_seed(1)) for _ in range(2)] for _ in range(2)
    )
    x = torch.ones(3)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(*ours, x), twice(*theirs, x))
    torch.testing.assert_close(ours, theirs)
