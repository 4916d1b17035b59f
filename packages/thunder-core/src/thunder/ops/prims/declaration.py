"""The declaration of primitives: one call adds row, symbol and id."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from thunder.base.tags import OpTags
from thunder.ir.symbol import Symbol
from thunder.ops.operator import GradientDeclaration, Operator, register

__all__ = ["OpTags", "PrimIDs", "composite", "primitive"]


class _Ids(type):
    def __getattr__(cls, name: str) -> str:
        raise AttributeError(f"there is no primitive with the id {name!r}")


class PrimIDs(metaclass=_Ids):
    """The ids of primitives, one for each declaration: ``PrimIDs.ADD`` for ``prims.add``."""


def primitive(
    name: str,
    meta: Callable[..., Any],
    *,
    eager: Callable[..., Any] | None = None,
    eager_path: str | None = None,
    tags: Iterable[Any] = (),
    vjp: GradientDeclaration = None,
    short_id: str | None = None,
    make_symbol: Callable[..., Symbol] = Symbol,
    **row: Any,
) -> Symbol:
    """Declare ``prims.<name>`` and return its symbol.

    ``eager`` computes it on tensors; ``eager_path`` is the path of an equal function of torch, if there is
    one. ``short_id`` is its name in ``PrimIDs`` where that is not the name in upper case (``SLICE`` for
    ``slice_prim``). ``make_symbol`` constructs the symbol. Other keywords are fields of
    :class:`~thunder.ops.operator.Operator`.
    """
    symbol = register(
        Operator(
            id=f"prims.{name}",
            meta=meta,
            eager=eager,
            eager_path=eager_path,
            tags=frozenset(tags),
            vjp=vjp,
            module="prims",
            **row,
        ),
        make_symbol=make_symbol,
    )
    setattr(PrimIDs, short_id or name.upper(), symbol.id)
    return symbol


def composite(name: str, decomposition: Callable[..., Any], **row: Any) -> Symbol:
    """Declare ``prims.<name>``, which calls primitives, and return its symbol.

    Other keywords are fields of :class:`~thunder.ops.operator.Operator`.
    """
    symbol = register(Operator(id=f"prims.{name}", decomposition=decomposition, module="prims", **row))
    setattr(PrimIDs, name.upper(), symbol.id)
    return symbol
