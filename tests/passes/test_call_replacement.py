"""Calls that a function replaces: the caller's memory is as in eager, whatever the function returns."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from comparison.memory import assert_same_memory
from thunder.core.errors import InvalidArgument
from thunder.core.rewrite import replace_calls
from thunder.core.symbol import BoundSymbol


class WithoutOnes(thunder.Transform):
    """Leaves out products by 1."""

    def transform_traces_pre_prologue(
        self, prologue_trace: Any, computation_trace: Any, epilogue_trace: Any, **kwargs: Any
    ) -> Any:
        return prologue_trace, replace_calls(computation_trace, _operand), epilogue_trace


def _operand(bsym: BoundSymbol) -> Any:
    return bsym.args[0] if bsym.sym.id == "torch.mul" and bsym.args[1] == 1 else None


def twice(x):
    return x * 1, x * 1


def of_an_intermediate(x):
    y = x.sin()
    return y, y * 1


PROGRAMS = {
    "the result": lambda x: x * 1,
    "a view of it": lambda x: (x * 1).view(2, 2),
    "a view of an argument": lambda x: x[:2] * 1,
    "twice": twice,
    "of an intermediate": of_an_intermediate,
    "and the argument": lambda x: (x, x * 1),
    "within": lambda x: (x * 1).exp() + 1,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_result_is_the_callers_own(name):
    program = PROGRAMS[name]
    compiled = thunder.jit(program, transforms=[WithoutOnes()])
    lists = []
    for fn in (program, compiled):
        x = torch.arange(4.0)
        result = fn(x)
        lists.append([x, *(result if isinstance(result, tuple) else [result])])
    assert_same_memory(*lists, name)


def test_a_value_that_stays_in_the_program_is_not_copied():
    compiled = thunder.jit(PROGRAMS["within"], transforms=[WithoutOnes()], executors=[])
    compiled(torch.ones(4))
    names = [b.sym.name for b in thunder.last_traces(compiled)[-1].bound_symbols]
    assert not {"clone", "mul"} & set(names)


def test_a_result_of_another_form_is_refused():
    class Wrong(WithoutOnes):
        def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
            def number(bsym: BoundSymbol) -> Any:
                return (bsym.args[0],) * 2 if bsym.sym.id == "torch.mul" else None

            return prologue_trace, replace_calls(computation_trace, number), epilogue_trace

    with pytest.raises((InvalidArgument, thunder.PluginError), match="results of another form"):
        thunder.jit(PROGRAMS["the result"], transforms=[Wrong()])(torch.ones(4))
