"""How a primitive is declared: one call makes its row, its symbol and its id in ``PrimIDs``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from thunder.ir.symbol import Symbol
from thunder.ops.operator import GradientDeclaration, Operator, register

__all__ = ["PrimIDs", "primitive"]


class _Ids(type):
    def __getattr__(cls, name: str) -> str:
        raise AttributeError(f"there is no primitive with the id {name!r}")


class PrimIDs(metaclass=_Ids):
    """The ids of primitives: ``PrimIDs.ADD`` is the id of ``prims.add``. Each declaration adds one."""


def primitive(
    name: str,
    meta: Callable[..., Any],
    *,
    eager: Callable[..., Any] | None = None,
    eager_path: str | None = None,
    tags: Iterable[Any] = (),
    vjp: GradientDeclaration = None,
    short_id: str | None = None,
    **row: Any,
) -> Symbol:
    """Declares ``prims.<name>`` and returns its symbol.

    ``eager`` computes it on tensors; ``eager_path`` is the torch path that means the same, if there is one.
    ``short_id`` is its name in ``PrimIDs`` where that is not the name in upper case (``SLICE`` for
    ``slice_prim``).
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
        )
    )
    setattr(PrimIDs, short_id or name.upper(), symbol.id)
    return symbol
