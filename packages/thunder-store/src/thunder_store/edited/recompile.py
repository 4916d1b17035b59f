"""The entry of an edited program: the stages run again, with the edited traces in their places.

| the text has | it takes the place of | what runs after it |
|---|---|---|
| a computation before the split | the program as it was acquired | all stages: autograd, executors, fusion |
| a forward or a backward of operators | what the partition returned | executors, fusion |
| a forward, a backward or a computation of executors' calls | what would run | only what releases memory |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final, NamedTuple

from thunder.core.entries import (
    CacheEntry,
    Compiled,
    CompileData,
    Context,
    Note,
    Pipeline,
    TraceCtx,
    TraceTag,
    always_executors,
    claim_rest,
    compiling,
    configured_pipeline,
    default_generators_kept,
    del_last_used,
    plan_of_traces,
)
from thunder_store.edited.conforming import STRUCTURE, conformed, is_unchanged, match_inputs, unpacked
from thunder_store.edited.entry import EditedEntry
from thunder_store.edited.forms import type_of
from thunder_store.edited.numbers import CheckedOnce, refuse_effects
from thunder_store.edited.refusals import EditedProgramError, OtherSignature, not_editable
from thunder_store.edited.texts import Definition, loaded

__all__ = ["Edits", "OtherProgram", "edited_entry", "edits_for"]


class Edits(NamedTuple):
    """The edited traces of a file, each on the values of the program, and where each belongs."""

    path: str
    #: in the place of the program as it was acquired
    computation: TraceCtx | None = None
    #: (trace, whether executors have claimed its calls)
    forward: tuple[TraceCtx, bool] | None = None
    backward: tuple[TraceCtx, bool] | None = None

    @property
    def replaced(self) -> tuple[str, ...]:
        """The names of what is replaced."""
        return tuple(
            name for name in ("computation", "forward", "backward") if getattr(self, name) is not None
        )


@dataclass(frozen=True)
class OtherProgram(Note):
    """The note of a program that an edited one was given for, and is not used."""

    path: str
    reason: str

    def facts(self) -> Mapping[str, Any]:
        """Return the facts as the JSON of `thunder.explain` has them."""
        return {"edited program": self.path, "not used": self.reason}

    def __str__(self) -> str:
        return f"the edited program {self.path} is not used: {self.reason}"


def edits_for(entry: CacheEntry, definitions: Sequence[Definition], path: str) -> Edits:
    """Return the edits that a file has for an entry.

    Raises OtherSignature where they are for another one, and EditedProgramError where they are wrong.
    """
    for definition in definitions:
        if definition.is_backward and not entry.backward_traces:
            raise OtherSignature("it has a backward, and the program computes no gradients")
        if definition.saves and not entry.backward_traces:
            raise OtherSignature("it saves values for a backward, and the program computes no gradients")
        match_inputs(definition, _last(entry, definition))
    _refuse(entry)
    traces = {d.is_backward: (d, loaded(d, entry, path)) for d in definitions}
    forward, backward = traces.get(False), traces.get(True)
    edits = Edits(path)
    if backward is not None:
        saved = None if forward is None else _saved(forward[1])
        edits = edits._replace(backward=_placed(entry, *backward, saved))
    if forward is not None:
        definition, trace = forward
        if definition.saves:
            saved = None if backward is None else unpacked(backward[1])[0]
            edits = edits._replace(forward=_placed(entry, definition, trace, saved))
        elif backward is not None:
            raise EditedProgramError(
                f"{path} has a backward, and a computation that saves nothing for it",
                hint="Edit the forward, thunder.last_traces(compiled)[-1]; or the computation alone.",
            )
        elif not entry.backward_traces and _is_claimed(trace):
            edits = edits._replace(forward=_placed(entry, definition, trace, None))
        elif (
            entry.backward_traces
            and _runs_as_it_is(trace)
            and not _runs_as_it_is(entry.computation_traces[0])
        ):
            raise OtherSignature("it is what runs without gradients, and the program computes gradients")
        else:
            whole = conformed(trace, entry.computation_traces[0], definition.text)
            edits = edits._replace(computation=whole)
    return edits


def _last(entry: CacheEntry, definition: Definition) -> TraceCtx:
    traces = entry.backward_traces if definition.is_backward else entry.computation_traces
    return traces[-1] if definition.is_backward or definition.saves else traces[0]


def _placed(
    entry: CacheEntry, definition: Definition, trace: TraceCtx, saved: Sequence[Any] | None
) -> tuple[TraceCtx, bool] | None:
    """Return an edited forward or backward on the program's values, and whether executors run its calls.

    None for one in which nothing is edited.
    """
    traces = entry.backward_traces if definition.is_backward else entry.computation_traces
    tag = TraceTag.BACKWARD if definition.is_backward else TraceTag.AUGMENTED_FORWARD
    is_claimed = _is_claimed(trace) or not _is_claimed(traces[-1])  # what runs may have no call
    base = traces[-1] if is_claimed else next((t for t in traces if tag in t.tags), traces[-1])
    edited = conformed(trace, base, definition.text, saved)
    return None if is_unchanged(edited, base, definition.text) else (edited, is_claimed)


def _saved(forward: TraceCtx) -> list[Any] | None:
    returned = forward.bound_symbols[-1].args
    if TraceTag.AUGMENTED_FORWARD not in forward.tags and len(returned) != 2:
        return None
    return [p for part in returned[1] for p in part] if len(returned) == 2 else None


def _is_claimed(trace: TraceCtx) -> bool:
    return any(_has_executor(b) for b in trace.bound_symbols)


def _runs_as_it_is(trace: TraceCtx) -> bool:
    calls = [b for b in trace.bound_symbols if b.sym.id not in STRUCTURE][:-1]
    return bool(calls) and all(map(_has_executor, calls))


def _has_executor(bsym: Any) -> bool:
    sym = bsym.sym
    runs = sym.executor is not None or sym.is_fusion or (sym.python_impl is not None and sym.meta is None)
    return sym.id not in STRUCTURE and runs


def _refuse(entry: CacheEntry) -> None:
    """Raise EditedProgramError for a program whose stages cannot be run again."""
    reason = None
    if entry.origin is None:
        reason = "it comes from the cache of programs, or an artefact"
    elif entry.free_sizes or entry.fixed_sizes or entry.plan.sizes or entry.plan.places:
        reason = "its sizes or numbers are symbols"
    elif entry.decisions:
        reason = "it asks questions about data"
    elif entry.is_for_one_call:
        reason = "it is for one call"
    elif len(entry.prologue_traces) > 1:
        reason = "a transform has changed how it reads its inputs"
    if reason is not None:
        raise not_editable(reason)


def edited_entry(entry: CacheEntry, edits: Edits, data: CompileData, *, check: bool) -> EditedEntry:
    """Return the entry of an edited program; with ``check`` its first call compares it with the unedited."""
    if check:
        refuse_effects(entry, edits.path)
    compiled = _compiled(entry, edits, data)
    traces = [t[-1] for t in (compiled.traces, compiled.connected_traces) if t]
    failures = plan_of_traces(entry.failures, traces)
    epilogue = [entry.epilogue_traces[-1]] if entry.epilogue_fn is not None else []
    changed: dict[str, Any] = {
        "computation_fn": compiled.fn,
        "computation_traces": compiled.traces,
        "backward_fn": compiled.backward_fn,
        "backward_traces": compiled.backward_traces,
        "epilogue_traces": [*compiled.connected_traces, *epilogue],
        "ledger": compiled.ledger,
        "backward_ledger": compiled.backward_ledger,
        "notes": tuple(compiled.notes),
        "input_writes": tuple(compiled.writes),
        "below_autograd": compiled.below_autograd,
        "failures": failures,
        "can_be_undone": failures.can_be_undone,
    }
    kept: dict[str, Any] = {
        f.name: getattr(entry, f.name) for f in fields(CacheEntry) if f.name not in changed
    }
    edited = EditedEntry(**kept, **changed, unedited=entry)
    if check:
        edited.computation_fn = CheckedOnce(edited, compiled.fn, edits.path)
    return edited


def _compiled(entry: CacheEntry, edits: Edits, data: CompileData) -> Compiled:
    origin, now = entry.origin, type(entry.failures.modes).now()
    assert origin is not None, "the caller has refused others"
    entry.failures.modes.restore()
    try:
        with compiling(data), default_generators_kept():
            pipeline = configured_pipeline(data.transforms, data.compile_options, data.executors_list)
            _insert(pipeline, edits)
            return pipeline.run(
                edits.computation or entry.computation_traces[0],
                data.executors_list,
                data.transforms,
                data.compile_options,
                check=data.debug_options.check_traces,
                prologue=entry.prologue_traces[0],
                epilogue=entry.epilogue_traces[-1] if entry.epilogue_fn is not None else None,
                grad_requests=origin.grad_requests,
                effects=origin.effects,
            )
    finally:
        now.restore()


#: where an edited forward or backward comes: whether executors have claimed its calls → name, place
_PLACES: Final[Mapping[bool, tuple[str, dict[str, Any]]]] = {
    False: ("edited operators", {"after": "partition", "before": "transforms_pre_execution"}),
    True: (
        "edited calls",
        {"after": ("del_last_used", "transforms_post_optimization"), "before": "below_autograd"},
    ),
}


def _insert(pipeline: Pipeline, edits: Edits) -> None:
    for is_claimed, (name, place) in _PLACES.items():
        forward, backward = (
            e[0] if e and e[1] is is_claimed else None for e in (edits.forward, edits.backward)
        )
        if forward is not None or backward is not None:
            pipeline.add(name, partial(_edited, forward, backward, is_claimed), **place)


def _edited(
    forward: TraceCtx | None, backward: TraceCtx | None, is_claimed: bool, trace: TraceCtx, context: Context
) -> TraceCtx:
    edited = backward if context.branch is context.backward else forward
    if edited is None:
        return trace
    assert [*map(type_of, edited.args)] == [*map(type_of, trace.args)], (
        "the stages are those of the first compile"
    )
    if not is_claimed:
        return edited
    fallbacks = always_executors(context.executors)
    edited, context.branch.placements = claim_rest(edited, fallbacks, context.branch.placements)
    return del_last_used(edited, clear_mutable_collections=True)
