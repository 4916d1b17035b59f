"""Stages that plugins insert into the pipeline: in which place they run, and how they are seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import thunder
from thunder.base.errors import InvalidArgument, PluginError, TraceError
from thunder.ir.trace import TraceCtx, TraceTag, from_trace, with_bound_symbols
from thunder.ops import prims
from thunder.plugins import get_manager, hookimpl


@contextmanager
def inserting(name: str, place: Callable[[Any, Mapping[str, Any]], None]) -> Iterator[None]:
    """Within the context there is a plugin that does this to every pipeline."""

    class Plugin:
        @hookimpl
        def thunder_pipeline(self, pipeline: Any, options: Mapping[str, Any]) -> None:
            place(pipeline, options)

    with get_manager().temporary(Plugin(), name=name):
        yield


def remarking(trace: TraceCtx, context: Any) -> TraceCtx:
    """A stage that adds a comment, and does not say that it has made a trace."""
    new = from_trace(trace)
    new.bound_symbols = [prims.comment.bind("looked at", output=None), *trace.bound_symbols]
    return new


def program(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x).exp().sum()


def made_by(traces: list[TraceCtx]) -> list[str]:
    return [trace.get_provenance().pss for trace in traces]


def test_an_inserted_stage_is_seen_by_its_name_in_its_place() -> None:
    with inserting("toy", lambda pipeline, options: pipeline.insert_after("cse", "remarks", remarking)):
        compiled = thunder.jit(program)
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), program(x))
    traces = thunder.last_traces(compiled)
    names = made_by(traces)
    assert names.index("Common Subexpression Elimination") + 1 == names.index("remarks")
    assert names.index("remarks") + 1 == names.index("Transform for execution")
    seen = str(traces[names.index("remarks")])
    assert seen.startswith("# Constructed by remarks (took ")
    assert "# looked at" in seen
    assert "# looked at" not in str(traces[names.index("remarks") - 1])


def test_a_stage_after_the_partition_runs_for_the_forward_and_then_for_the_backward() -> None:
    tags = []

    def look(trace: TraceCtx, context: Any) -> TraceCtx:
        tags.append(trace.tags)
        return remarking(trace, context)

    with inserting("toy", lambda pipeline, options: pipeline.insert_before("claim", "bucketing", look)):
        compiled = thunder.jit(program)
        x = torch.randn(3, requires_grad=True)
        compiled(x).backward()
    assert tags == [{TraceTag.AUGMENTED_FORWARD}, {TraceTag.BACKWARD}]
    for traces in (thunder.last_traces(compiled), thunder.last_backward_traces(compiled)):
        names = made_by(traces)
        assert names.index("bucketing") < names.index("Transform for execution")
        assert "# looked at" in str(traces[-1])
    torch.testing.assert_close(x.grad, x.detach().cos() * x.detach().sin().exp())


def test_stages_of_several_plugins_stand_in_the_order_of_their_names() -> None:
    def before_claim(name: str) -> Callable[[Any, Mapping[str, Any]], None]:
        return lambda pipeline, options: pipeline.insert_before("claim", name, remarking)

    with inserting("b", before_claim("second")), inserting("a", before_claim("first")):
        compiled = thunder.jit(program)
        compiled(torch.ones(2))
    names = made_by(thunder.last_traces(compiled))
    assert [name for name in names if name in ("first", "second")] == ["first", "second"]


def test_a_plugin_sees_the_options_of_the_compile() -> None:
    seen = []
    with inserting("toy", lambda pipeline, options: seen.append((options["cse"], "cse" in pipeline.names()))):
        thunder.jit(program, cse=False)(torch.ones(2))
    assert seen == [(False, True)]


def test_a_stage_may_edit_its_trace_and_those_on_record_do_not_change() -> None:
    def edit(trace: TraceCtx, context: Any) -> TraceCtx:
        trace.bound_symbols.insert(0, prims.comment.bind("edited", output=None))
        return trace

    with inserting("toy", lambda pipeline, options: pipeline.insert_before("claim", "editor", edit)):
        compiled = thunder.jit(program)
        compiled(torch.ones(2))
    traces = thunder.last_traces(compiled)
    place = made_by(traces).index("editor")
    assert ["# edited" in str(trace) for trace in traces[place - 1 : place + 1]] == [False, True]


def test_a_stage_that_changes_nothing_adds_no_trace_and_one_that_says_who_made_it_keeps_that() -> None:
    def named(trace: TraceCtx, context: Any) -> TraceCtx:
        return with_bound_symbols(trace, trace.bound_symbols, "Somebody")

    def place(pipeline: Any, options: Mapping[str, Any]) -> None:
        pipeline.insert_before("claim", "idle", lambda trace, context: trace)
        pipeline.insert_before("claim", "named", named)

    with inserting("toy", place):
        compiled = thunder.jit(program)
        compiled(torch.ones(2))
    names = made_by(thunder.last_traces(compiled))
    assert "Somebody" in names
    assert not {"idle", "named"} & set(names)
    assert {"idle", "named"} <= set(thunder.compile_stats(compiled).stage_times)


def test_an_edit_of_the_program_runs() -> None:
    def negate(trace: TraceCtx, context: Any) -> TraceCtx:
        first, *rest = trace.bound_symbols
        trace.bound_symbols[:] = [prims.neg.bind(*first.args[:1], output=first.output), *rest]
        return trace

    with inserting("toy", lambda pipeline, options: pipeline.insert_before("claim", "negating", negate)):
        compiled = thunder.jit(lambda x: torch.sin(x).exp())
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), (-x).exp())


def losing(trace: TraceCtx, context: Any) -> TraceCtx:
    del trace.bound_symbols[0]
    return trace


@pytest.mark.parametrize(
    ("place", "error", "text"),
    [
        (lambda p: p.insert_before("clam", "mine", remarking), PluginError, "Did you mean 'claim'"),
        (lambda p: p.insert_after("claim", "dce", remarking), PluginError, "has a stage 'dce' already"),
        (
            lambda p: p.insert_after("cse", "mine", lambda trace, context: None),
            PluginError,
            "'mine' returned",
        ),
        (lambda p: p.insert_after("cse", "mine", lambda trace, context: 1 / 0), PluginError, "'mine' raised"),
        (
            lambda p: p.insert_after("cse", "mine", losing),
            TraceError,
            r"made by mine is malformed(.|\n)*from:  module plugins\.test_stages",
        ),
    ],
    ids=["no such neighbour", "name taken", "returns nothing", "raises", "loses a definition"],
)
def test_what_a_plugin_does_wrong_is_told_as_its_fault(place: Any, error: type, text: str) -> None:
    with inserting("toy", lambda pipeline, options: place(pipeline)), pytest.raises(error, match=text):
        thunder.jit(program)(torch.ones(2))


def test_a_stage_may_refuse_a_program_in_its_own_words() -> None:
    def refuse(trace: TraceCtx, context: Any) -> TraceCtx:
        raise InvalidArgument("not this one")

    def place(pipeline: Any, options: Mapping[str, Any]) -> None:
        pipeline.insert_after("cse", "picky", refuse)

    with inserting("toy", place), pytest.raises(InvalidArgument, match="not this one"):
        thunder.jit(program)(torch.ones(2))
