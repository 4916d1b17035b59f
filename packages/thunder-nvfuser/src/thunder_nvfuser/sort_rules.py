"""Rules of primitives that order elements: sorts, the largest ones, running maxima."""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder.core.symbol import BoundSymbol

from .translation import RULES, Translation, rule

__all__ = ["RUNNING", "SORTS"]

SORTS: Final = ("sort", "topk")
RUNNING: Final = ("cummax", "cummin")


@rule("sort")
def _sort(t: Translation, call: BoundSymbol) -> None:
    """Gather the elements by the indices that sort them."""
    a, dim, descending, stable = call.args
    values, indices = call.output
    order = t.ops.argsort(t.value(a), dim, descending, stable)
    t.set(indices, order)
    t.set(values, t.ops.take_along_axis(t.value(a), order, dim))


@rule("topk")
def _topk(t: Translation, call: BoundSymbol) -> None:
    a, k, dim, largest, is_sorted = call.args
    for proxy, value in zip(
        call.output, t.ops.topk(t.value(a), t.value(k), dim, largest, is_sorted), strict=True
    ):
        t.set(proxy, value)


def _running(t: Translation, call: BoundSymbol) -> None:
    """Add running maxima or minima, and the place of each: the last one that reached it, or a later NaN.

    nvFuser has the values alone. A place counts where the element is the value up to there:

        indices = cummax(where((a == values) | isnan(a), places, 0))
    """
    a, dim = call.args
    values, indices = call.output
    wide = t.wide(a)
    extremes = getattr(t.ops, call.sym.name)(wide, dim)
    t.set_wide(values, extremes)
    t.set(indices, t.ops.cummax(_places(t, a, wide, extremes, dim), dim))


def _places(t: Translation, a: Any, wide: Any, extremes: Any, dim: int) -> Any:
    """Return where each element is, or 0 where it is not the value up to there; int64."""
    counts = t.ops.iota(t.value(a.shape[dim]), t.value(0), t.value(1), dtype=t.type(torch.int64))
    places = t.ops.broadcast_in_dim(counts, t.sizes(a.shape), [dim])
    counted = t.ops.bitwise_or(t.ops.eq(wide, extremes), t.ops.isnan(wide))
    return t.ops.where(counted, places, t.value(0))


RULES.update({f"prims.{name}": _running for name in RUNNING})
