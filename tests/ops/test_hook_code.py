"""Torch's functions take the dtypes and devices of proxies in hooks of transforms and in stages."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from thunder.core.interpreter import make_opaque
from thunder.core.trace import TraceCtx, from_trace, tracectx
from thunder.core.transform import Transform
from thunder.plugins import get_manager, hookimpl


def shifted(trace: TraceCtx) -> TraceCtx:
    """Add 1 to the first result, by a tensor like it."""
    *body, end = trace.bound_symbols
    new = from_trace(trace)
    with tracectx(new):
        new.push_scope(scope := [])
        (y,) = [p for p in end.flat_proxy_args if p.name not in {a.name for a in trace.args}][:1]
        one = torch.ones(tuple(y.shape), dtype=y.dtype, device=y.device)
        z = y.to(one.dtype) + one
        new.pop_scope()
    new.bound_symbols = [*body, *scope, end.from_bsym_swap_proxies({thunder.core.proxies.Variable(y): z})]
    return new


class Shift(Transform):
    def __init__(self) -> None:
        self.calls = 0

    def transform_traces_pre_prologue(
        self, prologue: Any, computation: Any, epilogue: Any, **facts: Any
    ) -> Any:
        self.calls += 1
        return prologue, shifted(computation), epilogue


class ByMethod(Shift):
    def transform_traces_pre_prologue(
        self, prologue: Any, computation: Any, epilogue: Any, **facts: Any
    ) -> Any:
        self.calls += 1
        return prologue, self.changed(computation), epilogue

    def changed(self, trace: TraceCtx) -> TraceCtx:
        return shifted(trace)


@pytest.mark.parametrize("transform", [Shift, ByMethod])
def test_a_hook_of_a_transform_creates_tensors_with_the_dtype_of_a_proxy(transform: type[Shift]) -> None:
    mine = transform()
    compiled = thunder.jit(lambda x: x * 2, transforms=[mine])
    assert torch.equal(
        compiled(torch.ones(3, dtype=torch.float64)), torch.full((3,), 3.0, dtype=torch.float64)
    )
    assert mine.calls == 1, "a hook may change state"


def test_a_stage_creates_tensors_with_the_dtype_of_a_proxy() -> None:
    def shift(trace: TraceCtx, context: Any) -> TraceCtx:
        return shifted(trace)

    class Shifting:
        @hookimpl
        def thunder_pipeline(self, pipeline: Any) -> None:
            pipeline.add("shift", shift, after="cse")

    with get_manager().temporary(Shifting(), name="shifting"), torch.no_grad():
        assert torch.equal(thunder.jit(lambda x: x * 2)(torch.ones(3)), torch.full((3,), 3.0))


def test_a_stage_that_is_marked_opaque_runs_as_it_is() -> None:
    @make_opaque
    def shift(trace: TraceCtx, context: Any) -> TraceCtx:
        return shifted(trace)

    class Shifting(Transform):
        def configure_pipeline(self, pipeline: Any, options: Any) -> None:
            pipeline.add("shift", shift, after="cse")

    with (
        pytest.raises(thunder.PluginError, match="the stage 'shift' raised TypeError: ones"),
        torch.no_grad(),
    ):
        thunder.jit(lambda x: x * 2, transforms=[Shifting()])(torch.ones(3))


def test_a_hook_without_a_trace_creates_a_tensor() -> None:
    class Reads(Transform):
        def transform_trace_pre_execution(self, trace: TraceCtx, **facts: Any) -> TraceCtx:
            x = trace.args[0]
            self.tensor = torch.zeros(2, dtype=x.dtype, device=x.device)
            self.other = torch.ones(2)
            return trace

    reads = Reads()
    with torch.no_grad():
        thunder.jit(lambda x: x * 2, transforms=[reads])(torch.ones(3, dtype=torch.bfloat16))
    assert reads.tensor.dtype is torch.bfloat16
    assert type(reads.other) is torch.Tensor
