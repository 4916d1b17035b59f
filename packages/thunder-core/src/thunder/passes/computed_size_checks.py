"""The checks of what a program was compiled for about the sizes that it finds (Note [Computed sizes])."""

from __future__ import annotations

import time
from collections.abc import Iterator

from thunder.base.errors import UnsupportedProgram
from thunder.base.tags import OpTags
from thunder.ir.size_facts import FloatFact, SizeFact, SizeFacts
from thunder.ir.symbol import BoundSymbol
from thunder.ir.symbolic_sizes import SymbolicInt, number_of
from thunder.ir.trace import TraceCtx, TraceTag, with_bound_symbols
from thunder.ops import prims

__all__ = ["check_sizes"]


def check_sizes(trace: TraceCtx) -> TraceCtx:
    """Check each fact about computed sizes right after the last of them is found.

        (t1, u0) = nonzero_with_size(x, …)   →   (t1, u0) = nonzero_with_size(x, …)
                                                 check_decision(u0, 3, question=">=", answer=True)

    From now on no further facts about them may be noted. A backward gets the sizes from its forward, where
    they have been checked. Raises UnsupportedProgram for a size that is used where it is not known.
    """
    start = time.perf_counter_ns()
    if TraceTag.BACKWARD in trace.tags:
        return trace
    facts = next((size.facts for bsym in trace.bound_symbols for size in _found_by(bsym)), None)
    if facts is None:
        return trace
    facts.complete_computed()
    checks, known, statements = facts.checked_inside(), set[int](), list[BoundSymbol]()
    for bsym in trace.bound_symbols:
        _refuse_unknown(bsym, facts, known)
        statements.append(bsym)
        for size in _found_by(bsym):
            assert size.variable is not None, "a call finds a size, and no expression"
            known.add(size.variable)
            statements += [_check(fact, facts, bsym) for fact in checks.pop(size.variable, ())]
    if checks:
        raise UnsupportedProgram("a program depends on a size that it does not find")
    return with_bound_symbols(trace, statements, "Check Sizes", time.perf_counter_ns() - start)


def _found_by(bsym: BoundSymbol) -> Iterator[SymbolicInt]:
    """Yield the sizes that a call finds."""
    if OpTags.COMPUTES_SIZE in bsym.tags:
        yield from (p for p in bsym.flat_proxy_outs if isinstance(p, SymbolicInt))


def _refuse_unknown(bsym: BoundSymbol, facts: SizeFacts, known: set[int]) -> None:
    for p in bsym.flat_proxy_args:
        if isinstance(p, SymbolicInt) and p.variable in facts.computed and p.variable not in known:
            raise UnsupportedProgram(f"the size {p.name} is used before it is known", where=bsym.locations)


def _check(fact: SizeFact | FloatFact, facts: SizeFacts, after: BoundSymbol) -> BoundSymbol:
    left, right = (number_of(facts, side) for side in fact.sides())
    check = prims.check_decision.bind(left, right, question=fact.relation, answer=True, output=None)
    check.source = after.source
    return check
