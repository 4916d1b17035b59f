"""Effects of bound symbols, which decide whether they may be dropped, merged or reordered."""

from __future__ import annotations

from thunder.base.structural_ids import STRUCTURAL
from thunder.base.tags import VIEW_TAGS, OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol, has_tags

#: writes its first argument to its second
COPY = "prims.copy_"

#: Tags of calls that run even if their outputs are unused. Random operators are among them: eager draws their
#: numbers, and dropping one would change every number drawn later.
KEPT = frozenset({OpTags.DONT_DCE, OpTags.RANDOM_OP, OpTags.IN_PLACE, OpTags.CTX_MANAGER_ENTER_EXIT_OP})

#: Tags of calls that change the meaning of later calls: equal expressions before and after one may differ.
BARRIERS = frozenset({OpTags.IN_PLACE, OpTags.CTX_MANAGER_ENTER_EXIT_OP})

#: Tags of calls that may return the memory of an argument.
_MAY_ALIAS = VIEW_TAGS | {OpTags.SHAPE_OP, OpTags.IN_PLACE}


def has_effect(bsym: BoundSymbol) -> bool:
    """Return whether the call, or a part of it, must run even if its outputs are unused."""
    return not KEPT.isdisjoint(bsym.all_tags)


def is_ordered(bsym: BoundSymbol) -> bool:
    """Return whether the call has an effect that depends on the order of calls.

    Such effects are random numbers, writes and printed lines.
    """
    return bsym.sym.id not in STRUCTURAL and has_effect(bsym)


def is_barrier(bsym: BoundSymbol) -> bool:
    """Return whether equal expressions before and after the call may differ."""
    return not BARRIERS.isdisjoint(bsym.all_tags)


def may_alias(bsym: BoundSymbol) -> bool:
    """Return whether an output may share memory with an argument.

    An executor's own operator may do so without a tag.
    """
    if bsym.sym.executor is not None or (not bsym.sym.is_prim and not bsym.subsymbols):
        return True
    return has_tags(bsym, _MAY_ALIAS)


def written_tensors(bsym: BoundSymbol) -> list[TensorProxy]:
    """Return the arguments to which a call may write."""
    if not has_tags(bsym, {OpTags.IN_PLACE}):
        return []
    bases = getattr(bsym.sym.python_impl, "bases", None)  # of in-place forms
    if bases is not None:
        arguments = bases(bsym.args, bsym.kwargs)
    else:
        arguments = bsym.args[1:2] if bsym.sym.id == COPY else bsym.flat_proxy_args
    return [p for p in arguments if isinstance(p, TensorProxy)]
