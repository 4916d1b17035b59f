"""The fusions of a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx

__all__ = ["get_fusion_symbols", "get_fusions"]


def get_fusion_symbols(trace: TraceCtx) -> list[BoundSymbol]:
    """Return the fusions of a trace, of any executor, in the order in which they run."""
    return [bsym for bsym in trace.bound_symbols if bsym.sym.is_fusion]


def get_fusions(trace: TraceCtx) -> list[tuple[str, Callable[..., Any]]]:
    """Return the name of each fusion and the function that runs it, in the order in which they run."""
    fusions = []
    for bsym in get_fusion_symbols(trace):
        assert bsym.sym.python_impl is not None, f"fusion {bsym.sym.name} has a function that runs it"
        fusions.append((bsym.sym.name, bsym.sym.python_impl))
    return fusions
