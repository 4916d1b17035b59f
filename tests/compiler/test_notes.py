"""What stages and transforms note about a program is in the ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pytest
import torch

import thunder
from thunder.core.transform_common import Note


@dataclass(frozen=True)
class Counted(Note):
    """The number of calls before differentiation."""

    calls: int

    def facts(self) -> Mapping[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"counted: {self.calls} calls"


class Counts(thunder.Transform):
    """Counts the calls of a program in a stage of its own."""

    def configure_pipeline(self, pipeline: Any, options: Mapping[str, Any]) -> None:
        pipeline.add("count", self.count, before="autograd")

    def count(self, trace: Any, context: Any) -> Any:
        context.note(Counted(len(trace.bound_symbols) - 1))
        return trace


class Notices(thunder.Transform):
    """Notes about the trace that a hook receives."""

    def transform_trace_pre_execution(self, trace: Any, **kwargs: Any) -> Any:
        kwargs["context"].note(Counted(len(trace.bound_symbols) - 1))
        return trace


def program(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() + 1) * 2


@pytest.mark.parametrize("transform", [Counts, Notices])
def test_a_note_is_in_the_table_and_in_the_json(transform: type[thunder.Transform]) -> None:
    compiled = thunder.jit(program, transforms=[transform()])
    compiled(torch.ones(2))
    explanation = thunder.explain(compiled)
    assert explanation.notes == (Counted(3),)
    assert "counted: 3 calls" in str(explanation).splitlines()
    assert json.loads(explanation.to_json())["notes"] == [{"note": "Counted", "calls": 3}]


def test_notes_are_those_of_the_entry_that_ran() -> None:
    compiled = thunder.jit(lambda x, deep: program(program(x)) if deep else program(x), transforms=[Counts()])
    for deep, calls in ((False, 3), (True, 6), (False, 3)):
        compiled(torch.ones(2), deep)
        assert thunder.explain(compiled).notes == (Counted(calls),)


def test_a_plan_has_the_notes_of_its_compile() -> None:
    plan = thunder.plan(program, torch.ones(2), transforms=[Counts()])
    assert plan.explain().notes == (Counted(3),)


def test_another_object_is_refused_where_it_is_noted() -> None:
    class Writes(Counts):
        def count(self, trace: Any, context: Any) -> Any:
            context.note("three calls")
            return trace

    with pytest.raises(thunder.PluginError, match=r"the stage 'count'(.|\n)*not 'three calls', of type str"):
        thunder.jit(program, transforms=[Writes()])(torch.ones(2))
