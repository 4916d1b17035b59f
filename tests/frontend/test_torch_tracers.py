"""Compiled modules under tracers of torch, which trace the program as it was written."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
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


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("tool", ["torch.jit.trace", "torch.jit.script", "torch.export"])
def test_a_tool_that_keeps_the_program_as_it_was_written_says_so_once(tool: str) -> None:
    export = {"torch.export": lambda compiled: torch.export.export(compiled, (ramp(3, 4),))}
    use = (TRACERS | export)[tool]
    warn_of_source.cache_clear()
    with pytest.warns(ThunderWarning, match=f"{tool} keeps the program as it was written: nothing"):
        use(thunder.jit(Model()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ThunderWarning)
        use(thunder.jit(Model()))


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
