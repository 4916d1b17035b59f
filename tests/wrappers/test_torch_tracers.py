"""Compiled modules under tracers of torch, which trace the program as it was written."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import prepare_fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import thunder
from soundness.harness import ramp
from thunder.base.errors import ThunderWarning, UnsupportedProgram
from thunder.wrappers.traced_source import warn_of_source


class Model(nn.Module):
    """A module whose result has a size that is read from its argument."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu().view(x.shape[0], 2, 2)


TRACERS = {
    "torch.jit.trace": lambda compiled: torch.jit.trace(compiled, (ramp(3, 4),), check_trace=False),
    "torch.jit.script": torch.jit.script,
    "torch.fx.symbolic_trace": torch.fx.symbolic_trace,
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("called", [False, True], ids=["new", "called before"])
@pytest.mark.parametrize("tracer", TRACERS)
def test_what_a_tracer_makes_of_a_compiled_module_is_what_it_makes_of_the_module(
    tracer: str, called: bool
) -> None:
    model = Model()
    compiled = thunder.jit(model)
    if called:
        compiled(ramp(3, 4))
    traced = TRACERS[tracer](compiled)
    assert torch.equal(traced(ramp(5, 4)), model(ramp(5, 4)))
    misses = thunder.cache_misses(compiled)
    compiled(ramp(3, 4))
    assert (misses, thunder.cache_misses(compiled)) == (int(called), 1)


class Holder(nn.Module):
    """A module with another one in it."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x) + 1


def plus_one(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) + 1


def prepared(module: nn.Module) -> nn.Module:
    return prepare_fx(module.eval(), get_default_qconfig_mapping("x86"), (ramp(3, 4),))


# the tool that a warning names, a use of it, and what it is used on
KEEPING = {
    "torch.jit.trace": ("torch.jit.trace", TRACERS["torch.jit.trace"], Model),
    "torch.jit.script": ("torch.jit.script", torch.jit.script, Model),
    "torch.export": ("torch.export", lambda compiled: torch.export.export(compiled, (ramp(3, 4),)), Model),
    "make_fx": ("make_fx", lambda compiled: make_fx(compiled)(ramp(3, 4)), Model),
    "make_fx of a function": ("make_fx", lambda compiled: make_fx(compiled)(ramp(3, 4)), lambda: plus_one),
    "symbolic_trace": ("torch.fx", torch.fx.symbolic_trace, Model),
    "a tracer": ("torch.fx", lambda compiled: torch.fx.Tracer().trace(compiled), Model),
    "quantisation": ("torch.fx", prepared, Model),
    "a function": ("torch.fx", torch.fx.symbolic_trace, lambda: plus_one),
    "in a function": ("torch.fx", lambda fn: torch.fx.symbolic_trace(lambda x: fn(x) * 2), lambda: plus_one),
    "in a module": ("torch.fx", lambda part: torch.fx.symbolic_trace(Holder(part)), Model),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", KEEPING)
def test_a_tool_that_keeps_the_program_as_it_was_written_says_so_once(name: str) -> None:
    tool, use, make = KEEPING[name]
    warn_of_source.cache_clear()
    with pytest.warns(ThunderWarning, match=f"{tool} keeps the program as it was written: nothing"):
        use(thunder.jit(make()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ThunderWarning)
        use(thunder.jit(make()))


@pytest.mark.parametrize("name", ["a function", "in a function", "in a module", "symbolic_trace"])
def test_a_symbolic_trace_computes_what_that_of_the_program_computes(name: str) -> None:
    _, use, make = KEEPING[name]
    program = make()
    traced, expected = use(thunder.jit(program)), use(program)
    assert [str(n) for n in traced.graph.nodes] == [str(n) for n in expected.graph.nodes]
    assert torch.equal(traced(ramp(5, 4)), expected(ramp(5, 4)))


def test_a_symbolic_trace_is_refused_where_tensors_are_replaced() -> None:
    compiled = thunder.jit(Model())
    compiled.override("linear.weight", torch.nn.Parameter(torch.ones(4, 4)))
    for use in (torch.fx.symbolic_trace, prepared, lambda part: torch.fx.symbolic_trace(Holder(part))):
        with pytest.raises(UnsupportedProgram, match=r"transforms"):
            use(compiled)


def test_scripting_is_refused_where_tensors_are_replaced() -> None:
    compiled = thunder.jit(Model())
    compiled.override("linear.weight", torch.nn.Parameter(torch.ones(4, 4)))
    with pytest.raises(UnsupportedProgram, match=r"torch\.jit\.script of a module with transforms"):
        torch.jit.script(compiled)


def test_torch_compile_of_a_compiled_module_runs_what_thunder_compiled() -> None:
    model = Model()
    compiled = thunder.jit(model)
    assert torch.equal(torch.compile(compiled, backend="eager")(ramp(3, 4)), model(ramp(3, 4)))
    assert thunder.cache_misses(compiled) >= 1
    assert thunder.compile_stats(compiled).runs_by_python == 0


def test_a_call_on_fake_tensors_gives_fake_tensors() -> None:
    compiled = thunder.jit(lambda x: x.sum(0) + 1)
    compiled(torch.ones(3, 2))
    with FakeTensorMode() as mode:
        assert compiled(mode.from_tensor(torch.ones(3, 2))).shape == (2,)
    assert thunder.compile_stats(compiled).runs_by_python == 1


def test_a_mode_that_counts_sees_the_operators_of_the_program() -> None:
    model = Model()
    compiled = thunder.jit(model)
    compiled(ramp(3, 4))
    counts = []
    for called in (model, compiled):
        with FlopCounterMode(display=False) as counter:
            called(ramp(3, 4))
        counts.append(counter.get_flop_counts())
    assert counts[0] == counts[1]
    assert counts[0]["Global"]


def test_a_module_with_overriding_tensors_is_not_traced_by_torch() -> None:
    compiled = thunder.jit(Model())
    compiled.override("linear.bias", nn.Parameter(torch.ones(4)))
    with pytest.raises(thunder.UnsupportedProgram, match="torch traces a call"), FakeTensorMode():
        compiled(torch.ones(3, 4))
