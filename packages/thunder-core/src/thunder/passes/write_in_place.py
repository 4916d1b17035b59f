"""Writes in place: values that functionalisation computed beside the memory that they are written to.

Note [Writes in place]
A functional program computes the next value of an input and copies it there at the end. Where nothing reads
the old elements after the write, the write itself goes to the input:

    def f(cache, k, p):          t1 = copy_with_setitem(cache, (:, p), k)       copy_with_setitem_in_place(…)
        cache[:, p] = k      →   t2 = sum(t1)                             →     t2 = sum(cache)
        return cache.sum()       copy_(t1, cache)                               return t2
                                 return t2

A chain of calls leads from the input to the value that is copied to it. It is put in place as a whole or not
at all:

- each of its calls has an in-place form (``ops/in_place``), which writes to the value before it in the chain;
- later statements read neither that value nor memory that it may share, and no result and no saved value is
  in the memory of the chain;
- the input shares memory with no other input (``trace.input_aliases``);
- where a later statement may raise, the form keeps what it overwrites (``base/overwritten``), to be put back.
  Where only memory may run out it keeps nothing; a call that fails so is not run again, and what it has
  written stays, as in eager.

A part of a tensor that the program has computed itself is written in place too, if it is read no more; and
its memory is reused (Note [Memory that is reused]).
"""

from __future__ import annotations

import time
from collections.abc import Set

from thunder.ir.effects import COPY
from thunder.ir.proxies import TensorProxy
from thunder.ir.substitution import substitute_operands
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, with_bound_symbols
from thunder.ops.reused_memory import has_out
from thunder.ops.writing_regions import form_of
from thunder.passes.placed_writes.chain_selection import ChainSelection, InputWrite
from thunder.passes.placed_writes.own_memory import (
    is_large,
    parts_of_own,
    region_in_memory_of_inputs,
    reused,
)
from thunder.passes.placed_writes.program_facts import ProgramFacts, in_place_form
from thunder.passes.placed_writes.raising_calls import ProgramEffects

__all__ = ["InputWrite", "write_in_place"]


def write_in_place(
    trace: TraceCtx,
    effects: ProgramEffects,
    deferred: TraceCtx | None = None,
    saved: Set[str] = frozenset(),
) -> tuple[TraceCtx, TraceCtx | None, list[InputWrite]]:
    """Put writes in place; return the program, the deferred writes that are left, and what was done.

    See Note [Writes in place]. The calls of ``trace`` are claimed. ``deferred`` are the writes that follow it
    in training (``autograd/deferred_writes``), ``saved`` the values of a backward that the forward has for it
    alone. Returns the traces themselves if nothing changes.
    """
    start = time.perf_counter_ns()
    ending = trace if deferred is None else deferred
    if not any(b.sym.id == COPY for b in ending.bound_symbols) and not any(
        map(_may_write_own_memory, trace.bound_symbols)
    ):
        return trace, deferred, []
    facts = ProgramFacts(trace, deferred, saved)
    chains = ChainSelection(facts, effects)
    chains.select()
    links = {link.position: link for chain in chains.chosen.values() for link in chain.links}
    values: dict[str, TensorProxy] = {}
    for chain in chains.chosen.values():
        for step in chain.steps:
            values[step.value.name] = values.get(step.source.name, step.source)
    parts, own = parts_of_own(facts, links, values)
    links, values = links | parts, values | own
    dropped, reuses = chains.dropped, False
    statements = list[BoundSymbol]()
    for i, bsym in enumerate(trace.bound_symbols):
        if i in links:
            link = links[i]
            if bsym.sym.is_fusion:
                link = link.of(region_in_memory_of_inputs(facts, i, values))
            statements.append(link.in_place(values))
        elif i not in dropped:
            call = reused(facts, i, values)
            reuses |= call is not None
            statements.append(substitute_operands(bsym, values) if call is None else call)
    if not links and not reuses:
        return trace, deferred, chains.report
    new = with_bound_symbols(trace, statements, "Writes in place", time.perf_counter_ns() - start)
    if deferred is not None:
        written = {chain.target.name for chain in chains.chosen.values()}
        left = [b for b in deferred.bound_symbols if b.sym.id != COPY or b.args[1].name not in written]
        deferred = with_bound_symbols(deferred, left, "Writes in place")
    return new, deferred, chains.report


def _may_write_own_memory(bsym: BoundSymbol) -> bool:
    if bsym.sym.is_fusion:
        region = form_of(bsym.sym.python_impl)
        return region is not None and bool(region.targets)
    form = in_place_form(bsym)
    if form is not None and form.keeps_layout:
        return True
    return has_out(bsym) and any(map(is_large, bsym.flat_proxy_outs))
