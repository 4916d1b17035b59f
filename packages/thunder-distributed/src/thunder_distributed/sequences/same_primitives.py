"""Whether two lists of calls consist of the same primitives, of the same values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from thunder.core.proxies import TensorProxy
from thunder.core.pytree import tree_flatten_with_dataclass
from thunder.core.symbol import BoundSymbol

from .parts import take_part, use_in_parts

__all__ = ["are_equal"]

#: the operators that give operands their form, before a composite is called
CONVERSIONS: Final = frozenset({take_part.id, use_in_parts.id})


def are_equal(
    expected: list[BoundSymbol],
    recorded: list[BoundSymbol],
    inner: Mapping[str, set[str]],
    arguments: Mapping[str, Any],
) -> bool:
    """Return whether two lists of calls are the same primitives of the same values."""
    names: dict[str, str] = {
        name: arguments[operand].name for operand, others in inner.items() for name in others
    }
    left = [b for b in _primitives(expected) if b.sym.id not in CONVERSIONS]
    right = list(_primitives(recorded))
    if len(left) != len(right):
        return False
    for a, b in zip(left, right, strict=True):
        if a.sym.id != b.sym.id:
            return False
        ours, spec = tree_flatten_with_dataclass((a.args, a.kwargs))
        theirs, other = tree_flatten_with_dataclass((b.args, b.kwargs))
        if spec != other or not all(
            names.get(x.name) == y.name
            if isinstance(x, TensorProxy) and isinstance(y, TensorProxy)
            else type(x) is type(y) and repr(x) == repr(y)
            for x, y in zip(ours, theirs, strict=True)
        ):
            return False
        if len(a.flat_proxy_outs) != len(b.flat_proxy_outs):
            return False
        names |= {x.name: y.name for x, y in zip(a.flat_proxy_outs, b.flat_proxy_outs, strict=True)}
    return True


def _primitives(bsyms: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    for bsym in bsyms:
        if bsym.subsymbols and bsym.sym.id not in CONVERSIONS:
            yield from _primitives(bsym.subsymbols)
        else:
            yield bsym
