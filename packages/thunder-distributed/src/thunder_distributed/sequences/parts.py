"""Defines what divides and joins the values of a program whose sequences are divided.

Note [Values of a divided program]
In a program whose sequences are divided, a value has one of three layouts:

    whole      each process has all of it, and the same; so is its cotangent
    Shard      each process has its part of one dimension; so is its cotangent
    same       each process has all of it, and computes with its own part of the program: cotangents are
               summed over the processes

so that every change of layout is an operator whose gradient changes it back:

    take_part      whole → Shard   gradient: gather_parts
    gather_parts   Shard → whole   gradient: take_part
    collect_parts  Shard → same    gradient: reduce_scatter
    use_in_parts   whole → same    gradient: all_reduce
    sum_parts      a sum over parts → whole    gradient: itself

These are the conjugate operators of Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3.
"""

from __future__ import annotations

from typing import Any, Final

import torch.distributed as dist

import thunder.torch as ltorch
from thunder.core.symbol import Symbol

from ..collectives import all_gather, all_reduce, ex
from ..layouts import DistParallelType
from ..process_groups import group_named, group_size
from ..synchronization import synchronize_gradient

__all__ = [
    "ARRANGEMENTS",
    "chunks_of",
    "collect_parts",
    "gather_parts",
    "sum_parts",
    "take_part",
    "use_in_parts",
]

#: `plain`: process r of n has the r-th of n chunks; `zigzag`: chunks r and 2n - 1 - r of 2n, so that each
#: process has as much of a causal triangle as the others
ARRANGEMENTS: Final = ("zigzag", "plain")


def chunks_of(arrangement: str, rank: int, size: int) -> tuple[tuple[int, ...], int]:
    """Return the chunks that a process has, in order, and the number of chunks of a sequence."""
    return ((rank,), size) if arrangement == "plain" else ((rank, 2 * size - 1 - rank), 2 * size)


def _split(a: Any, dim: int, before: int) -> tuple[Any, int, tuple[int, ...]]:
    """Return a tensor whose dimension `dim + 1` begins with the sequence, that dimension, and its shape."""
    shape = tuple(a.shape)
    if before == 1:
        return a, dim, shape
    return ltorch.reshape(a, (*shape[:dim], before, shape[dim] // before, *shape[dim + 1 :])), dim + 1, shape


def _merged(a: Any, dim: int, before: int) -> Any:
    if before == 1:
        return a
    shape = tuple(a.shape)
    return ltorch.reshape(a, (*shape[:dim], before * shape[dim + 1], *shape[dim + 2 :]))


def _chunk(a: Any, dim: int, index: int, count: int) -> Any:
    width = a.shape[dim] // count
    return ltorch.narrow(a, dim, index * width, width)


def _take(a: Any, group: str, arrangement: str, dim: int, length: int, before: int = 1) -> Any:
    chunks, count = chunks_of(arrangement, dist.get_rank(group_named(group)), group_size(group))
    split, at, _ = _split(a, dim, before)
    mine = [_chunk(split, at, chunk, count) for chunk in chunks]
    return _merged(mine[0] if len(mine) == 1 else ltorch.cat(mine, at), dim, before)


def _gather(a: Any, group: str, arrangement: str, dim: int, length: int, before: int = 1) -> Any:
    size = group_size(group)
    split, at, _ = _split(a, dim, before)
    gathered = all_gather(split, group, at)
    if arrangement != "plain":
        order = [chunk for rank in range(size) for chunk in chunks_of(arrangement, rank, size)[0]]
        count = len(order)
        chunks = [_chunk(gathered, at, order.index(chunk), count) for chunk in range(count)]
        gathered = ltorch.cat(chunks, at)
    return _merged(gathered, dim, before)


def _arguments(c: Any) -> tuple[Any, ...]:
    return c.group, c.arrangement, c.dim, c.length, c.before


def _sum(a: Any, group: str) -> Any:
    return all_reduce(a, group)


def _use(a: Any, group: str, bucket: str | None = None) -> Any:
    return ltorch.view_as(a, a)


def _summed(c: Any) -> Any:
    """Return the sum of the gradients of all processes; those of a bucket are communicated together."""
    return synchronize_gradient(c.g, c.group, DistParallelType.REPLICATED, c.bucket, False)


take_part: Symbol = ex.register_operator(
    "take_part", like=_take, vjp={"a": lambda c: gather_parts(c.g, *_arguments(c))}
)
gather_parts: Symbol = ex.register_operator(
    "gather_parts", like=_gather, vjp={"a": lambda c: take_part(c.g, *_arguments(c))}
)
collect_parts: Symbol = ex.register_operator("collect_parts", like=_gather)
sum_parts: Symbol = ex.register_operator("sum_parts", like=_sum, vjp={"a": lambda c: c.g})
use_in_parts: Symbol = ex.register_operator("use_in_parts", like=_use, vjp={"a": _summed})
