"""Kernels whose results have other strides than eager's are found under `check_traces`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder.extend import OperatorExecutor

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
