"""Stages of plugins: their order, the compiles in which they exist, their state, notices of compiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch

import thunder
from thunder.base.errors import InvalidArgument, PluginError
from thunder.extend import OperatorExecutor
from thunder.plugins import CompileEvent, IfPresent, get_manager, hookimpl


def program(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x).exp().sum()


class Staging:
    """A plugin that does this to every pipeline."""

    def __init__(self, place: Callable[[Any], object]) -> None:
        self.place = place

    @hookimpl
    def thunder_pipeline(self, pipeline: Any) -> None:
        self.place(pipeline)


@contextmanager
def staging(**places: Callable[[Any], object]) -> Iterator[None]:
    """Register a plugin for each keyword, of that name."""
    with ExitStack() as stack:
        for name, place in places.items():
            stack.enter_context(get_manager().temporary(Staging(place), name=name))
        yield


def appending(log: list[str], name: str) -> Callable[[Any, Any], Any]:
    def stage(trace: Any, context: Any) -> Any:
        log.append(name)
        return trace

    return stage


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")], ids=["in order", "renamed"])
def test_stages_of_plugins_are_ordered_by_what_they_say_and_not_by_the_plugins(
    names: tuple[str, str],
) -> None:
    log: list[str] = []
    places = (
        lambda p: p.add("second", appending(log, "second"), after="first", before="claim"),
        lambda p: p.add("first", appending(log, "first"), before="claim"),
    )
    with staging(**dict(zip(names, places, strict=True))):
        thunder.jit(program)(torch.ones(2))
    assert log == ["first", "second"]


def test_a_cycle_of_two_plugins_names_both() -> None:
    with (
        staging(
            acme=lambda p: p.add("one", appending([], ""), after=("two", "cse")),
            beta=lambda p: p.add("two", appending([], ""), after="one"),
        ),
        pytest.raises(PluginError, match=r"'acme'(.|\n)*'beta'|'beta'(.|\n)*'acme'"),
    ):
        thunder.jit(program)(torch.ones(2))


def test_an_absent_stage_is_an_error_of_the_plugin_unless_it_may_be_absent() -> None:
    with (
        staging(acme=lambda p: p.add("one", appending([], ""), after="clam")),
        pytest.raises(PluginError, match=r"Did you mean 'claim'(.|\n)*IfPresent(.|\n)*DISABLE_PLUGINS=acme"),
    ):
        thunder.jit(program)(torch.ones(2))
    log: list[str] = []
    place = ("cse", IfPresent("overlap"))
    with staging(acme=lambda p: p.add("one", appending(log, "one"), after=place)):
        thunder.jit(program)(torch.ones(2))
    with staging(
        acme=lambda p: p.add("one", appending(log, "one"), after=place),
        zeta=lambda p: p.add("overlap", appending(log, "overlap"), before="claim"),
    ):
        thunder.jit(program)(torch.ones(2))
    assert log == ["one", "overlap", "one"]


def test_a_stage_needs_a_place_and_a_free_name() -> None:
    for place, text in (
        (lambda p: p.add("one", appending([], "")), "has no place among the others"),
        (lambda p: p.add("one", appending([], ""), after=3), "has no place among the others"),
        (lambda p: p.add("cse", appending([], ""), after="dce"), r"has a stage 'cse' already"),
    ):
        with staging(acme=place), pytest.raises(PluginError, match=text):
            thunder.jit(program)(torch.ones(2))


def test_a_wrong_stage_of_a_transform_names_the_transform() -> None:
    class Misplaced(thunder.Transform):
        def configure_pipeline(self, pipeline: Any, options: Any) -> None:
            pipeline.add("one", appending([], ""), before="clam")

    with pytest.raises(InvalidArgument, match=r"Did you mean 'claim'(.|\n)*transform Misplaced"):
        thunder.jit(program, transforms=[Misplaced()])(torch.ones(2))


class Marked(thunder.Transform):
    """A transform without hooks."""


class MoreMarked(Marked):
    """A transform of a derived class."""


def test_a_stage_exists_only_in_compiles_with_one_of_its_executors_or_transforms() -> None:
    log: list[str] = []
    ex, other = OperatorExecutor("present"), OperatorExecutor("another")
    conditions: dict[str, dict[str, Any]] = {
        "object": {"executors": ex},
        "name": {"executors": ["torch", IfPresent("absent")]},
        "absent": {"executors": IfPresent("absent")},
        "class": {"transforms": Marked},
        "named class": {"transforms": IfPresent("Marked")},
        "either": {"executors": other, "transforms": [Marked]},
    }

    def place(pipeline: Any) -> None:
        for name, condition in conditions.items():
            pipeline.add(name, appending(log, name), before="claim", **condition)

    with staging(acme=place):
        compiled = thunder.jit(program, executors=[ex])
        compiled(torch.ones(2))
        assert sorted(log) == ["name", "object"]
        assert not {"class", "either"} & set(thunder.compile_stats(compiled).stage_times)
        log.clear()
        thunder.jit(program, transforms=[MoreMarked()])(torch.ones(2))
        assert sorted(log) == ["class", "either", "name", "named class"]


def test_an_unknown_executor_of_a_stage_is_an_error_with_the_nearest_name() -> None:
    with (
        staging(acme=lambda p: p.add("one", appending([], ""), after="cse", executors="torhc")),
        pytest.raises(PluginError, match=r"exists for the executor 'torhc'.* Did you mean 'torch'"),
    ):
        thunder.jit(program)(torch.ones(2))
    with (
        staging(acme=lambda p: p.add("one", appending([], ""), after="cse", executors=3)),
        pytest.raises(PluginError, match="has executors=3"),
    ):
        thunder.jit(program)(torch.ones(2))


class Seen:
    """The state of one compile."""

    def __init__(self) -> None:
        self.branches: list[str] = []


def test_state_is_shared_by_stages_and_hooks_and_new_in_each_compile() -> None:
    compiles: list[list[str]] = []

    def note(trace: Any, context: Any) -> Any:
        context.state(Seen).branches.append("backward" if context.is_backward else "forward")
        return trace

    class Reads(thunder.Transform):
        def transform_trace_post_optimization(self, computation_trace: Any, *, context: Any) -> Any:
            compiles.append(list(context.state(Seen).branches))
            return computation_trace

    with staging(acme=lambda p: p.add("note", note, after="claim")):
        compiled = thunder.jit(program, transforms=[Reads()])
        compiled(torch.ones(2, requires_grad=True))
        compiled(torch.ones(3, requires_grad=True))
    assert compiles == [["forward", "backward"]] * 4


def test_a_stage_sees_why_the_program_is_compiled_again() -> None:
    reasons: list[list[str]] = []

    def note(trace: Any, context: Any) -> Any:
        reasons.append([str(reason) for reason in context.reasons])
        return trace

    with staging(acme=lambda p: p.add("note", note, after="cse")):
        compiled = thunder.jit(lambda x, n: x * n)
        compiled(torch.ones(2), 1)
        compiled(torch.ones(2), 2)
    assert reasons == [[], ["value of args[1]: expected 1, found 2"]]


class Listening:
    def __init__(self) -> None:
        self.events: list[CompileEvent] = []

    @hookimpl
    def thunder_compiled(self, event: CompileEvent) -> None:
        self.events.append(event)


def test_a_plugin_is_notified_of_each_compile_and_of_no_other_call() -> None:
    plugin = Listening()
    with get_manager().temporary(plugin, name="listening"):
        compiled = thunder.jit(program)
        for size in (2, 2, 3):
            compiled(torch.ones(size))
        first, second = plugin.events
        assert (first.name, first.count, first.is_recompile) == ("program", 1, False)
        assert (second.count, second.is_recompile) == (2, True)
        assert second.reasons == tuple(thunder.last_recompile_reasons(compiled))
        assert second.entry.computation_traces == thunder.last_traces(compiled)
        assert {"acquire", "claim", "codegen"} <= set(second.stage_times)
        with pytest.raises(ZeroDivisionError, match="division by zero"):
            thunder.jit(lambda x: x * (1 / 0))(torch.ones(2))
        failed = plugin.events[-1]
        assert (type(failed.error), failed.entry) == (ZeroDivisionError, None)


def test_a_notice_that_raises_is_the_plugins_fault_and_the_program_is_compiled() -> None:
    class Broken:
        @hookimpl
        def thunder_compiled(self, event: CompileEvent) -> None:
            raise KeyError("mine")

    compiled = thunder.jit(program)
    with (
        get_manager().temporary(Broken(), name="broken"),
        pytest.raises(PluginError, match="thunder_compiled of plugin 'broken' raised KeyError"),
    ):
        compiled(torch.ones(2))
    compiled(torch.ones(2))
    assert thunder.cache_hits(compiled) == 1
