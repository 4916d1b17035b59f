"""Which bound symbols do more than compute their outputs, and so may not be dropped, merged or moved past
each other.
"""

from __future__ import annotations

from collections.abc import Iterable

from thunder.base.structural_ids import STRUCTURAL
from thunder.base.tags import OpTags
from thunder.ir.symbol import BoundSymbol

#: What runs even if nobody reads its outputs. A random operator is one of them: eager would have drawn its
#: numbers, so dropping it would change every number drawn later.
KEPT = frozenset({OpTags.DONT_DCE, OpTags.RANDOM_OP, OpTags.IN_PLACE, OpTags.CTX_MANAGER_ENTER_EXIT_OP})

#: What changes the meaning of what comes after it: an equal expression before it and one behind it may
#: differ.
BARRIERS = frozenset({OpTags.IN_PLACE, OpTags.CTX_MANAGER_ENTER_EXIT_OP})

#: What may return the memory of an argument.
VIEWS = frozenset({OpTags.VIEW, OpTags.MAYBE_VIEW, OpTags.SHAPE_OP, OpTags.IN_PLACE})


def has_effect(bsym: BoundSymbol) -> bool:
    """Whether the call, or a call that it decomposes into, must run though nobody reads its outputs."""
    return _any_tagged((bsym,), KEPT)


def is_ordered(bsym: BoundSymbol) -> bool:
    """Whether the call has an effect that the order of calls decides: a random number, a write, a printed
    line.
    """
    return bsym.sym.id not in STRUCTURAL and has_effect(bsym)


def is_barrier(bsym: BoundSymbol) -> bool:
    """Whether expressions before and behind the call may not be taken for one another."""
    return _any_tagged((bsym,), BARRIERS)


def may_alias(bsym: BoundSymbol) -> bool:
    """Whether an output may share memory with an argument. An executor's own operator may do so without
    saying.
    """
    if bsym.sym.executor is not None or (not bsym.sym.is_prim and not bsym.subsymbols):
        return True
    return _any_tagged((bsym,), VIEWS)


def _any_tagged(bsyms: Iterable[BoundSymbol], tags: frozenset[OpTags]) -> bool:
    return any(
        not b.tags.isdisjoint(tags) or (bool(b.subsymbols) and _any_tagged(b.subsymbols, tags)) for b in bsyms
    )
