"""Changes of a trace by others: by transforms, and by stages that plugins insert.

They may edit the trace that they get, down to the headers of bound symbols, so they get a copy: the traces on
record do not change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from thunder.base.errors import TraceError
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, TraceProvenance, from_trace

__all__ = ["edited"]


def edited(trace: TraceCtx, change: Callable[[TraceCtx], Any], made_by: str) -> Any:
    """Return what `change` makes of a copy of a trace; the trace itself if it changed nothing.

    A result without provenance gets the name `made_by`. A result that is not a trace is returned unchanged.
    Raises TraceError if the result has lost which inputs overlap in memory.
    """
    given = from_trace(trace)
    given.bound_symbols = [bsym.from_bsym() for bsym in trace.bound_symbols]
    copies = list(given.bound_symbols)
    start = time.perf_counter_ns()
    result = change(given)
    if result is given and _is_unchanged(copies, trace, given):
        return trace
    if isinstance(result, TraceCtx) and result is not trace and result.provenance is None:
        result.set_provenance(TraceProvenance(made_by, time.perf_counter_ns() - start))
    if isinstance(result, TraceCtx) and result.input_aliases != trace.input_aliases:
        raise TraceError(
            f"the trace made by {made_by} has lost which inputs overlap in memory",
            found={"overlapping": [[alias.proxy.name for alias in group] for group in trace.input_aliases]},
            hint="Make the trace with thunder.core.trace.from_trace, which keeps every fact of the program.",
        )
    return result


def _is_unchanged(copies: Sequence[BoundSymbol], before: TraceCtx, after: TraceCtx) -> bool:
    return (
        len(after.bound_symbols) == len(copies)
        and all(a is b for a, b in zip(after.bound_symbols, copies, strict=True))
        and all(a.header == b.header for a, b in zip(copies, before.bound_symbols, strict=True))
    )
