"""Decisions on values that a program makes in each call: a ``uuid4()``, draws of generators without a seed.

Where such a call begins again, it has the same values (:mod:`thunder.base.opaque_results`); Python, which
would make others, does not run it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from thunder.base.tags import OpTags
from thunder.frontend.host_draws.draw_statements import HostDraw, NewGenerator
from thunder.ir.effects import has_effect
from thunder.ir.symbol import BoundSymbol, has_tags
from thunder.ops import prims

__all__ = ["decides_on_made", "has_other_effects"]

#: what finds a size, which is checked
_SIZES = frozenset({prims.as_size.id, prims.as_sizes.id})


def decides_on_made(calls: Iterable[BoundSymbol]) -> bool:
    """Return whether calls of a program check a decision or a size that depends on a value they make."""
    return any(has_tags(b, {OpTags.CHECKS_DECISION}) or b.sym.id in _SIZES for b in _dependent(calls))


def has_other_effects(calls: Iterable[BoundSymbol]) -> bool:
    """Return whether calls of a program have effects beside making such values and deciding."""
    calls = list(calls)
    made = set(map(id, _dependent(calls)))
    return any(
        has_effect(b) and id(b) not in made and not has_tags(b, {OpTags.CHECKS_DECISION}) for b in calls
    )


def _dependent(calls: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    """Yield the calls that make values, and those that depend on these."""
    names, generators = set[str](), set[int]()
    for bsym in calls:
        draw = bsym.args[0] if bsym.args else None
        if isinstance(draw, NewGenerator):
            generators.add(id(draw.generator))
        draws = isinstance(draw, HostDraw) and id(draw.generator) in generators
        makes = draws or bsym.sym.id == prims.make_value.id
        if makes or any(p.name in names for p in bsym.flat_proxy_args):
            names |= {p.name for p in bsym.flat_proxy_outs}
            yield bsym
