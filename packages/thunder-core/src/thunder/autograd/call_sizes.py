"""The sizes of one call, for a backward that is compiled after the program.

    y = f(x); (g,) = grad(y.sum(), x, create_graph=True); g.norm().backward()

The backward of ``g`` is compiled when it first runs. What that compile asks about sizes the prologue cannot
check any more, so each such backward has facts of its own, and runs for the calls for which they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from thunder.ir.size_facts import FloatFact, SizeFact, SizeFacts
from thunder.ir.symbolic_numbers import SymbolicNumber

__all__ = ["CallSizes", "Variants", "compiled_for", "sizes_reader"]

#: functions that were compiled for one purpose, each with the facts for which it holds
Variants = list[tuple[Sequence[SizeFact | FloatFact], Callable[..., Any]]]


class CallSizes:
    """The values of the symbolic sizes in one call, by their numbers."""

    def __init__(self, facts: SizeFacts, values: dict[int, Any]) -> None:
        self.facts, self.values = facts, values

    def hold(self, facts: Sequence[SizeFact | FloatFact]) -> bool:
        """Return whether facts about sizes hold in the call."""
        return all(fact.holds(self.values.__getitem__) for fact in facts)


def sizes_reader(args: Sequence[Any]) -> Callable[[Sequence[Any]], CallSizes | None]:
    """Return the function from the arguments of a call to its sizes; ``args`` are those of the trace."""
    symbols = [(i, a) for i, a in enumerate(args) if isinstance(a, SymbolicNumber)]
    if not symbols:
        return lambda given: None
    facts = symbols[0][1].facts
    places = [(a.variable, i) for i, a in symbols if a.variable is not None]
    return lambda given: CallSizes(facts, {variable: given[i] for variable, i in places})


def compiled_for(
    variants: Variants, sizes: CallSizes | None, compile_now: Callable[[], Callable[..., Any]]
) -> Callable[..., Any]:
    """Return the variant that serves a call with these sizes; compile one if there is none yet."""
    for facts, function in variants:
        if sizes is None or sizes.hold(facts):
            return function
    if sizes is None:
        variants.append(((), compile_now()))
    else:
        with sizes.facts.later(sizes.values) as noted:
            function = compile_now()
        variants.append((noted, function))
    return variants[-1][1]
