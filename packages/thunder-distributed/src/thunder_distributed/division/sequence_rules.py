"""The rules of what context parallelism has put into a program: its processes are those of another group.

A value may be a part of a sequence, for one group, and be divided along another dimension, for a second one.
"""

from __future__ import annotations

from typing import Any, Final

from thunder.core.symbol import BoundSymbol

from ..sequences.parts import collect_parts, gather_parts, sum_parts, take_part, use_in_parts
from ..sequences.ring_attention import ring_attention
from .layers import part_of_mask
from .values import Computation, Rule, Values

__all__ = ["SEQUENCES"]


def _each_element(bsym: BoundSymbol, values: Values) -> Computation | None:
    """Compute elements from those at the same place in all processes of the other group."""
    x, *rest = bsym.args
    division = values.division(x)
    return None if division is None else lambda: [(bsym.sym(values.value(x), *rest), division)]


def _sequence(bsym: BoundSymbol, values: Values) -> Computation | None:
    """Take or join parts of a sequence that is along another dimension than the divided one."""
    x, group, arrangement, dim, *rest = bsym.args
    division = values.division(x)
    if division is None or division.dim == dim:
        return None
    return lambda: [(bsym.sym(values.value(x), group, arrangement, dim, *rest), division)]


def _ring(bsym: BoundSymbol, values: Values) -> Computation | None:
    """Attend in the batches or heads that this process has: their keys and values go around."""
    query, key, value, mask, *rest = bsym.args
    divisions = [values.division(p) for p in (query, key, value)]
    division = divisions[0]
    if division is None or divisions != [division] * 3 or division.dim >= query.ndim - 2:
        return None
    if not all(other is not None and other.is_even for other in divisions):
        return None

    def compute() -> list[Any]:
        parts = (values.value(p) for p in (query, key, value))
        masked = part_of_mask(mask, query, division, values)
        out, lse = bsym.sym(*parts, masked, *rest)
        return [(out, division), (lse, division)]

    return compute


SEQUENCES: Final[dict[Any, Rule]] = {
    use_in_parts.id: _each_element,
    sum_parts.id: _each_element,
    take_part.id: _sequence,
    gather_parts.id: _sequence,
    collect_parts.id: _sequence,
    ring_attention.id: _ring,
}
