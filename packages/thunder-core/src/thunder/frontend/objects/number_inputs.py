"""Numbers that a program reads and writes, such as counters, as inputs of its computation.

Note [Numbers that vary]
A number is a fact, so that a program that counts its calls would be compiled in each. Where a fact about a
number has failed which the program writes, the next compile has the number as an input:

    def forward(self, x):             1:  prologue: self.calls is 0
        self.calls += 1                   epilogue: self.calls = 1
        return self.layer(x)          2:  prologue: type(self.calls) is int
                                          computation: n1 = n_calls + 1; epilogue: self.calls = n1

The length of a list of which a program reads no items is such a number too, ``len(self.losses)``. A
comparison of such a number is a decision. Where the program needs its value, as a size or a key, or is
refused because the number is not known, the number stays a fact.

Under ``cache="automatic"`` an integer is a symbol first (Note [Sizes that vary]), which may be a size and
whose comparisons are facts; it is such an input where the program fixes the symbol.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from thunder.base.provenance import Path
from thunder.ir.proxies import NumberProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ops import prims

__all__ = ["needed_values", "number_inputs"]

#: questions whose answers are values of numbers
_OF_VALUES = frozenset({"value", "index", "int", "float", "complex"})


def number_inputs(inputs: Iterable[tuple[Any, Path]]) -> dict[str, str]:
    """Return the sources of the numbers among inputs, by the names of their proxies."""
    return {
        proxy.name: _source(path)
        for proxy, path in inputs
        if isinstance(proxy, NumberProxy) and not isinstance(proxy, SymbolicNumber)
    }


def _source(path: Path) -> str:
    """Return the source of a number; a length has that of its list, as the fact about it."""
    return path.parent.source if path.kind == "length" and path.parent is not None else path.source


def needed_values(inputs: Iterable[tuple[Any, Path]], calls: Iterable[BoundSymbol]) -> frozenset[str]:
    """Return the sources of the numbers on whose values a program decides."""
    origins = {name: {source} for name, source in number_inputs(inputs).items()}
    needed: set[str] = set()
    for bsym in calls:
        read = set().union(*[origins[p.name] for p in bsym.flat_proxy_args if p.name in origins])
        if bsym.sym is prims.compute_number and read:
            origins |= {p.name: read for p in bsym.flat_proxy_outs}
        elif bsym.sym is prims.check_decision and bsym.kwargs["question"] in _OF_VALUES:
            needed |= read
    return frozenset(needed)
