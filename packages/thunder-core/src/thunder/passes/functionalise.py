"""Functionalisation: in-place writes become values; their effects become explicit.

Note [Functionalisation]
The user's program, and the result of the pass:

    def f(x):              y = x[0]
        y = x[0]           t1 = torch.add(y, 1)
        y.add_(1)          t2 = prims.copy_with_setitem(x, …, t1)          # y is a view of x
        z = x * 2          z = torch.mul(t2, 2)                            # x's storage holds t2 now
        return y, z        prims.copy_(t2, x, grad_enabled=False)          # the caller sees the write
                           t3 = x[0]                                       # y is still a view of x
                           return (t3, z)

The pass has three steps: the analysis of aliases (``alias_info``), the rewrite, which computes a new version
of a storage for each write (``rewriter``, ``storages``), and the write-back to inputs (``write_back``).

Whether ``reshape``, ``contiguous`` and the like return a view is determined only where it matters: if the
storage is written after the call, or if the result and another tensor of a written storage leave the
program.
"""

from __future__ import annotations

import time

import torch

from thunder.base.structural_ids import RETURN
from thunder.ir.recorder import FixedLocation
from thunder.ir.substitution import substitute_in_tree
from thunder.ir.trace import TraceCtx, TraceProvenance, from_trace, tracectx
from thunder.passes.functionalisation.alias_info import analyse_aliases
from thunder.passes.functionalisation.rewriter import Rewriter, located
from thunder.passes.functionalisation.write_back import write_back
from thunder.passes.mutations import writes


def functionalise(trace: TraceCtx) -> TraceCtx:
    """Remove in-place writes; those to inputs become ``prims.copy_(value, input)`` at the end.

    See Note [Functionalisation]. Returns the trace itself if it writes nothing. Raises UnsupportedProgram
    for a write that cannot be expressed, and OperatorError for one that torch refuses, each with the user's
    line. ``trace.input_aliases`` are the groups of inputs that overlap in memory.
    """
    if not any(map(writes, trace.bound_symbols)):
        return trace
    start = time.perf_counter_ns()
    info = analyse_aliases(trace)
    new = from_trace(trace)
    new.args = substitute_in_tree(trace.args, info.pre_write_proxies)
    recorder = FixedLocation()
    with tracectx(new, recorder=recorder):
        rewriter = Rewriter(info, new)
    with tracectx(new, recorder=recorder), torch.set_grad_enabled(trace.grad_enabled):
        for position, bsym in enumerate(info.program):
            with located(bsym, recorder):
                if bsym.sym.id == RETURN:
                    write_back(info, rewriter, bsym)
                else:
                    rewriter.rewrite(position, bsym)
    new.provenance = TraceProvenance("Functionalisation", time.perf_counter_ns() - start)
    return new
