"""Reductions as nodes; those of few and long rows in two steps, so that enough programs run at a time.

x.sum()  of (1000000,)   →   parts = x.view(512, 1954).sum(1); parts.sum(0)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch

from .indices import Index, delinearise
from .nodes import Node, Number, Piece, Pieces, Reduction, View

__all__ = ["absent_number", "reduced"]

#: programs that keep a large GPU busy, of which each multiprocessor runs a few
PROGRAMS: Final = 512

#: the rows of a program where neighbouring rows are neighbours in memory, and the elements that it reads
LANES: Final = 64
ELEMENTS: Final = 2048

#: a multiple of this many elements begins where vectors of elements are loaded
ALIGNED: Final = 128


def reduced(kind: str, a: Node, dims: Sequence[int]) -> Node:
    """Return a reduction of dimensions; without dimensions, of one more of size 1."""
    if not dims:
        a, dims = View(arg=a, source=lambda i: i[:-1], shape=(*a.shape, 1), dtype=a.dtype), (len(a.shape),)
    kept = [d for d in range(len(a.shape)) if d not in dims]
    length = math.prod(a.shape[d] for d in dims)
    lanes = LANES if kept and kept[-1] == len(a.shape) - 1 else 1
    programs = -(-math.prod(a.shape[d] for d in kept) // lanes)
    parts = min(PROGRAMS // max(programs, 1), length // (ELEMENTS // lanes))
    if parts < 4:
        return _one_step(kind, a, tuple(dims))
    partial = _one_step(kind, _in_parts(kind, a, tuple(dims), parts), (len(kept) + 1,))
    return _one_step(kind, partial, (len(kept),))


def _one_step(kind: str, a: Node, dims: tuple[int, ...]) -> Reduction:
    shape = tuple(size for d, size in enumerate(a.shape) if d not in dims)
    return Reduction(kind=kind, arg=a, dims=dims, shape=shape, dtype=a.dtype)


def _in_parts(kind: str, a: Node, dims: tuple[int, ...], parts: int) -> Node:
    """Return a value as (kept dimensions, part, element of a part), filled up at the end."""
    kept = [d for d in range(len(a.shape)) if d not in dims]
    length = math.prod(a.shape[d] for d in dims)
    chunk = -(-length // parts)
    chunk = -(-chunk // ALIGNED) * ALIGNED if length > ALIGNED * parts else chunk
    parts = -(-length // chunk)
    rows = tuple(a.shape[d] for d in kept)

    def whole(index: Index) -> Index:
        inside = dict(zip(dims, delinearise(index[-1], [a.shape[d] for d in dims]), strict=True))
        outside = dict(zip(kept, index[:-1], strict=True))
        return tuple({**inside, **outside}[d] for d in range(len(a.shape)))

    row: Node = View(arg=a, source=whole, shape=(*rows, length), dtype=a.dtype)
    if parts * chunk != length:
        piece = Piece(row, (0,) * len(row.shape), row.shape)
        filled = (*rows, parts * chunk)
        row = Pieces(pieces=(piece,), value=absent_number(kind, a.dtype), shape=filled, dtype=a.dtype)
    return View(
        arg=row,
        source=lambda index: (*index[:-2], index[-2] * chunk + index[-1]),
        shape=(*rows, parts, chunk),
        dtype=a.dtype,
    )


def absent_number(kind: str, dtype: torch.dtype) -> Number:
    """Return the number that changes nothing in a reduction of values of a dtype."""
    if kind in ("sum", "any"):
        return 0
    if kind in ("all", "prod"):
        return 1
    largest = kind == "amin"
    if dtype.is_floating_point:
        return math.inf if largest else -math.inf
    limits = torch.iinfo(dtype)
    return limits.max if largest else limits.min
