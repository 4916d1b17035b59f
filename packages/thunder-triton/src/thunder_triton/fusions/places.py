"""Nodes of values at other places: views, boxes of several values, and elements at computed places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch

from thunder.extend import Refusal

from .indices import Index, delinearise, linearise
from .nodes import Gathered, Node, Number, Piece, Pieces, Triangle, View
from .unsupported import Unsupported

__all__ = ["PLACES", "VIEWS", "Builder", "broadcast", "cut", "exact", "reshaped"]

#: a function of the arguments of a primitive, with nodes for tensors, that returns its results
Builder = Callable[..., "Node | tuple[Node, ...]"]


def exact(value: Number, dtype: torch.dtype) -> Number:
    """Return a number as a tensor of a dtype has it."""
    number: Number = torch.tensor(value, dtype=dtype).item()
    return number


def _identity(a: Node) -> Node:
    return a


# -- views ---------------------------------------------------------------------------------------------------


def _view(a: Node, shape: Sequence[int], source: Callable[[Index], Index]) -> Node:
    return View(arg=a, source=source, shape=tuple(shape), dtype=a.dtype)


def reshaped(a: Node, shape: Sequence[int]) -> Node:
    return _view(a, shape, lambda index: delinearise(linearise(index, shape), a.shape))


def broadcast(a: Node, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Node:
    def source(index: Index) -> Index:
        pairs = zip(a.shape, broadcast_dimensions, strict=True)
        return tuple(index[d] if size != 1 else index[d] * 0 for size, d in pairs)

    return _view(a, shape, source)


def cut(a: Node, starts: Sequence[int], ends: Sequence[int], strides: Sequence[int] | None = None) -> Node:
    steps = strides or [1] * len(a.shape)
    shape = [(end - start + k - 1) // k for start, end, k in zip(starts, ends, steps, strict=True)]
    return _view(
        a, shape, lambda index: tuple(i * k + s for i, k, s in zip(index, steps, starts, strict=True))
    )


def _squeeze(a: Node, dims: Sequence[int]) -> Node:
    remaining = [d for d in range(len(a.shape)) if d not in dims]

    def source(index: Index) -> Index:
        places = dict(zip(remaining, index, strict=True))
        zero = linearise((), ())
        return tuple(places.get(d, zero) for d in range(len(a.shape)))

    return _view(a, [a.shape[d] for d in remaining], source)


def _transpose(a: Node, permutation: Sequence[int]) -> Node:
    inverse = [list(permutation).index(d) for d in range(len(permutation))]
    return _view(a, [a.shape[d] for d in permutation], lambda index: tuple(index[d] for d in inverse))


def _flip(a: Node, dims: Sequence[int]) -> Node:
    def source(index: Index) -> Index:
        return tuple(i * -1 + (a.shape[d] - 1) if d in dims else i for d, i in enumerate(index))

    return _view(a, a.shape, source)


def _diagonal(a: Node, offset: int, dim1: int, dim2: int) -> Node:
    others = [d for d in range(len(a.shape)) if d not in (dim1, dim2)]
    rows, columns = a.shape[dim1], a.shape[dim2]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))

    def source(index: Index) -> Index:
        places = dict(zip(others, index[:-1], strict=True))
        places[dim1], places[dim2] = index[-1] + max(-offset, 0), index[-1] + max(offset, 0)
        return tuple(places[d] for d in range(len(a.shape)))

    return _view(a, [*(a.shape[d] for d in others), length], source)


def _unfold(a: Node, dim: int, size: int, step: int) -> Node:
    shape = (*a.shape[:dim], (a.shape[dim] - size) // step + 1, *a.shape[dim + 1 :], size)

    def source(index: Index) -> Index:
        return (*index[:dim], index[dim] * step + index[-1], *index[dim + 1 : -1])

    return _view(a, shape, source)


# -- pieces --------------------------------------------------------------------------------------------------


def _cat(tensors: Sequence[Node], dim: int) -> Node:
    first = tensors[0]
    end, pieces = 0, []
    for tensor in tensors:
        low = tuple(end if d == dim else 0 for d in range(len(first.shape)))
        high = tuple(i + size for i, size in zip(low, tensor.shape, strict=True))
        if tensor.shape[dim]:
            pieces.append(Piece(tensor, low, high))
        end += tensor.shape[dim]
    shape = (*first.shape[:dim], end, *first.shape[dim + 1 :])
    return Pieces(pieces=tuple(pieces), value=exact(0, first.dtype), shape=shape, dtype=first.dtype)


def _pad(a: Node, value: Number, padding: Sequence[tuple[int, int, int]]) -> Node:
    if any(interior for _, _, interior in padding):
        raise Unsupported(Refusal("padding", "elements are padded at the edges alone"))
    starts = [max(-low, 0) for low, _, _ in padding]
    ends = [size - max(-high, 0) for size, (_, high, _) in zip(a.shape, padding, strict=True)]
    inner = cut(a, starts, ends) if any(low < 0 or high < 0 for low, high, _ in padding) else a
    lows = tuple(max(low, 0) for low, _, _ in padding)
    highs = tuple(low + size for low, size in zip(lows, inner.shape, strict=True))
    shape = tuple(end + max(high, 0) for end, (_, high, _) in zip(highs, padding, strict=True))
    return Pieces(
        pieces=(Piece(inner, lows, highs),), value=exact(value, a.dtype), shape=shape, dtype=a.dtype
    )


def _triangle(lower: bool) -> Builder:
    def build(a: Node, diagonal: int = 0) -> Node:
        return Triangle(arg=a, diagonal=diagonal, lower=lower, shape=a.shape, dtype=a.dtype)

    return build


# -- places ------------------------------------------------------------------------------------------------


def _gather(a: Node, index: Node, dim: int) -> Node:
    return Gathered(arg=a, places=index, dim=dim, count=None, shape=index.shape, dtype=a.dtype)


def _take(a: Node, index: Node, dim: int) -> Node:
    shape = (*a.shape[:dim], *index.shape, *a.shape[dim + 1 :])
    return Gathered(arg=a, places=index, dim=dim, count=len(index.shape), shape=shape, dtype=a.dtype)


#: name of a primitive that describes memory in another way → its builder
VIEWS: Final[Mapping[str, Builder]] = {
    "broadcast_in_dim": broadcast,
    "detach": _identity,
    "diagonal": _diagonal,
    "reshape": reshaped,
    "shallow_copy": _identity,
    "slice_prim": cut,
    "squeeze": _squeeze,
    "transpose": _transpose,
    "unfold": _unfold,
    "view": reshaped,
}

#: name of a primitive → its builder
PLACES: Final[Mapping[str, Builder]] = {
    "cat": _cat,
    "clone": _identity,
    "flip": _flip,
    "gather": _gather,
    "pad": _pad,
    "take": _take,
    "tril": _triangle(True),
    "triu": _triangle(False),
}
