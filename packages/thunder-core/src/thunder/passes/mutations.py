"""In-place writes of a program: the calls that contain one, each write as a statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.base.tags import OpTags
from thunder.ir.effects import COPY
from thunder.ir.symbol import BoundSymbol, BoundSymbolTag, with_parts

__all__ = ["COPY", "flattened", "primitives", "writes", "writing_operators"]

#: tags of the region of the program that a call is in
_REGION_TAGS = frozenset({BoundSymbolTag.RECOMPUTE_IN_BACKWARD, OpTags.DONT_RECOMPUTE_IN_BACKWARD})


def writes(bsym: BoundSymbol) -> bool:
    """Return whether the call, or one that it decomposes into, writes in place."""
    return OpTags.IN_PLACE in bsym.all_tags


def flattened(
    bsyms: Iterable[BoundSymbol], source: Any = None, tags: frozenset[Any] = frozenset()
) -> Iterator[BoundSymbol]:
    """Yield the program with each write as a statement.

    Calls that contain a write are replaced by their decomposition, which gets their line and the ``tags`` of
    their region. Raises UnsupportedProgram for an in-place operator without a decomposition.
    """
    for bsym in bsyms:
        if (bsym.source is None and source is not None) or tags:
            bsym = bsym.from_bsym(source=bsym.source or source, tags=bsym.own_tags | tags)
        if bsym.sym.id == COPY or not writes(bsym):
            yield bsym
        elif bsym.subsymbols:
            yield from flattened(bsym.subsymbols, bsym.source, bsym.tags & _REGION_TAGS)
        else:
            raise UnsupportedProgram(
                f"{bsym.sym.name} writes in place, and has no decomposition"
            ).add_locations(bsym.locations)


def primitives(bsyms: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    """Yield the primitives that the program decomposes into."""
    for bsym in bsyms:
        if bsym.subsymbols:
            yield from primitives(bsym.subsymbols)
        else:
            yield bsym


def writing_operators(bsyms: Iterable[BoundSymbol]) -> dict[tuple[str, str], BoundSymbol]:
    """Map (value, target) of each write inside an operator to the call of that operator."""
    operator_of: dict[tuple[str, str], BoundSymbol] = {}
    for call in with_parts(bsyms):
        operator_of |= {(b.args[0].name, b.args[1].name): call for b in call.subsymbols if b.sym.id == COPY}
    return operator_of
