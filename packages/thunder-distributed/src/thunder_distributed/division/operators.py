"""Defines the operators between the layouts of a program of tensor parallelism.

A value is whole, the same in each process, or divided: process r of n has part r of one of its dimensions.
The gradient of a whole value is whole, that of a divided one is divided, so each operator has the gradient
that takes the one to the other (Shoeybi et al., Megatron-LM, arXiv:1909.08053; Korthikanti et al.,
arXiv:2205.05198):

    operator                         from, to                     gradient
    shared(x, '1')                   whole, read for a part       all_reduce
    all_gather(x, '1', dim)          divided, read for a part     reduce_scatter
    part_of(x, '1', dim)             whole, divided               all_gather
    joined(x, '1', dim)              divided, whole               part_of
    reduced(x, '1')                  terms of a sum, whole        itself
    reduce_scatter(x, '1', .., dim)  terms of a sum, divided      all_gather
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

import thunder.torch as ltorch
from thunder import TensorProxy
from thunder.core.errors import InvalidArgument
from thunder.core.symbol import Symbol

from ..collectives import all_gather, all_reduce, ex
from ..process_groups import group_named, group_size
from ..sharding.shard import Shard

__all__ = [
    "INLINED",
    "assembled",
    "joined",
    "part_of",
    "reduced",
    "rows_here",
    "shared",
]


# -- a parameter that is in parts ----------------------------------------------------------------------------


def _assembled_meta(part: Any, group: str, dim: int, extent: int, results: int | None) -> Any:
    layout = Shard(group, dim, extent, results)
    if part.shape[dim] != layout.each:
        raise InvalidArgument(f"{tuple(part.shape)} is no part of {extent} along dimension {dim}")
    return TensorProxy(like=part, shape=layout.full(part.shape))


#: the whole parameter, as the program reads it; the stage that divides the program removes the statement
assembled = ex.register_operator("assembled", meta=_assembled_meta)


# -- between layouts -----------------------------------------------------------------------------------------


def _shared(a: Any, group: str) -> Any:
    return ltorch.view_as(a, a)


def _joined(a: Any, group: str, dim: int) -> Any:
    return all_gather(a, group, dim)


def _reduced(a: Any, group: str) -> Any:
    return all_reduce(a, group)


def _part_of_meta(a: Any, group: str, dim: int) -> Any:
    return TensorProxy(like=a, shape=Shard(group, dim, a.shape[dim]).local(a.shape))


def _part_of(a: torch.Tensor, group: str, dim: int) -> torch.Tensor:
    each = a.shape[dim] // group_size(group)
    part = a.narrow(dim, dist.get_rank(group_named(group)) * each, each)
    return part.clone(memory_format=torch.contiguous_format)


shared = ex.register_operator("shared", like=_shared, vjp={"a": lambda c: all_reduce(c.g, c.group)})
joined = ex.register_operator("joined", like=_joined, vjp={"a": lambda c: part_of(c.g, c.group, c.dim)})
reduced = ex.register_operator("reduced", like=_reduced, vjp={"a": lambda c: c.g})
part_of: Symbol = ex.register_operator(
    "part_of",
    meta=_part_of_meta,
    fn=_part_of,
    vjp={"a": lambda c: all_gather(c.g, c.group, c.dim)},
)


# -- rows of a table -----------------------------------------------------------------------------------------


def _rows_here_meta(indices: Any, group: str, rows: int) -> Any:
    return TensorProxy(like=indices)


def _rows_here(indices: torch.Tensor, group: str, rows: int) -> torch.Tensor:
    outside = (indices < 0) | (indices >= rows)
    if not indices.is_cuda:
        if bool(outside.any()):
            raise IndexError("index out of range in self")  # as torch's embedding
    else:  # a check that does not wait for the device, as torch's
        torch._assert_async(~outside.any())
    each = -(-rows // group_size(group))
    here = indices - dist.get_rank(group_named(group)) * each
    return torch.where((here >= 0) & (here < each), here, -1)


#: the positions of rows in the part of this process of a table; -1 for those of other processes
rows_here = ex.register_operator("rows_here", meta=_rows_here_meta, fn=_rows_here)

#: the operators that stand for a collective, or for nothing, once gradients are computed
INLINED = frozenset({shared.id, joined.id, reduced.id})
