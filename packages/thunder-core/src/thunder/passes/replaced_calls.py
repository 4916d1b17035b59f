"""Calls that are replaced before executors are consulted, in the placement ledger.

    F.batch_norm(x, mean, var, training=True)   →   out, m, v = batch_norm_update(x, mean, var, ...)
                                                    copy_(m, mean); copy_(v, var)

Functionalisation replaces a call that writes by the calls that it decomposes into, so an implementation of a
package for the call does not run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from thunder.executor_base.executor import Executor
from thunder.executor_base.package_code import has_package_support
from thunder.executor_base.refusal import Refusal
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx
from thunder.passes.mutations import COPY, writes
from thunder.passes.placement import Placement

__all__ = ["replaced_calls"]

_WRITES = Refusal("writes", "the call writes to an argument, and is computed by operators that do not write")


def replaced_calls(
    trace: TraceCtx, executors: Sequence[Executor], required: Collection[str] = ()
) -> list[Placement]:
    """Return the placements of the calls of a trace that functionalisation replaces.

    They are refused by the executors that have code of a package for them. A call for which there is none has
    no placement, unless its operator is `required` to be run by an executor.
    """
    placements = []
    for bsym in _writing(trace.bound_symbols):
        refusals = tuple((e.name, _WRITES) for e in executors if has_package_support(e, bsym))
        if refusals or bsym.sym.id in required:
            placements.append(Placement(bsym, None, "decomposed", refusals))
    return placements


def _writing(bsyms: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    """Yield the calls that write, with those that they decompose into, except copies themselves."""
    for bsym in bsyms:
        if bsym.sym.id != COPY and writes(bsym):
            yield bsym
            yield from _writing(bsym.subsymbols)
