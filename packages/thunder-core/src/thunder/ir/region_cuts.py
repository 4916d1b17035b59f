"""Cuts of long regions, so that equal parts of a program are equal regions.

    32 layers, whose products are in regions: one region → 16 regions, of which most are equal

The time that a compiler takes for a region grows with its calls, and equal regions are compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol

__all__ = ["Cuts", "parts_of"]


@dataclass(frozen=True)
class Cuts:
    """The places at which a region is cut.

    Attributes:
        after: returns whether a region may be cut after a call, such as one that is a kernel of its own.
        calls: the fewest calls of a part.
        values: the most values that a part passes to later ones.
    """

    after: Callable[[BoundSymbol], bool]
    calls: int
    values: int


def parts_of(calls: Sequence[BoundSymbol], cuts: Cuts) -> list[list[BoundSymbol]]:
    """Return the calls of a region, in program order, as its parts.

    All cuts are after calls of one operator, whose results have the same shapes and readers, so that a
    program that repeats itself has equal parts.
    """
    last_reader = {p.name: i for i, call in enumerate(calls) for p in call.flat_proxy_args}
    readers = _readers(calls)
    parts: list[list[BoundSymbol]] = [[]]
    crossing: set[str] = set()
    place: object = None
    for i, call in enumerate(calls):
        parts[-1].append(call)
        crossing = {name for name in crossing if last_reader[name] > i}
        crossing.update(p.name for p in call.flat_proxy_outs if last_reader.get(p.name, -1) > i)
        long_enough = min(len(parts[-1]), len(calls) - i - 1) >= cuts.calls
        if long_enough and len(crossing) <= cuts.values and cuts.after(call):
            here = _place(call, readers)
            place = here if place is None else place
            if here == place:
                parts.append([])
    return parts


def _readers(calls: Sequence[BoundSymbol]) -> dict[str, list[Any]]:
    """Return the operators that read each value."""
    readers: dict[str, list[Any]] = {}
    for call in calls:
        for p in call.flat_proxy_args:
            readers.setdefault(p.name, []).append(call.sym.id)
    return readers


def _place(call: BoundSymbol, readers: dict[str, list[Any]]) -> object:
    """Return what is equal for calls at equal places of a program's parts."""
    tensors = [p for p in call.flat_proxy_outs if isinstance(p, TensorProxy)]
    return call.sym.id, [(p.shape, readers.get(p.name)) for p in tensors]
