"""What becomes of a fault of a plugin in a compile: its stage, `can_fuse`, an endless checker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder import TensorProxy
from thunder.base.errors import PluginError, PluginTraceError
from thunder.core.trace import TraceCtx, from_trace, tracectx
from thunder.extend import FusionExecutor, OperatorExecutor
from thunder.ops import prims
from thunder.plugins import get_manager, hookimpl


class Stage:
    """A plugin with one stage."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run

    @hookimpl
    def thunder_pipeline(self, pipeline: Any) -> None:
        pipeline.add("acme.stage", self.run, before="claim")


def compiled_with(run: Callable[..., Any], program: Callable[..., Any], *args: Any) -> Any:
    with get_manager().temporary(Stage(run), name="acme"), torch.no_grad():
        return thunder.jit(program)(*args)


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_the_trace_of_another_compile_is_an_error_of_the_stage() -> None:
    kept: list[TraceCtx] = []

    def first_alone(trace: TraceCtx, context: Any) -> TraceCtx:
        kept.append(trace)
        return kept[0]

    compiled_with(first_alone, double, torch.ones(3))
    with pytest.raises(PluginTraceError) as error:
        compiled_with(first_alone, lambda x, y: x * y, torch.ones(2), torch.ones(2))
    text = str(error.value)
    assert text.startswith("the stage 'acme.stage' returned a trace with other inputs than the trace it was")
    assert "from:  module plugins.test_faults_in_compiles" in text
    assert "given:  x: cpu f32[2], y: cpu f32[2]" in text.replace('"', "")
    assert "no trace of another compile" in text
    with pytest.raises(PluginTraceError, match="returned a trace with other inputs"):
        compiled_with(first_alone, double, torch.ones(4))  # of another size


def test_another_result_is_an_error_of_the_stage() -> None:
    def wider(trace: TraceCtx, context: Any) -> TraceCtx:
        new = from_trace(trace)
        with tracectx(new):
            new.bound_symbols = list(trace.bound_symbols[:-1])
            prims.python_return(prims.convert_element_type(trace.output, thunder.float64))
        return new

    with pytest.raises(PluginTraceError, match="returned a trace with other results"):
        compiled_with(wider, double, torch.ones(3))


def test_other_statements_are_a_stage_s_right() -> None:
    def tripled(trace: TraceCtx, context: Any) -> TraceCtx:
        new = from_trace(trace)
        with tracectx(new):
            new.bound_symbols = list(trace.bound_symbols[:-1])
            prims.python_return(prims.mul(trace.output, 3.0))
        return new

    assert torch.equal(compiled_with(tripled, double, torch.ones(3)), torch.full((3,), 6.0))


def test_a_stage_that_raises_stops_the_compile_and_names_the_plugin() -> None:
    """A program without the stage would compute something else: it is not left out."""

    def broken(trace: TraceCtx, context: Any) -> TraceCtx:
        raise ZeroDivisionError("nothing is left")

    with pytest.raises(PluginError, match=r"the stage 'acme\.stage' raised ZeroDivisionError") as error:
        compiled_with(broken, double, torch.ones(3))
    assert r"thunder.plugins.disabled(...) leaves a plugin out." in str(error.value)


def test_can_fuse_that_raises_stops_the_compile_and_names_the_executor() -> None:
    class Broken(FusionExecutor):
        def can_fuse(self, bsym: Any) -> bool:
            raise KeyError("table")

    executor = Broken("broken_fuser")
    executor.register_supported("torch.mul")
    with pytest.raises(PluginError, match=r"Broken\.can_fuse of executor 'broken_fuser' raised KeyError"):
        thunder.jit(double, executors=[executor])(torch.ones(3))


def test_a_checker_that_does_not_end_is_named_when_it_is_interrupted() -> None:
    executor = OperatorExecutor("endless")
    symbol = executor.register_operator("sine", like=thunder.torch.sin, fn=torch.sin)

    def endless(a: TensorProxy) -> bool:
        raise KeyboardInterrupt  # what Ctrl-C raises in a loop

    executor.register_implementation("torch.sin", symbol, checker=endless)
    with pytest.raises(KeyboardInterrupt) as interrupted:
        thunder.jit(torch.sin, executors=[executor])(torch.ones(2))
    (note,) = interrupted.value.__notes__
    assert "endless of executor 'endless' for torch.sin, from module" in note
    assert note.endswith("was running")
