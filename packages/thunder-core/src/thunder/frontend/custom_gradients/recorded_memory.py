"""The memory of values in the recorded part of a program: which values share it, which are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from thunder.ir.effects import may_alias
from thunder.ir.symbol import BoundSymbol, with_parts
from thunder.ops import prims


def names_of_memory(calls: Sequence[BoundSymbol], names: Set[str]) -> set[str]:
    """Return the names of the values that may share memory with these."""
    sharing, size = set(names), 0
    while size != len(sharing):
        size = len(sharing)
        for bsym in calls:
            if may_alias(bsym):
                ends = {p.name for p in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs)}
                sharing |= ends if not ends.isdisjoint(sharing) else set()
    return sharing


def written_names(bsym: BoundSymbol) -> Iterator[str]:
    """Return the names of the values that a call writes to."""
    return (b.args[1].name for b in with_parts((bsym,)) if b.sym is prims.copy_)
