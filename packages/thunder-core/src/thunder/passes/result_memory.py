"""The memory of what executors return for a call, against the memory of the operator's results.

A result of `torch.exp` has memory of its own, and one of `torch.transpose` is a view of the argument. A
program can tell: it writes to one tensor and reads another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from thunder.executor_base.refusal import Refusal
from thunder.ir.aliasing import DisjointSets, View, escaping, shared_memory, views_of
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx
from thunder.ops import prims

__all__ = ["ProgramMemory", "copied_view", "with_own_memory"]

#: the outputs of a call, each with the value that an executor computes for it
Results = Sequence[tuple[Any, Any]]


class ProgramMemory:
    """The memory that the caller of a program holds: of its inputs and results, and of their views."""

    def __init__(self, trace: TraceCtx) -> None:
        self._trace = trace

    @cached_property
    def _escaping(self) -> frozenset[str]:
        """The names of values whose memory may be that of a result."""
        return escaping(self._trace.bound_symbols)

    @cached_property
    def _memory(self) -> DisjointSets:
        return shared_memory(self._trace.bound_symbols)

    @cached_property
    def _holders(self) -> Mapping[str, set[str]]:
        """Memory → the inputs and results of the program in it."""
        results = [p for b in self._trace.bound_symbols[-1:] for p in b.flat_proxy_args]
        holders: dict[str, set[str]] = {}
        for p in (*self._trace.args, *results):
            if isinstance(p, TensorProxy):
                holders.setdefault(self._memory.find(p.name), set()).add(p.name)
        return holders

    def escapes(self, name: str) -> bool:
        """Return whether the caller may hold the memory of a value."""
        return name in self._escaping

    def is_observed(self, view: View) -> bool:
        """Return whether the caller may hold a view, and another tensor in its memory."""
        name = view.output.name
        return self.escapes(name) and len(self._holders.get(self._memory.find(name), ())) > 1


def with_own_memory(
    trace: TraceCtx,
    bsym: BoundSymbol,
    recorded: Sequence[BoundSymbol],
    results: Results,
    program: ProgramMemory,
) -> tuple[list[BoundSymbol], Results]:
    """Return copies of results that share memory, and the results with these in place.

    A result in the memory of an argument, or of a result before it, is copied if the operator's own result
    has other memory, and the caller may hold it.
    """
    memory, own = shared_memory(recorded), shared_memory((bsym,))
    values = {p.name: p.name for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)}
    separate: list[tuple[Any, Any]] = []
    copies: list[BoundSymbol] = []
    with trace.recording_into(copies):
        for output, result in results:
            if isinstance(result, TensorProxy) and output.name not in values:
                sharing = [o for o, value in values.items() if memory.find(value) == memory.find(result.name)]
                if any(own.find(o) != own.find(output.name) for o in sharing) and program.escapes(
                    output.name
                ):
                    result = prims.clone(result)
                values[output.name] = result.name
            separate.append((output, result))
    return copies, separate


def copied_view(
    bsym: BoundSymbol, recorded: Sequence[BoundSymbol], results: Results, program: ProgramMemory
) -> Refusal | None:
    """Return the refusal of calls that copy where the operator returns a view, or None.

    It matters only if the caller holds the view, and another tensor in the same memory.
    """
    views: list[View] = [view for view in views_of(bsym) if view.certain and program.is_observed(view)]
    if not views:
        return None
    memory = shared_memory(recorded, certain=True)
    values = {output.name: result for output, result in results}
    for view in views:
        value = values.get(view.output.name)
        if isinstance(value, TensorProxy) and memory.find(value.name) != memory.find(view.source.name):
            return Refusal("view", f"it copies, and {bsym.sym.id} returns a view, which the program returns")
    return None
