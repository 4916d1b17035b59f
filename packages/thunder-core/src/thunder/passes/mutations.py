"""The writes of a program: which calls contain one, and the program with each of them alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.base.tags import OpTags
from thunder.ir.symbol import BoundSymbol, BoundSymbolTag, with_parts

__all__ = ["COPY", "flattened", "primitives", "writes", "writing_operators"]

COPY = "prims.copy_"

#: tags that say in what region of the program a call is
_OF_REGIONS = frozenset({BoundSymbolTag.RECOMPUTE_IN_BACKWARD, OpTags.DONT_RECOMPUTE_IN_BACKWARD})


def writes(bsym: BoundSymbol) -> bool:
    """Whether the call, or one that it decomposes into, writes in place."""
    return OpTags.IN_PLACE in bsym.tags or any(map(writes, bsym.subsymbols))


def flattened(
    bsyms: Iterable[BoundSymbol], source: Any = None, tags: frozenset[Any] = frozenset()
) -> Iterator[BoundSymbol]:
    """The program in which every write stands alone: calls that contain one are replaced by what they
    decompose into, with their line and the ``tags`` of the region that they are in.
    """
    for bsym in bsyms:
        if (bsym.source is None and source is not None) or tags:
            bsym = bsym.from_bsym(source=bsym.source or source, tags=bsym.tags | tags)
        if bsym.sym.id == COPY or not writes(bsym):
            yield bsym
        elif bsym.subsymbols:
            yield from flattened(bsym.subsymbols, bsym.source, bsym.tags & _OF_REGIONS)
        else:
            raise UnsupportedProgram(f"{bsym.sym.name} writes in place, and does not say what").add_locations(
                bsym.locations
            )


def primitives(bsyms: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    """The calls that the program comes down to."""
    for bsym in bsyms:
        if bsym.subsymbols:
            yield from primitives(bsym.subsymbols)
        else:
            yield bsym


def writing_operators(bsyms: Iterable[BoundSymbol]) -> dict[tuple[str, str], BoundSymbol]:
    """Map (value, target) of each write that is a part of an operator to the call of that operator."""
    found: dict[tuple[str, str], BoundSymbol] = {}
    for call in with_parts(bsyms):
        found |= {(b.args[0].name, b.args[1].name): call for b in call.subsymbols if b.sym.id == COPY}
    return found
