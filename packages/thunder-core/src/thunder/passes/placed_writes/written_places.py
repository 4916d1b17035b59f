"""Places: which elements of a tensor's memory the values are that become its memory.

    y = select(x, 0, 1); t1 = mul(y, 2); t2 = unsqueeze(t1, 0); t3 = copy_with_setitem(x, (1:2, :), t2)

``t3`` is to be ``x``, so ``t2`` is to be ``x[1:2, :]`` and ``t1`` ``x[1:2, :].squeeze(0)``; that is the place
of ``y`` too. A place is a tensor without data, a view of one that is contiguous: two of them with the same
strides and offset are the same elements, whatever strides the tensor itself has. The rows of views say how
their places follow from one another (``Operator.view``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import EllipsisType, NoneType
from typing import Any

import torch

from thunder.base.memory_layout import contiguous_strides
from thunder.ir.aliasing import views_of
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ops.operator import row_of
from thunder.ops.stand_ins import stand_in_tensor
from thunder.ops.view_rules import Place, ViewRule

__all__ = ["are_same_places", "part_written", "place_of_argument", "place_of_view", "whole_place"]


def _rule_of(call: BoundSymbol) -> ViewRule | None:
    row = row_of(call.sym)
    return None if row is None else row.view


def whole_place(p: TensorProxy) -> Place | None:
    """Return the place of all elements of a tensor; None if it has symbolic sizes, or no elements."""
    if not all(type(n) is int and n > 0 for n in p.shape):
        return None
    return stand_in_tensor(p, "meta", strides=contiguous_strides(p.shape))


def are_same_places(a: Place, b: Place) -> bool:
    """Return whether two places are the same elements in the same order."""
    if a.shape != b.shape or a.storage_offset() != b.storage_offset():
        return False
    return all(n == 1 or s == t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True))


def part_written(call: BoundSymbol, place: Place) -> tuple[TensorProxy, Place] | None:
    """Return the value that a call writes to a part of its argument, and the place of that part.

    ``place`` is that of the argument. None if the call does not write one value of the part's shape.
    """
    if call.sym.id == "prims.copy_with_setitem":
        _, key, value = call.args
        key = tuple(key) if isinstance(key, list) else key
        if not isinstance(value, TensorProxy) or not _is_basic(key):
            return None
        part = place[key]
    elif call.sym.id == "prims.diagonal_scatter":
        value, part = call.args[1], torch.diagonal(place, *call.args[2:])
    else:
        return None
    return (value, part) if tuple(value.shape) == tuple(part.shape) else None


def _is_basic(key: Any) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    for part in parts:
        numbers = (part.start, part.stop, part.step) if isinstance(part, slice) else (part,)
        if not all(type(n) in (int, NoneType, EllipsisType) for n in numbers):
            return False
    return True


def place_of_argument(call: BoundSymbol, place: Place) -> tuple[TensorProxy, Place] | None:
    """Return the argument of a view that keeps all elements, and its place; ``place`` is the result's.

    None for another call, and for a view that may be a copy.
    """
    views = views_of(call)
    if len(views) != 1 or len(call.flat_proxy_outs) != 1:
        return None
    for part in reversed(views[0].path):
        rule = _rule_of(part)
        found = rule.argument(place, part) if rule is not None else None
        if found is None:
            return None
        place = found
    return views[0].source, place


def place_of_view(
    view: TensorProxy,
    base: TensorProxy,
    place: Place,
    statements: Sequence[BoundSymbol],
    producer: Mapping[str, int],
) -> Place | None:
    """Return the place of a value that is certainly a view of ``base``, whose place is given; else None."""
    if view.name == base.name:
        return place
    position = producer.get(view.name)
    views = [] if position is None else views_of(statements[position])
    found = next((v for v in views if v.output.name == view.name), None)
    inner = None if found is None else place_of_view(found.source, base, place, statements, producer)
    if found is None or inner is None:
        return None
    for part in found.path:
        rule = _rule_of(part)
        result = rule.place(inner, part) if rule is not None else None
        if result is None:
            return None
        inner = result
    return inner
