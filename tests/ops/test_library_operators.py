"""Executors take operators of `torch.library` in every spelling, before a program was traced."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder import TensorProxy
from thunder.base.errors import RegistrationError
from thunder.extend import OperatorExecutor

_numbers = itertools.count()


@pytest.fixture
def definition() -> Any:
    """A new operator, which no program has called."""

    @torch.library.custom_op(f"spelled{next(_numbers)}::scaled", mutates_args=())
    def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor

    @scaled.register_fake
    def _(x: torch.Tensor, factor: float) -> torch.Tensor:
        return torch.empty_like(x)

    scaled.register_autograd(
        lambda ctx, g: (g * ctx.factor, None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
    )
    return scaled


def packet(definition: Any) -> Any:
    namespace, _, name = definition._qualname.partition("::")
    return getattr(getattr(torch.ops, namespace), name)


#: what an author, or a program, writes
SPELLINGS: dict[str, Callable[[Any], Any]] = {
    "name": lambda d: d._qualname,
    "name of the overload": lambda d: f"{d._qualname}.default",
    "path": lambda d: "torch.ops." + d._qualname.replace("::", "."),
    "packet": packet,
    "overload": lambda d: packet(d).default,
    "definition": lambda d: d,
}


def _scale(x: torch.Tensor, factor: float) -> None:
    x.mul_(factor)


CALLED = ("packet", "overload", "definition")


def claimed(compiled: Any) -> list[str]:
    return [row.symbol for row in thunder.explain(compiled).rows if row.claimed_by.startswith("spelling_ex")]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_implementation_is_registered_by_any_spelling(definition: Any, spelling: str) -> None:
    executor = OperatorExecutor(f"spelling_ex{next(_numbers)}")
    seen = []

    def kernel(x: torch.Tensor, factor: float) -> torch.Tensor:
        seen.append(factor)
        return x * factor

    symbol = executor.register_operator("scaled", meta=lambda x, factor: TensorProxy(like=x), fn=kernel)
    executor.register_implementation(SPELLINGS[spelling](definition), symbol)
    x = torch.randn(3)
    for number, called in enumerate(CALLED):
        fn = SPELLINGS[called](definition)
        compiled = thunder.jit(lambda x, fn=fn: fn(x, 2.0), executors=[executor])
        torch.testing.assert_close(compiled(x), x * 2)
        assert len(claimed(compiled)) == 1, called
        assert len(seen) == number + 1, called


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_operator_replaces_all_spellings_by_one(definition: Any, spelling: str) -> None:
    executor = OperatorExecutor(f"spelling_ex{next(_numbers)}")
    executor.register_operator(
        "scaled",
        meta=lambda x, factor: TensorProxy(like=x),
        fn=lambda x, factor: x * factor,
        replaces=SPELLINGS[spelling](definition),
        vjp={"x": lambda c: c.g * c.factor, "factor": None},
    )
    x = torch.randn(3, requires_grad=True)
    for called in CALLED:
        fn = SPELLINGS[called](definition)
        compiled = thunder.jit(lambda x, fn=fn: fn(x, 2.0), executors=[executor])
        (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
        torch.testing.assert_close(gradient, torch.full((3,), 2.0))
        assert claimed(compiled) == [f"{executor.name}.scaled"], called


def test_an_operator_of_several_overloads_is_implemented_one_by_one() -> None:
    library = torch.library.Library(f"spelled{next(_numbers)}", "DEF")
    library.define("two(Tensor x) -> Tensor")
    library.define("two.scaled(Tensor x, float factor) -> Tensor")
    executor = OperatorExecutor(f"spelling_ex{next(_numbers)}")
    symbol = executor.register_operator("two", meta=lambda x: TensorProxy(like=x), fn=lambda x: x)
    with pytest.raises(RegistrationError, match="has 2 overloads") as error:
        executor.register_implementation(f"{library.ns}::two", symbol)
    assert "Register an implementation of each." in str(error.value)
    executor.register_implementation(f"{library.ns}::two.default", symbol)


def test_an_operator_that_writes_is_replaced_and_not_implemented() -> None:
    name = f"spelled{next(_numbers)}::scale_"

    @torch.library.custom_op(name, mutates_args=("x",))
    def scale_(x: torch.Tensor, factor: float) -> None:
        x.mul_(factor)

    executor = OperatorExecutor(f"spelling_ex{next(_numbers)}")
    symbol = executor.register_operator(
        "scale_",
        meta=lambda x, factor: None,
        fn=_scale,
        mutates="x",
        replaces=name,
    )
    with pytest.raises(RegistrationError, match="writes to its arguments") as error:
        executor.register_implementation(scale_, symbol)
    assert "replaces=it, mutates=" in str(error.value)

    def program(x: torch.Tensor) -> torch.Tensor:
        before = x.sum()
        scale_(x, 3.0)
        return before + x.sum()

    x, y = torch.ones(2), torch.ones(2)
    compiled = thunder.jit(program, executors=[executor])
    assert compiled(x) == program(y)
    assert torch.equal(x, y)
    assert claimed(compiled) == [f"{executor.name}.scale__functional"]


def test_a_name_that_is_none_is_refused() -> None:
    executor = OperatorExecutor(f"spelling_ex{next(_numbers)}")
    with pytest.raises(RegistrationError, match="replaces='nobodys::operator' is the name of no function"):
        executor.register_operator("o", meta=lambda x: x, replaces="nobodys::operator")
    with pytest.raises(RegistrationError, match=r"nobodys::operator"):
        executor.register_implementation("nobodys::operator", execution_transform=lambda x: x)
