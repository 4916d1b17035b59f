"""Functions of packages may call torch's functions with the dtypes and devices of proxies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import thunder
from comparison.inputs import leaf
from thunder import TensorProxy
from thunder.core import prims
from thunder.core.trace import from_trace, tracectx
from thunder.core.transforms import get_grad, put_grad
from thunder.extend import OperatorExecutor

#: functions of a gradient that equal it, or twice it, in eager
EXPRESSIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "to a dtype": lambda g: g.to(g.dtype),
    "to a device": lambda g: g.to(g.device),
    "to both": lambda g: g.to(g.device, g.dtype),
    "to with keywords": lambda g: g.to(dtype=g.dtype, device=g.device),
    "ones": lambda g: g * torch.ones(3, dtype=g.dtype, device=g.device),
    "ones of torch's dtype": lambda g: g * torch.ones(3, dtype=torch.float64),
    "zeros": lambda g: g + torch.zeros(3, dtype=g.dtype, device=g.device),
    "zeros in where": lambda g: torch.where(g != 0, g, torch.zeros(3, dtype=torch.float64)),
    "full": lambda g: g * torch.full(g.shape, 2.0, dtype=g.dtype, device=g.device),
    "empty_like": lambda g: torch.zeros_like(torch.empty_like(g, dtype=g.dtype)) + g,
    "zeros_like": lambda g: torch.zeros_like(g, dtype=g.dtype, device=g.device) + g,
    "arange": lambda g: g * torch.arange(3, dtype=g.dtype, device=g.device),
    "eye": lambda g: torch.eye(3, dtype=g.dtype) @ g,
    "tensor": lambda g: g * torch.tensor(2.0, dtype=g.dtype, device=g.device),
    "new_zeros": lambda g: g.new_zeros((3,), dtype=g.dtype, device=g.device) + g,
    "sum": lambda g: g + torch.sum(g, dtype=g.dtype),
    "method sum": lambda g: g + g.sum(dtype=g.dtype),
    "softmax": lambda g: torch.softmax(g, -1, dtype=g.dtype),
    "functional softmax": lambda g: torch.nn.functional.softmax(g, -1, dtype=g.dtype),
    "view": lambda g: g.view(g.dtype),
    "type": lambda g: g.type(g.dtype),
    "finfo": lambda g: g * torch.finfo(g.dtype).eps,
    "promote_types": lambda g: g.to(torch.promote_types(g.dtype, torch.float32)),
    "can_cast": lambda g: g * int(torch.can_cast(g.dtype, torch.float64)),
    "device": lambda g: g.to(torch.device(g.device)),
    "loop": lambda g: sum((g * torch.ones(3, dtype=d) for d in [g.dtype] * 2), start=g),
}


@pytest.fixture
def ex() -> OperatorExecutor:
    return OperatorExecutor("metadata_ex")


def operator(ex: OperatorExecutor, **more: Any) -> Any:
    return ex.register_operator(
        "op", **{"meta": lambda x: TensorProxy(like=x), "fn": lambda x: x * 1, "replace": True} | more
    )


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_gradient_rule_takes_metadata_of_proxies(ex: OperatorExecutor, name: str) -> None:
    op, expression = operator(ex), EXPRESSIONS[name]

    def rule(x: Any) -> Any:
        out = op(x)
        put_grad(x, expression(get_grad(out)))
        return out

    ex.register_implementation(op, grad_transform=rule)
    x, g = leaf(3), leaf(3, seed=1, grad=False)
    out = thunder.jit(lambda x: op(x), executors=[ex])(x)
    torch.testing.assert_close(torch.autograd.grad(out, x, g)[0], expression(g))


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_formula_takes_metadata_of_proxies(ex: OperatorExecutor, name: str) -> None:
    op, expression = operator(ex, vjp={"x": lambda c: EXPRESSIONS[name](c.g)}), EXPRESSIONS[name]
    x, g = leaf(3), leaf(3, seed=1, grad=False)
    out = thunder.jit(lambda x: op(x), executors=[ex])(x)
    torch.testing.assert_close(torch.autograd.grad(out, x, g)[0], expression(g))


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_execution_transform_takes_metadata_of_proxies(ex: OperatorExecutor, name: str) -> None:
    op, expression = operator(ex), EXPRESSIONS[name]
    ex.register_implementation(op, execution_transform=lambda x: expression(x))
    x = leaf(3, grad=False)
    torch.testing.assert_close(thunder.jit(lambda x: op(x), executors=[ex])(x), expression(x))


def test_a_meta_function_takes_metadata_of_proxies(ex: OperatorExecutor) -> None:
    def meta(x: Any) -> Any:
        return TensorProxy(like=x, dtype=torch.promote_types(x.dtype, torch.float64))

    op = operator(ex, meta=meta, fn=lambda x: x.double())
    out = thunder.jit(lambda x: op(x), executors=[ex])(torch.ones(3))
    torch.testing.assert_close(out, torch.ones(3).double())


def test_an_exception_of_a_rule_is_that_of_its_code(ex: OperatorExecutor) -> None:
    op = operator(ex)

    def rule(x: Any) -> Any:
        ones = torch.ones(3, dtype=x.dtype)
        raise KeyError(len(ones.shape))

    ex.register_implementation(op, grad_transform=rule)
    with pytest.raises(thunder.PluginError, match="raised KeyError: 1") as caught:
        thunder.jit(lambda x: op(x), executors=[ex])(leaf(3))
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_rule_that_runs_as_it_is_runs_once(ex: OperatorExecutor) -> None:
    op, runs = operator(ex), []

    def rule(x: Any) -> Any:
        runs.append(x.name)
        out = op(x)
        put_grad(x, get_grad(out).to(torch.float64))
        return out

    ex.register_implementation(op, grad_transform=rule)
    thunder.jit(lambda x: op(x), executors=[ex])(leaf(3))
    assert len(runs) == 1


class Halved(thunder.Transform):
    """A transform that halves the result of a program, in its dtype and on its device."""

    def transform_trace_pre_execution(self, trace: Any, **facts: Any) -> Any:
        new = from_trace(trace)
        new.bound_symbols = list(trace.bound_symbols[:-1])
        with tracectx(new):
            (out,) = trace.bound_symbols[-1].args
            half = out.new_full((), 0.5, dtype=out.dtype, device=out.device).to(out.device, out.dtype)
            also = thunder.torch.zeros(out.shape, dtype=out.dtype, device=out.device)
            prims.python_return(out.to(out.dtype) * half + also)
        return new


def test_a_transform_takes_metadata_of_proxies() -> None:
    compiled = thunder.jit(lambda x: x * 3, transforms=[Halved()])
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 1.5))
