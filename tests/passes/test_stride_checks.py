"""Kernels whose results have other strides than eager's are found under `check_traces`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder.extend import FusionExecutor, OperatorExecutor, evaluate_region

CHECKED = thunder.DebugOptions(check_traces=True)


def gate(x: Any, w: Any) -> Any:
    return x * torch.sigmoid(w)


def run(function: Callable[..., Any], kernel: Callable[..., Any], *args: Any) -> Any:
    """The result of a program in which a kernel runs a function, with checks."""
    executor = OperatorExecutor("strided")
    if function is gate:
        executor.register_operator("gate", like=gate, fn=kernel, replaces=gate, replace=True)
    else:
        mine = executor.register_operator("mine", like=function, fn=kernel, replace=True)
        executor.register_implementation(function, mine)
    return thunder.jit(lambda *args: function(*args), executors=[executor], debug_options=CHECKED)(*args)


def transposed(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **more: function(*args, **more).mT.contiguous().mT


X, W = torch.randn(3, 4), torch.randn(3, 4)
CALLS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (torch.exp, (X,)),
    (torch.matmul, (X, W.t())),
    (F.gelu, (X,)),
    (gate, (X, W)),
]


@pytest.mark.parametrize(("function", "args"), CALLS)
def test_a_kernel_that_returns_other_strides_than_eager_is_found(
    function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    with pytest.raises(thunder.PluginError, match="returns other strides than eager") as error:
        run(function, transposed(function), *args)
    assert "kernel:  (1, 3)" in str(error.value)


@pytest.mark.parametrize(("function", "args"), CALLS)
def test_a_kernel_that_returns_eagers_strides_passes(
    function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    for layout in (lambda x: x, lambda x: x.t().contiguous().t()):
        inputs = [layout(x) for x in args]
        assert run(function, function, *inputs).stride() == function(*inputs).stride()


# -- execution transforms, fusions, operators that torch does not have


def through_transform(function: Callable[..., Any], transform: Callable[..., Any], *args: Any) -> Any:
    executor = OperatorExecutor("transforming")
    executor.register_implementation(function, execution_transform=transform)

    def program(*args: Any) -> Any:
        return function(*args) + 1, function(args[0] * 2, *args[1:])

    return thunder.jit(program, executors=[executor], debug_options=CHECKED)(*args)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_transform_that_computes_other_strides_than_eager_is_found(requires_grad: bool) -> None:
    x = X.clone().requires_grad_(requires_grad)
    with pytest.raises(thunder.PluginError, match="returns other strides than eager") as error:
        through_transform(torch.exp, lambda x: torch.exp(x).mT.contiguous().mT, x)
    assert "transform:  (1, 3)" in str(error.value)
    assert "torch.exp" in str(error.value)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_transform_that_computes_eagers_strides_passes(requires_grad: bool) -> None:
    for x in (X.clone(), X.t().contiguous().t()):
        x.requires_grad_(requires_grad)
        for result in through_transform(torch.tanh, lambda x: 2 * torch.sigmoid(2 * x) - 1, x):
            assert result.stride() == x.stride()


class Region(FusionExecutor):
    """A fusion executor whose regions return results in a given layout."""

    layout: Callable[[torch.Tensor], torch.Tensor] = staticmethod(lambda t: t)

    def fuse(self, region: Any, fusion_counter: int) -> Any:
        def run(*inputs: Any) -> list[Any]:
            return [self.layout(t) for t in evaluate_region(region, inputs)]

        return self.register_temporary_operation(
            f"region{fusion_counter}", run, inputs=region.inputs, outputs=region.outputs, bsyms=region.bsyms
        )


def through_region(layout: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    executor = Region("region")
    for name in ("torch.sin", "torch.mul", "torch.add"):
        executor.register_supported(name)
    executor.layout = layout  # type: ignore[method-assign]
    program = thunder.jit(
        lambda x: torch.sin(x * 2) + 1, executors=[executor], debug_options=CHECKED, cache="no caching"
    )
    return [program(x).stride() for x in (X, X.t())]


def test_a_fusion_that_returns_other_strides_than_eager_is_found() -> None:
    with pytest.raises(thunder.PluginError, match="returns other strides than eager"):
        through_region(lambda t: t.mT.contiguous().mT)
    with pytest.raises(thunder.PluginError, match="returns other strides than eager"):
        through_region(torch.Tensor.contiguous)
    assert through_region(lambda t: t) == [X.stride(), X.t().stride()]


def test_declared_strides_of_an_operator_are_compared() -> None:
    executor = OperatorExecutor("declaring")

    def declared(x: Any) -> Any:
        return thunder.TensorProxy(like=x, strides=(1, 3))

    for number, kernel in enumerate((torch.sin, transposed(torch.sin))):
        operator = executor.register_operator(f"sine{number}", meta=declared, fn=kernel, replace=True)
        program = thunder.jit(lambda x, f=operator: f(x), executors=[executor], debug_options=CHECKED)
        if kernel is torch.sin:
            with pytest.raises(thunder.PluginError, match="returns other strides than"):
                program(X)
        else:
            assert program(X).stride() == (1, 3)
