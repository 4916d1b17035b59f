"""Writes at computed places, as a choice of each element of the result: gradients of maxima and gathers.

    scatter(a, index, source, dim), one index in a row   →   where(count == index, source, a)

Each element asks of every index of its row whether it is the place of it, so that few indices are taken. The
last of equal places counts, and sums are in the order of the indices, as in eager on a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import torch

from thunder.extend import Refusal

from .nodes import Compute, Count, Gathered, Node, Number
from .places import Builder, broadcast, cut

__all__ = ["MOST_PLACES", "SCATTERS", "refuse_scatter"]

#: the most indices in a row of a scatter
MOST_PLACES: Final = 8


def refuse_scatter(a: Sequence[int], index: Sequence[int], dim: int) -> Refusal | None:
    """Return why no kernel scatters an index of this shape into a value of this shape, or None."""
    if len(a) != len(index) or not a:
        return Refusal("dims", "places are of dimensions that both tensors have")
    if any(i != size for d, (i, size) in enumerate(zip(index, a, strict=True)) if d != dim):
        return Refusal("shape", "a kernel scatters in each row", shape=tuple(a), index=tuple(index))
    if index[dim] > MOST_PLACES:
        return Refusal(
            "length", f"a kernel scatters at most {MOST_PLACES} elements of a row", length=index[dim]
        )
    return None


def _scatter(operation: str | None) -> Builder:
    """Return the function for writes of elements, or of what an operation makes of the old and the new."""

    def build(a: Node, index: Node, source: Node | Number, dim: int) -> Node:
        refusal = refuse_scatter(a.shape, index.shape, dim)
        assert refusal is None, f"the checker refuses {refusal}"
        places = _checked(index, a.shape[dim])
        result = a
        for number in range(index.shape[dim]):
            result = _written(
                result, _row(places, dim, number, a), _row(source, dim, number, a), dim, operation
            )
        return result

    return build


def _index_add(a: Node, index: Node, value: Node, dim: int) -> Node:
    """Add slices of a value at places that are the same in each row."""
    places = _checked(index, a.shape[dim])
    result = a
    for number in range(index.shape[0]):
        place = broadcast(cut(places, (number,), (number + 1,)), a.shape, (0,))
        result = _written(result, place, _row(value, dim, number, a), dim, "add")
    return result


def _checked(index: Node, size: int) -> Node:
    """Return places in a dimension; one outside of it is an error, as in eager."""
    counts = Count(start=0, step=1, shape=(size,), dtype=torch.int64)
    return Gathered(
        arg=counts, places=index, dim=0, count=len(index.shape), shape=index.shape, dtype=torch.int64
    )


def _row(node: Node | Number, dim: int, number: int, like: Node) -> Node | Number:
    """Return the elements with one place in a dimension, for each element of another value."""
    if not isinstance(node, Node):
        return node
    starts = tuple(number if d == dim else 0 for d in range(len(like.shape)))
    ends = tuple(number + 1 if d == dim else size for d, size in enumerate(like.shape))
    return broadcast(cut(node, starts, ends), like.shape, range(len(like.shape)))


def _written(a: Node, place: Node | Number, value: Node | Number, dim: int, operation: str | None) -> Node:
    """Return a value with other elements at places of a dimension."""
    count = broadcast(Count(start=0, step=1, shape=(a.shape[dim],), dtype=torch.int64), a.shape, (dim,))
    is_there = Compute(operation="eq", args=(count, place), shape=a.shape, dtype=torch.bool)
    if operation is not None:
        value = Compute(operation=operation, args=(a, value), shape=a.shape, dtype=a.dtype)
    return Compute(operation="where", args=(is_there, value, a), shape=a.shape, dtype=a.dtype)


#: name of a primitive → its builder
SCATTERS: Final[Mapping[str, Builder]] = {
    "index_add": _index_add,
    "scatter": _scatter(None),
    "scatter_add": _scatter("add"),
}
