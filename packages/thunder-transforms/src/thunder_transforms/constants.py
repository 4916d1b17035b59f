"""Which calls of a program depend on constants alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from thunder.core.symbol import BoundSymbol, gather_tags
from thunder.core.tags import OpTags

__all__ = ["NOT_OF_VALUES", "constant_calls", "is_of_torch", "needed_for"]

#: tags of calls of which the values of their arguments do not determine the values of the results
NOT_OF_VALUES = frozenset(
    {
        OpTags.DONT_DCE,
        OpTags.RANDOM_OP,
        OpTags.IN_PLACE,
        OpTags.CTX_MANAGER_ENTER_EXIT_OP,
        OpTags.FALLBACK,
        OpTags.UNINITIALIZED,
    }
)
_UNDETERMINED = NOT_OF_VALUES | {OpTags.DEVICE_SYNC_OP}


def constant_calls(
    calls: Sequence[BoundSymbol],
    constants: Iterable[str],
    is_kept: Callable[[Any], bool],
    may_be_constant: Callable[[BoundSymbol], bool] = lambda bsym: True,
) -> list[BoundSymbol]:
    """Return the calls that depend on constants alone, in order.

    `constants` are the names of values that are constants. `may_be_constant(bsym)` leaves calls out,
    `is_kept(proxy)` those with a result that is not to be a constant.
    """
    names, found = set(constants), []
    for bsym in calls:
        outputs = bsym.flat_proxy_outs
        if (
            bool(outputs)
            and all(p.name in names for p in bsym.flat_proxy_args)
            and all(map(is_kept, outputs))
            and gather_tags(bsym).isdisjoint(_UNDETERMINED)
            and may_be_constant(bsym)
        ):
            names.update(p.name for p in outputs)
            found.append(bsym)
    return found


def is_of_torch(bsym: BoundSymbol) -> bool:
    """Return whether the operator of a call is torch's, or a primitive, and none of a package."""
    return str(bsym.sym.id).startswith(("torch.", "prims."))


def needed_for(calls: Sequence[BoundSymbol], values: Iterable[Any]) -> list[BoundSymbol]:
    """Return those of the calls on which values depend, in order."""
    names, needed = {p.name for p in values}, []
    for bsym in reversed(calls):
        if not names.isdisjoint(p.name for p in bsym.flat_proxy_outs):
            names.update(p.name for p in bsym.flat_proxy_args)
            needed.append(bsym)
    return needed[::-1]
