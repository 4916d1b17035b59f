"""Evaluation of a region by torch, and the strides that a compiler of regions expects."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import thunder
from thunder.base.errors import TraceError
from thunder.extend import ExpectedStrides, OperatorExecutor, Region, evaluate_region, partition
from thunder.ir.proxies import TensorProxy
from thunder.ir.trace import TraceCtx


def traced(program: Callable[..., Any], *args: Any) -> TraceCtx:
    return thunder.trace()(program, *args)


def region_of(trace: TraceCtx, ids: Collection[str]) -> Region:
    (region,) = partition(trace, lambda bsym: bsym.sym.id in ids)
    return region


def test_a_region_computes_what_its_calls_compute() -> None:
    def program(x: Any, y: Any) -> Any:
        values, indices = thunder.torch.max(thunder.torch.add(x, y, alpha=2), dim=-1)
        return values, thunder.torch.to(indices, torch.float32)

    x, y = torch.randn(3, 4), torch.randn(4)
    trace = traced(program, x, y)
    calls = {bsym.sym.id for bsym in trace.bound_symbols}
    region = region_of(trace, calls - {"prims.python_return"})
    values, indices = evaluate_region(region, (x, y))
    expected = (x + 2 * y).max(dim=-1)
    assert torch.equal(values, expected.values)
    assert torch.equal(indices, expected.indices.float())


def test_no_gradient_is_recorded() -> None:
    x = torch.ones(2, requires_grad=True)
    region = region_of(traced(lambda x: thunder.torch.sin(x), x), {"torch.sin"})
    (result,) = evaluate_region(region, (x,))
    assert not result.requires_grad


def test_a_call_without_a_function_of_torch_is_an_error() -> None:
    ex = OperatorExecutor("evaluation_test")
    symbol = ex.register_operator("opaque", meta=lambda x: TensorProxy(like=x))
    trace = traced(lambda x: symbol(x), torch.ones(2))
    with pytest.raises(TraceError, match="no function that computes evaluation_test"):
        evaluate_region(region_of(trace, {symbol.id}), (torch.ones(2),))


def test_dtypes_are_those_of_the_trace_where_those_of_fake_tensors_differ() -> None:
    def program(x: Any, w: Any) -> Any:
        return thunder.torch.native_layer_norm(x, (3,), w, w, 1e-5)

    x, w = torch.arange(6.0).reshape(2, 3).half(), torch.ones(3)
    region = region_of(traced(program, x, w), {"ltorch.native_layer_norm"})
    expected = torch.native_layer_norm(x, (3,), w, w, 1e-5)
    with FakeTensorMode() as mode:
        results = evaluate_region(region, (mode.from_tensor(x), mode.from_tensor(w)))
    assert [r.dtype for r in results] == [e.dtype for e in expected]
    assert torch.equal(evaluate_region(region, (x, w))[1], expected[1])


def test_strides_are_derived_from_those_of_the_inputs() -> None:
    compiled = thunder.jit(lambda x: torch.exp(x).t() @ x)
    x = torch.randn(3, 4).t()
    compiled(x)
    trace = thunder.last_traces(compiled)[0]
    strides = ExpectedStrides(trace)
    of = {
        bsym.sym.name: strides.of(bsym.output)
        for bsym in trace.bound_symbols
        if bsym.sym.name != "python_return"
    }
    assert of == {
        "exp": torch.exp(x).stride(),
        "t": torch.exp(x).t().stride(),
        "matmul": (torch.exp(x).t() @ x).stride(),
    }


def test_results_of_a_package_are_taken_to_be_contiguous() -> None:
    """Its kernel may read data, and does not run before the program does."""
    ex = OperatorExecutor("strides_test")

    def kernel(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy())

    symbol = ex.register_operator("kernel", meta=lambda x: TensorProxy(like=x), fn=kernel)
    trace = traced(lambda x: thunder.torch.t(symbol(x)), torch.ones(3, 2))
    strides = ExpectedStrides(trace)
    results = [b.output for b in trace.bound_symbols if isinstance(b.output, TensorProxy)]
    assert [strides.of(p) for p in results] == [(2, 1), (1, 2)]


def test_strides_that_the_device_decides_are_those_of_its_kernels() -> None:
    def program(x: Any, w: Any) -> Any:
        return torch.exp(torch.nn.functional.conv2d(x, w))

    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    w = torch.randn(4, 3, 1, 1)
    expected = torch.nn.functional.conv2d(x, w).exp().stride()
    assert probable_strides(program, x, w) == expected


@pytest.mark.parametrize(
    "program",
    [
        lambda x, y: torch.add(torch.t(x), y),
        lambda x, y: torch.exp(torch.t(x).to(torch.float64)),
        lambda x, y: torch.softmax(torch.matmul(torch.t(x), x), -1),
        lambda x, y: torch.reshape(torch.t(x), (2, 6)),
        lambda x, y: torch.logical_or(torch.t(x), y),
    ],
    ids=["add", "cast", "product", "reshape", "kernel"],
)
def test_probable_strides_are_those_of_eager(program: Callable[..., Any]) -> None:
    """Most come from torch's device `meta`, which takes no time."""
    x, y = torch.randn(3, 4), torch.randn(4, 3)
    assert probable_strides(program, x, y) == program(x, y).stride()


def test_probable_strides_of_common_programs_need_no_fake_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thunder.ops.layouts.FakeTensorMode", lambda: pytest.fail("it is slow"))

    def program(x: Any, y: Any) -> Any:
        return torch.exp(torch.t(torch.softmax(torch.matmul(x, y), -1)))

    assert probable_strides(program, torch.randn(3, 4), torch.randn(4, 5)) == (1, 5)


def probable_strides(program: Callable[..., Any], *args: torch.Tensor) -> tuple[int, ...]:
    """Return the strides that the result of a program is expected to have."""
    compiled = thunder.jit(program, executors=[])
    compiled(*args)
    trace = thunder.last_traces(compiled)[0]
    return ExpectedStrides(trace).of(trace.bound_symbols[-1].flat_proxy_args[0])
