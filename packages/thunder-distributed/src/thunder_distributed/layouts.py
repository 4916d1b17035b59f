"""The layout table: how each tensor of a module is laid out over the processes of a group."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import torch

from .collectives import gathered
from .process_groups import Members

__all__ = ["DIVIDING", "IN_PARTS", "DistParallelType", "FSDPBucketingStrategy", "FSDPType", "Layout"]


class DistParallelType(Enum):
    """The kind of a layout over one group of processes."""

    NONE = auto()
    REPLICATED = auto()
    FULLY_SHARDED = auto()
    COLUMN_WISE = auto()
    ROW_WISE = auto()


#: the kinds of layouts in which processes compute parts of the same result
DIVIDING = frozenset({DistParallelType.COLUMN_WISE, DistParallelType.ROW_WISE})
#: the kinds of layouts in which each process has a part of a parameter
IN_PARTS = DIVIDING | {DistParallelType.FULLY_SHARDED}


class FSDPType(Enum):
    """A level of ZeRO says how a backward gets whole parameters (Rajbhandari et al., arXiv:1910.02054).

    `ZERO2` keeps those that the forward gathered; `ZERO3` frees them and gathers them again.
    """

    ZERO2 = auto()
    ZERO3 = auto()


class FSDPBucketingStrategy(Enum):
    """Which parameters are gathered, and their gradients reduced, by one collective.

    `NONE`: each alone. `LAYER`: those of one module, without its submodules. `BLOCK`: those of one element of
    a `ModuleList` or `Sequential` with all that is in it, the others together.
    """

    NONE = auto()
    LAYER = auto()
    BLOCK = auto()


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A row of the table: it says how one parameter is laid out over the processes of a group.

    A replicated parameter is whole in each process. Of a fully sharded one, process r of n has the rows
    [r * k, (r + 1) * k) with k = ceil(rows / n), zeros where there are no rows; a scalar is one row. Strides
    other than those of a contiguous tensor are given to the gathered parameter again.
    """

    name: str
    kind: DistParallelType
    members: Members
    #: the shape of the whole parameter
    shape: tuple[int, ...]
    #: its dimensions by decreasing stride
    order: tuple[int, ...]
    #: parameters of equal buckets are communicated together; None for one that is communicated alone
    bucket: str | None = None

    @property
    def _stored_shape(self) -> tuple[int, ...]:
        """The shape in the order of memory; a scalar has one row."""
        return tuple(self.shape[dim] for dim in self.order) or (1,)

    @property
    def rows(self) -> int:
        """The number of rows of the whole parameter, in the order of memory."""
        return self._stored_shape[0]

    @property
    def rows_here(self) -> range:
        """The rows of the whole parameter that this process has."""
        each = -(-self.rows // self.members.size)
        start = min(self.members.rank * each, self.rows)
        return range(start, min(start + each, self.rows))

    @property
    def shard_shape(self) -> tuple[int, ...]:
        """The shape of the part of each process."""
        return (-(-self.rows // self.members.size), *self._stored_shape[1:])

    def shard(self, whole: torch.Tensor) -> torch.Tensor:
        """Return the part of this process, in new memory, with zeros in the rows that there are not."""
        stored = whole.detach().permute(self.order).reshape(self._stored_shape)
        part = stored.new_zeros(self.shard_shape)
        rows = self.rows_here
        part[: len(rows)] = stored[rows.start : rows.stop]
        return part

    def valid(self, part: torch.Tensor) -> torch.Tensor:
        """Return the rows of the part of this process that are rows of the parameter."""
        return part[: len(self.rows_here)]

    def whole(self, parts: Any) -> Any:
        """Return the parameter from the parts of all processes, which are rows of one tensor or proxy."""
        if parts.shape[0] != self.rows:
            parts = parts[: self.rows]
        if not self.shape:
            return parts.reshape(())
        if self.order != tuple(range(len(self.shape))):
            parts = parts.permute(tuple(self.order.index(dim) for dim in range(len(self.order))))
        return parts

    def gather(self, part: torch.Tensor) -> torch.Tensor:
        """Return the parameter from the part of this process; each process has to call it."""
        whole: torch.Tensor = self.whole(gathered(part.detach(), self.members.group))
        return whole


def memory_order(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the dimensions of a tensor by decreasing stride, equal ones in their order."""
    if tensor.is_contiguous():
        return tuple(range(tensor.ndim))
    return tuple(sorted(range(tensor.ndim), key=lambda dim: -int(tensor.stride()[dim])))
