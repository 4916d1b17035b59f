"""The rules of operators that move elements: a divided dimension goes where the operator puts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import thunder.torch as ltorch
from thunder.core import prims
from thunder.core.symbol import BoundSymbol

from .operators import Division
from .values import Computation, Rule, Values, divided_operands

__all__ = ["SHAPES", "reshaped", "without_dims"]


def reshaped(shape: Sequence[Any], to: Sequence[Any], division: Division) -> Division | None:
    """Return the division of a tensor that is reshaped, None if its parts are no parts of the result.

    Dimensions are grouped so that the products of the groups are equal. Parts stay parts if the divided
    dimension is the first of its group, and the first one of the group in the result can be divided too:
    (b, t, heads * width) → (b, t, heads, width), if the heads can be divided.
    """
    if not all(isinstance(extent, int) for extent in (*shape, *to)) or 0 in (*shape, *to):
        return None
    old, new = 0, 0
    while old < len(shape) and new < len(to):
        first, firsts = old, new
        product, target = shape[old], to[new]
        old, new = old + 1, new + 1
        while product != target:
            if product < target:
                product, old = product * shape[old], old + 1
            else:
                target, new = target * to[new], new + 1
        if first <= division.dim < old:
            before = [extent for extent in shape[first : division.dim] if extent != 1]
            outer = next((dim for dim in range(firsts, new) if to[dim] != 1), None)
            if before or outer is None or to[outer] % division.size:
                return None
            return Division(division.group, outer, to[outer])
    return None


def without_dims(division: Division, dims: Sequence[int]) -> Division:
    """Return the division of a result that lacks some other dimensions than the divided one."""
    dim = division.dim - sum(other < division.dim for other in dims)
    return Division(division.group, dim, division.extent)


def _reshape(bsym: BoundSymbol, values: Values) -> Computation | None:
    x, shape = bsym.args
    division = values.division(x)
    if division is None or not division.is_even:
        return None
    result = reshaped(tuple(x.shape), tuple(shape), division)
    if result is None:
        return None
    return lambda: [(ltorch.reshape(values.value(x), result.local(shape)), result)]


def _transpose(bsym: BoundSymbol, values: Values) -> Computation | None:
    x, permutation = bsym.args
    division = values.division(x)
    if division is None:
        return None
    result = Division(
        division.group, tuple(permutation).index(division.dim), division.extent, division.results
    )
    return lambda: [(prims.transpose(values.value(x), permutation), result)]


def _broadcast(bsym: BoundSymbol, values: Values) -> Computation | None:
    x, shape, dims = bsym.args
    division = values.division(x)
    if division is None or not division.is_even:
        return None
    result = Division(division.group, dims[division.dim], division.extent)
    return lambda: [(prims.broadcast_in_dim(values.value(x), result.local(shape), dims), result)]


def _squeeze(bsym: BoundSymbol, values: Values) -> Computation | None:
    x, dims = bsym.args
    division = values.division(x)
    if division is None or not division.is_even or division.dim in dims:
        return None
    result = without_dims(division, dims)
    return lambda: [(prims.squeeze(values.value(x), dims), result)]


def _slice(bsym: BoundSymbol, values: Values) -> Computation | None:
    """Slice along other dimensions than the divided one."""
    x, starts, ends, strides = bsym.args
    division = values.division(x)
    if division is None or not division.is_even:
        return None
    dim = division.dim
    if starts[dim] != 0 or ends[dim] != x.shape[dim] or (strides is not None and strides[dim] != 1):
        return None
    ends_here = [division.each if i == dim else end for i, end in enumerate(ends)]
    return lambda: [(prims.slice_prim(values.value(x), starts, ends_here, strides), division)]


def _cat(bsym: BoundSymbol, values: Values) -> Computation | None:
    """Concatenate along another dimension than the divided one."""
    tensors, dim = bsym.args
    _, division = next(divided_operands(bsym, values))
    if not division.is_even or dim == division.dim:
        return None
    return lambda: [(prims.cat([values.part(p, division) for p in tensors], dim), division)]


def _flip(bsym: BoundSymbol, values: Values) -> Computation | None:
    x, dims = bsym.args
    division = values.division(x)
    if division is None or not division.is_even or division.dim in dims:
        return None
    return lambda: [(prims.flip(values.value(x), dims), division)]


def _order(bsym: BoundSymbol, values: Values) -> Computation | None:
    """Give the part the order of strides that the whole value gets."""
    x, *rest = bsym.args
    division = values.division(x)
    return None if division is None else lambda: [(bsym.sym(values.value(x), *rest, **bsym.kwargs), division)]


SHAPES: Final[dict[Any, Rule]] = {
    prims.reshape.id: _reshape,
    prims.view.id: _reshape,
    prims.transpose.id: _transpose,
    prims.broadcast_in_dim.id: _broadcast,
    prims.squeeze.id: _squeeze,
    prims.slice_prim.id: _slice,
    prims.cat.id: _cat,
    prims.flip.id: _flip,
    prims.stride_order.id: _order,
}
