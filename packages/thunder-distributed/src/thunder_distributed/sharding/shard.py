"""How a value is divided over the processes of a group."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from ..process_groups import group_size

__all__ = ["Shard"]


@dataclass(frozen=True)
class Shard:
    """The layout of a value of which each process of a group has a part of one dimension.

    A piece of a layer: process r has part r, of ceil(extent / processes) elements, of which those beyond
    `extent` are not elements of the value. A part of a sequence has an `arrangement` (`ARRANGEMENTS` of
    `sequences.parts`) and is even. The dimension then has before * length * after elements: those of the
    sequence, and of the dimensions that the program has merged with it, as in `x.flatten(0, 1)`.

    A value without a Shard is replicated: all processes have all of it.
    """

    group: str
    dim: int
    #: the extent of the dimension in the full value
    extent: int = field(compare=False)
    #: of a weight: the dimension in which results are divided, where they are sums over the processes
    results: int | None = field(default=None, compare=False)
    arrangement: str | None = None
    before: int = 1
    after: int = field(default=1, compare=False)

    @property
    def size(self) -> int:
        """The number of processes."""
        return group_size(self.group)

    @property
    def each(self) -> int:
        """The extent of a part."""
        return -(-self.extent // self.size)

    @property
    def is_even(self) -> bool:
        """Whether the parts have no other elements than those of the value."""
        return self.extent % self.size == 0

    @property
    def is_sequence(self) -> bool:
        """Whether parts are those of a sequence, and not pieces of a layer."""
        return self.arrangement is not None

    @property
    def length(self) -> int:
        """The length of the sequence in the dimension."""
        return self.extent // (self.before * self.after)

    def local(self, shape: Any) -> tuple[Any, ...]:
        """Return the shape of a part of a value of some shape."""
        return tuple(self.each if dim == self.dim else extent for dim, extent in enumerate(shape))

    def full(self, shape: Any) -> tuple[Any, ...]:
        """Return the shape of the value whose parts have some shape."""
        return tuple(self.extent if dim == self.dim else extent for dim, extent in enumerate(shape))

    def at(self, dim: int) -> Shard:
        """Return the layout of a value that has the divided dimension at another place."""
        return replace(self, dim=dim, results=None)

    def without(self, dims: Collection[int]) -> Shard:
        """Return the layout of a value that lacks some other dimensions."""
        return self.at(self.dim - sum(other < self.dim for other in dims))

    def reshaped(self, old: Sequence[Any], new: Sequence[Any]) -> Shard | None:
        """Return the layout of a reshaped value, None if parts of the one are not parts of the other.

        In the order of memory, the divided elements are between `outer` and inner dimensions; so they are in
        the new shape. A piece of a layer may be split, but nothing may come before it:
        (b, t, heads * width) → (b, t, heads, width), if the heads can be divided. A sequence is not split.
        """
        if not all(isinstance(extent, int) for extent in (*old, *new)) or 0 in (*old, *new):
            return None
        outer = prod(old[: self.dim]) * self.before
        dim = next((d for d in range(len(new)) if prod(new[: d + 1]) > outer), None)
        if dim is None:
            return None
        left, extent = prod(new[:dim]), new[dim]
        before = outer // left
        if outer % left or extent % (before * self.length if self.is_sequence else self.size):
            return None
        if not self.is_sequence:
            return Shard(self.group, dim, extent) if before == 1 else None
        after = extent // (before * self.length)
        return replace(self, dim=dim, extent=extent, before=before, after=after)
