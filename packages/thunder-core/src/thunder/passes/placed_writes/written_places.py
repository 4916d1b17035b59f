"""Places: which elements of a tensor's memory the values are that become its memory.

    y = select(x, 0, 1); t1 = mul(y, 2); t2 = unsqueeze(t1, 0); t3 = copy_with_setitem(x, (1:2, :), t2)

``t3`` is to be ``x``, so ``t2`` is to be ``x[1:2, :]`` and ``t1`` ``x[1:2, :].squeeze(0)``; that is the place
of ``y`` too. A place is a tensor without data, a view of one that is contiguous: two of them with the same
strides and offset are the same elements, whatever strides the tensor itself has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType, NoneType
from typing import Any

import torch

from thunder.ir.aliasing import views_of
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol

__all__ = ["are_same_places", "part_written", "place_of_argument", "place_of_view", "whole_place"]

Place = torch.Tensor


def whole_place(p: TensorProxy) -> Place | None:
    """Return the place of all elements of a tensor; None if it has symbolic sizes, or no elements."""
    if not all(type(n) is int and n > 0 for n in p.shape):
        return None
    return torch.empty(p.shape, device="meta")


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
        rule = _INVERSES.get(part.sym.id)
        found = rule(place, part) if rule is not None else None
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
        rule = _VIEWS.get(part.sym.id)
        result = rule(inner, part) if rule is not None else None
        if result is None:
            return None
        inner = result
    return inner


# -- rules: the place, and the call of a primitive --------------------------------------------------------


def _with_ones(place: Place, shape: Sequence[Any]) -> Place | None:
    """Return a place in another shape that differs in dimensions of length 1."""
    lengths = [n for n in place.shape if n != 1]
    if not all(type(n) is int for n in shape) or lengths != [n for n in shape if n != 1]:
        return None
    place = place.squeeze()
    for d, n in enumerate(shape):
        if n == 1:
            place = place.unsqueeze(d)
    return place


def _sliced(place: Place, call: BoundSymbol) -> Place | None:
    start, end, *strides = call.args[1:]
    steps = strides[0] if strides and strides[0] is not None else [1] * len(start)
    if not all(type(n) is int for n in (*start, *end, *steps)):
        return None
    return place[tuple(slice(*bounds) for bounds in zip(start, end, steps, strict=True))]


Rule = Callable[[Place, BoundSymbol], Place | None]

_SAME_ELEMENTS: dict[str, Rule] = {
    "prims.detach": lambda place, call: place,
    "prims.shallow_copy": lambda place, call: place,
}
_INVERSES: dict[str, Rule] = _SAME_ELEMENTS | {
    "prims.transpose": lambda place, call: place.permute(torch.tensor(call.args[1]).argsort().tolist()),
    **dict.fromkeys(
        ("prims.reshape", "prims.squeeze", "prims.broadcast_in_dim"),
        lambda place, call: _with_ones(place, call.args[0].shape),
    ),
}
_VIEWS: dict[str, Rule] = _SAME_ELEMENTS | {
    "prims.transpose": lambda place, call: place.permute(call.args[1]),
    "prims.slice_prim": _sliced,
    "prims.diagonal": lambda place, call: torch.diagonal(place, *call.args[1:]),
    **dict.fromkeys(
        ("prims.reshape", "prims.squeeze", "prims.broadcast_in_dim"),
        lambda place, call: _with_ones(place, call.output.shape),
    ),
}
