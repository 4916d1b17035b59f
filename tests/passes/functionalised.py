"""Functionalised traces, compared with eager: results, inputs after the call, and shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from comparison.inputs import Make, copies
from comparison.memory import assert_same_memory
from comparison.values import assert_equal_tensors
from ops.trace_evaluator import evaluated, traced
from thunder.base.pytree import tree_flatten
from thunder.base.tags import OpTags
from thunder.ir.aliasing import InputAlias
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx
from thunder.ir.verify import check_trace
from thunder.passes.functionalise import functionalise

Program = Callable[..., Any]


def functional(fn: Program, *inputs: torch.Tensor) -> TraceCtx:
    """The functionalised trace of ``fn``, which is verified, and has no in-place operator but write-backs at
    its end.
    """
    recorded = traced(fn, *inputs)
    recorded.input_aliases = _aliases(recorded, inputs)
    trace = functionalise(recorded)
    check_trace(trace, stage="functionalise")
    names = {p.name for p in trace.args}
    writes = [i for i, b in enumerate(trace.bound_symbols) if b.sym.id == "prims.copy_"]
    assert all(trace.bound_symbols[i].args[1].name in names for i in writes), f"a write to no input:\n{trace}"
    rest = [b for i, b in enumerate(trace.bound_symbols) if i not in writes]
    assert not any(map(_in_place, rest)), f"an in-place operator is left:\n{trace}"
    for bsym in trace.bound_symbols[writes[-1] + 1 : -1] if writes else []:
        assert _is_view(bsym), f"behind the write-backs is more than views:\n{trace}"
    return trace


def _aliases(trace: TraceCtx, inputs: Sequence[torch.Tensor]) -> tuple[tuple[InputAlias, ...], ...]:
    """The inputs that share a storage, as the frontend says it."""
    groups: dict[int, list[InputAlias]] = {}
    for proxy, t in zip(trace.args, inputs, strict=True):
        alias = InputAlias(proxy, t.stride(), t.storage_offset())
        groups.setdefault(t.untyped_storage().data_ptr(), []).append(alias)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _in_place(bsym: BoundSymbol) -> bool:
    return OpTags.IN_PLACE in bsym.tags or any(map(_in_place, bsym.subsymbols))


def _is_view(bsym: BoundSymbol) -> bool:
    return not bsym.tags.isdisjoint({OpTags.VIEW, OpTags.MAYBE_VIEW})


def assert_as_eager(fn: Program, *inputs: torch.Tensor) -> TraceCtx:
    """Call :func:`assert_same_effects` with copies of these inputs."""
    return assert_same_effects(fn, copies(*inputs))


def assert_same_effects(fn: Program, make: Make) -> TraceCtx:
    """Assert that a functionalised trace has eager's results, inputs and memory; return the trace."""
    theirs, ours = make(), make()
    trace = functional(fn, *ours)
    with torch.no_grad():
        expected, found = fn(*theirs), evaluated(trace, ours)
    results = [*tree_flatten(expected)[0], *theirs], [*tree_flatten(found)[0], *ours]
    assert_equal_tensors(*results, "results and inputs", exact=True, note=f"\n{trace}")
    assert_same_memory(*results, "results and inputs", exact=True, note=f"\n{trace}")
    return trace
