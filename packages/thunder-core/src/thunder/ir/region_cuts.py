"""Cuts of long regions, so that equal parts of a program are equal regions.

    32 layers, whose products are in regions: one region → 18 regions, of which all but two are equal

The time that a compiler takes for a region grows with its calls, and equal regions are compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from thunder.ir.symbol import BoundSymbol

__all__ = ["Cuts", "parts_of"]


@dataclass(frozen=True)
class Cuts:
    """The places at which a region is cut.

    Attributes:
        after: returns whether a region may be cut after a call, such as one that is a kernel of its own.
        calls: the fewest calls of the part that repeats itself.
        values: the most values that a part passes to later ones.
        repeats: how often, at least, that part is there.
    """

    after: Callable[[BoundSymbol], bool]
    calls: int
    values: int
    repeats: int


def parts_of(calls: Sequence[BoundSymbol], cuts: Cuts) -> list[Sequence[BoundSymbol]]:
    """Return the calls of a region, in program order, as its parts.

    One part has the same operators several times in a row; the calls before the first and after the last are
    parts too. A region without such a part is whole.
    """
    places = _places(calls, cuts)
    operators = [call.sym.id for call in calls]
    for start in places:
        for end in places:
            length = end - start
            if length >= cuts.calls and start + cuts.repeats * length <= len(calls):
                count = _repetitions(operators, start, length)
                ends = [start + length * n for n in range(count + 1)]
                if count >= cuts.repeats and places.keys() >= {*ends[:-1]}:
                    return [calls[a:b] for a, b in pairwise([0, *ends, len(calls)]) if a < b]
    return [calls]


def _places(calls: Sequence[BoundSymbol], cuts: Cuts) -> dict[int, None]:
    """Return the numbers of calls after which a region may be cut, in ascending order."""
    last_reader = {p.name: i for i, call in enumerate(calls) for p in call.flat_proxy_args}
    crossing: set[str] = set()
    places: dict[int, None] = {}
    for i, call in enumerate(calls):
        crossing = {name for name in crossing if last_reader[name] > i}
        crossing.update(p.name for p in call.flat_proxy_outs if last_reader.get(p.name, -1) > i)
        if len(crossing) <= cuts.values and cuts.after(call):
            places[i + 1] = None
    return places


def _repetitions(operators: Sequence[object], start: int, length: int) -> int:
    """Return how often, at least once, the operators of a part are there in a row."""
    end = start + length
    while end < len(operators) and operators[end] == operators[end - length]:
        end += 1
    return (end - start) // length
