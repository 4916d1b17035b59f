"""Edits of a trace by transforms and by the stages of plugins, which work on a copy.

They may edit the trace that they receive, down to the headers of bound symbols; the trace of the previous
stage does not change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from thunder.base.errors import TraceError
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, TraceProvenance, from_trace

__all__ = ["copied", "edit_copy"]


def copied(trace: TraceCtx) -> TraceCtx:
    """Return a copy of a trace, down to its bound symbols, without provenance."""
    statements = [bsym.from_bsym() for bsym in trace.bound_symbols]
    copy = from_trace(trace)
    copy.bound_symbols = statements
    return copy


def edit_copy(trace: TraceCtx, change: Callable[[TraceCtx], Any], name: str) -> Any:
    """Return the result of `change` on a copy of a trace; the trace if nothing changed.

    A new trace without provenance is said to be constructed by `name`. A result that is not a trace is
    returned too. Raises TraceError if the result has lost which inputs overlap in memory.
    """
    copy = copied(trace)
    statements = list(copy.bound_symbols)
    start = time.perf_counter_ns()
    result = change(copy)
    if result is copy and _is_unchanged(statements, trace, copy):
        return trace
    if isinstance(result, TraceCtx) and result is not trace and result.provenance is None:
        result.set_provenance(TraceProvenance(name, time.perf_counter_ns() - start))
    if isinstance(result, TraceCtx) and result.input_aliases != trace.input_aliases:
        raise TraceError(
            f"the trace that {name} returned has lost which inputs overlap in memory",
            found={"overlapping": [[alias.proxy.name for alias in group] for group in trace.input_aliases]},
            hint="Create it with thunder.core.trace.from_trace, which copies every fact of the program.",
        )
    return result


def _is_unchanged(statements: Sequence[BoundSymbol], before: TraceCtx, after: TraceCtx) -> bool:
    return (
        len(after.bound_symbols) == len(statements)
        and len(after.args) == len(before.args)
        and all(a is b for a, b in zip(after.args, before.args, strict=True))
        and all(a is b for a, b in zip(after.bound_symbols, statements, strict=True))
        and all(a.header == b.header for a, b in zip(statements, before.bound_symbols, strict=True))
    )
