"""The order of calls in which values that are large live shorter.

Note [Late calls]
A backward computes the cotangent of a product's input before that of its weight, and all gradients of a
multiplication at once. What is computed before it is needed takes memory for so long:

    g = torch.mm(c, w)              v = torch.mul(a, b)             alive at once, of this size:
    v = torch.mul(a, b)        →    g_w = torch.mm(c.T, v)          a, b, v, g  →  a, b, v
    g_w = torch.mm(c.T, v)          g = torch.mm(c, w)
    g_a = torch.mul(g, b)           g_a = torch.mul(g, b)

A call moves to the place just before the first one that reads its result, if the most that is alive on the
way becomes less, unless it ends more memory than it allocates, as ``g_w`` does. It only computes, and passes
no call that has an effect, nor a write that may be put in place on what it reads.
"""

from __future__ import annotations

import time
from collections.abc import Sequence, Set

from thunder.ir.effects import has_effect
from thunder.ir.ending_inputs import have_same_elements
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, with_bound_symbols
from thunder.ir.traced_sizes import tensor_bytes
from thunder.ops.reused_memory import operands_of
from thunder.passes.placed_writes.own_memory import is_large
from thunder.passes.placed_writes.program_facts import ProgramFacts
from thunder.passes.placed_writes.raising_calls import Raises, raises

__all__ = ["compute_late"]

#: the most statements that a call may pass
_FARTHEST = 64


def compute_late(
    trace: TraceCtx, deferred: TraceCtx | None = None, saved: Set[str] = frozenset()
) -> TraceCtx:
    """Move calls whose large results are read later, where that lowers the peak of memory: trace → trace.

    See Note [Late calls]. The calls of ``trace`` are claimed; ``deferred`` are the writes that follow it in
    training, ``saved`` the values of a backward that the forward has for it alone. Returns ``trace`` itself
    if nothing moves.
    """
    start = time.perf_counter_ns()
    if not any(is_large(p) for b in trace.bound_symbols for p in b.flat_proxy_outs):
        return trace
    order = _Order(ProgramFacts(trace, deferred, saved))
    if order.facts.is_asynchronous or not order.move_calls():
        return trace
    statements = [trace.bound_symbols[i] for i in order.order]
    return with_bound_symbols(trace, statements, "Late calls", time.perf_counter_ns() - start)


class _Order:
    """The order of a program's statements, by their positions in the program."""

    def __init__(self, facts: ProgramFacts) -> None:
        self.facts = facts
        self.order = list(range(len(facts.statements)))
        #: memory → bytes, of what the program computes or has saved
        self.sizes: dict[str, int] = {}
        for bsym in facts.statements:
            for p in bsym.flat_proxy_outs:
                if isinstance(p, TensorProxy):
                    memory = facts.memory(p)
                    self.sizes[memory] = max(self.sizes.get(memory, 0), tensor_bytes(p))

    def move_calls(self) -> bool:
        """Move calls, last ones first, so that the calls before the current one are as in the program."""
        moved = False
        for i in reversed(range(len(self.order))):
            passed = self._passed(i)
            if not passed:
                continue
            inside = {i, *passed}
            if self._peak([*passed, i], inside) < self._peak([i, *passed], inside):
                self.order[i : i + len(inside)] = [*passed, i]
                moved = True
        return moved

    def _passed(self, i: int) -> list[int]:
        """Return the statements between a call that may move and the first one that reads its results."""
        bsym, statements = self.facts.statements[i], self.facts.statements
        large = any(map(is_large, bsym.flat_proxy_outs))
        if not large or has_effect(bsym) or raises(bsym) > Raises.MEMORY or self._frees(i):
            return []
        results = {p.name for p in bsym.flat_proxy_outs}
        passed: list[int] = []
        for other in self.order[i + 1 : i + 2 + _FARTHEST]:
            if not results.isdisjoint([p.name for p in statements[other].flat_proxy_args]):
                return passed
            if has_effect(statements[other]) or self._may_overwrite(other, self._read(bsym)):
                return []
            passed.append(other)
        return []

    def _may_overwrite(self, i: int, memory: Set[str]) -> bool:
        """Return whether a statement may be put in place on what a call reads: it stays before that."""
        link = self.facts.link(i) if self.facts.copies else None
        return link is not None and not memory.isdisjoint(map(self.facts.memory, link.bases))

    def _frees(self, i: int) -> bool:
        """Return whether a statement ends more memory than it allocates; only later ones may have moved."""
        bsym, facts = self.facts.statements[i], self.facts
        allocated = sum(self.sizes[m] for m in self._computed(bsym))
        ended = (m for m in self._read(bsym) - facts.returned if max(facts.readers_of(m), default=-1) == i)
        return sum(self.sizes.get(m, 0) for m in ended) > allocated

    def _peak(self, sequence: Sequence[int], inside: Set[int]) -> int:
        """Return the most bytes that are alive during a part of the program, without what always is."""
        facts, first = self.facts, min(inside)
        last: dict[str, int] = {}  # memory that ends in this part → the last statement that reads it
        for i in sequence:
            for memory in self._read(facts.statements[i]):
                if memory not in facts.returned and all(
                    r < first or r in inside for r in facts.readers_of(memory)
                ):
                    last[memory] = i
        computed = {m: i for i in sequence for m in self._computed(facts.statements[i])}
        live = peak = sum(self.sizes.get(m, 0) for m in last if m not in computed)
        for i in sequence:
            live += sum(self.sizes[m] for m, by in computed.items() if by == i)
            peak = max(peak, live - self._reused(facts.statements[i], {m for m in last if last[m] == i}))
            live -= sum(self.sizes.get(m, 0) for m, by in last.items() if by == i)
        return peak

    def _read(self, bsym: BoundSymbol) -> Set[str]:
        return {self.facts.memory(p) for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)}

    def _computed(self, bsym: BoundSymbol) -> Set[str]:
        """Return the memory that a statement allocates: not that of a view."""
        outs = {self.facts.memory(p) for p in bsym.flat_proxy_outs if isinstance(p, TensorProxy)}
        return outs - self._read(bsym)

    def _reused(self, bsym: BoundSymbol, ending: Set[str]) -> int:
        """Return the bytes of an operand in whose memory a call can compute its result."""
        for _, operand in operands_of(bsym):
            if self.facts.memory(operand) in ending and have_same_elements(operand, bsym.output):
                return tensor_bytes(operand) if self.facts.is_private(operand) else 0
        return 0
