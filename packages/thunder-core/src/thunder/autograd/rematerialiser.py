"""Values of a forward that a backward computes again, just before their first use or in an order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from thunder.autograd.residuals import ForwardGraph, computed_by
from thunder.ir.effects import has_effect
from thunder.ir.proxies import Variable, is_proxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.substitution import substitute, substitute_operands
from thunder.ir.symbol import BoundSymbol, with_parts
from thunder.ir.trace import AGAIN, TraceCtx

__all__ = ["Rematerialiser", "live_calls"]


def live_calls(bsyms: Sequence[BoundSymbol], results: Iterable[Any]) -> list[BoundSymbol]:
    """Return the calls that the results depend on, and those that have an effect."""
    needed, live = {p.name for p in results}, []
    for bsym in reversed(bsyms):
        if has_effect(bsym) or not needed.isdisjoint([p.name for p in bsym.flat_proxy_outs]):
            needed.update([p.name for p in bsym.flat_proxy_args])
            live.append(bsym)
    live.reverse()
    return live


class Rematerialiser:
    """Records, in a backward, the calls that compute unsaved values again.

    ``available`` are the values of the forward that need not be computed, with their names in ``trace``, and
    ``taken`` the names that values there may not have. The calls get the tags ``tags``.
    """

    def __init__(
        self,
        trace: TraceCtx,
        graph: ForwardGraph,
        available: dict[Variable, Any],
        taken: set[str],
        tags: Iterable[Any] = (),
    ) -> None:
        self.trace, self.graph, self.tags = trace, graph, frozenset(tags)
        self.available, self.taken = available, taken

    def with_arguments(self, bsym: BoundSymbol) -> BoundSymbol:
        """Return the call with available arguments, after the calls that compute missing ones."""
        values = {p.name: value for p in bsym.flat_proxy_args if (value := self.value(p)) is not p}
        return substitute_operands(bsym, values)

    def value(self, p: Any) -> Any:
        """Return a value of the forward under its name in the backward; other values as they are."""
        if not is_proxy(p) or p.name not in self.graph.values:
            return p
        if Variable(p) not in self.available:
            self._compute_again(self.graph.producer[p.name], keeps_saved=True)
        return self.available[Variable(p)]

    def record_in_order(
        self, order: Sequence[BoundSymbol], backward_part: Sequence[BoundSymbol], gradients: Any
    ) -> None:
        """Record calls in an order, which has those of the forward that compute values again.

        A value that is computed again takes the place of the earlier one.
        """
        dependent = {id(bsym) for bsym in backward_part}
        calls: list[BoundSymbol] = []
        with self.trace.recording_into(calls):
            for bsym in order:
                if id(bsym) in dependent:
                    self.trace.record(self.with_arguments(bsym))
                elif any(id(bsym) == id(self.graph.producer.get(p.name)) for p in computed_by(bsym)):
                    self._compute_again(bsym, keeps_saved=False)
        results = [self.value(g) for g in proxies_in(gradients)]
        for bsym in live_calls(calls, results):
            self.trace.record(bsym)

    def _compute_again(self, producer: BoundSymbol, *, keeps_saved: bool) -> None:
        """Record a call of the forward again; with ``keeps_saved`` its saved results keep their names."""
        call, computed = self.with_arguments(producer), {p.name for p in computed_by(producer)}
        names = {
            p.name: self._renamed(p) if p.name in computed else self.value(p) for p in call.flat_proxy_outs
        }
        arguments = {p.name for p in call.flat_proxy_args}
        inside = {p.name: p for part in with_parts(call.subsymbols) for p in part.flat_proxy_outs}
        inside = {name: p for name, p in inside.items() if name not in names and name not in arguments}
        renamed = names | {name: self._renamed(p) for name, p in inside.items()}
        self.taken |= renamed.keys()  # a second copy needs other names
        for p in call.flat_proxy_outs:
            if not (keeps_saved and Variable(p) in self.available):
                self.available[Variable(p)] = names[p.name]
        again = substitute(call, {old: p for old, p in renamed.items() if p.name != old})
        self.trace.record(again.from_bsym(tags=again.own_tags | self.tags) if self.tags else again)

    def _renamed(self, p: Any) -> Any:
        if p.name not in self.taken:
            return p
        return p.replace_name(f"{AGAIN}{p.name}", disambiguate=True)
