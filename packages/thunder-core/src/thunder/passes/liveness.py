"""Liveness of statements: they have an effect, or compute a value that is read later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto

from thunder.base.structural_ids import RELEASES
from thunder.ir.effects import has_effect
from thunder.ir.symbol import BoundSymbol

__all__ = ["Liveness", "liveness_of"]


class Liveness(Enum):
    """The liveness of one statement."""

    LIVE = auto()  # it has an effect, or a live statement reads its output
    ROOT = auto()  # the caller keeps it, although it has no effect and no reader
    DEAD = auto()
    RELEASE = auto()  # a ``del``, which does not make its operands live


def _no_root(bsym: BoundSymbol) -> bool:
    return False


def liveness_of(
    bsyms: Sequence[BoundSymbol],
    needed: Iterable[str] = (),
    is_root: Callable[[BoundSymbol], bool] = _no_root,
) -> list[Liveness]:
    """Return the liveness of each statement.

    ``needed`` are names that are read after the last statement. A statement that would be dead is a root if
    ``is_root`` returns True for it; its operands are live. Backward scan over straight-line code (Aho et al.,
    Compilers, 2nd ed., 9.2.5).
    """
    read = set(needed)
    result = []
    for bsym in reversed(bsyms):
        if bsym.sym.id in RELEASES:
            result.append(Liveness.RELEASE)
            continue
        if not read.isdisjoint([p.name for p in bsym.flat_proxy_outs]) or has_effect(bsym):
            result.append(Liveness.LIVE)
        elif is_root(bsym):
            result.append(Liveness.ROOT)
        else:
            result.append(Liveness.DEAD)
            continue
        read.update([p.name for p in bsym.flat_proxy_args])
    result.reverse()
    return result
