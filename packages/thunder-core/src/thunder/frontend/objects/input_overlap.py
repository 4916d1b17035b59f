"""Memory that tensors share: which inputs of a call overlap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from thunder.base.memory_layout import byte_span


class Member(NamedTuple):
    """One of several tensors that overlap.

    Attributes:
        position: its position among the tensors.
        offset: the offset in its storage (elements).
        storage: the position of the group's first tensor with this storage. Storages of NumPy's arrays, for
            example, overlap although they are several.
    """

    position: int
    offset: int
    storage: int


def overlapping_groups(*tensors: torch.Tensor) -> tuple[tuple[Member, ...], ...]:
    """Return the groups of tensors whose spans of memory overlap, each of more than one tensor.

    Two interleaved tensors (``x[::2]`` and ``x[1::2]``) count as overlapping.
    """
    return tuple(_members(tensors, group) for group in sorted(_overlapping(tensors)))


def _overlapping(tensors: Sequence[torch.Tensor]) -> Iterator[list[int]]:
    """Yield the positions of each group: in the order of addresses, one begins before another's end.

    It runs in calls of programs that write to an input, so that it is written for speed.
    """
    spans = sorted((start, i) for i, t in enumerate(tensors) if (start := t.data_ptr()))
    group: list[int] = []
    reach = 0
    for start, i in spans:
        t = tensors[i]
        if start >= reach:
            if len(group) > 1:
                yield sorted(group)
            group = []
        group.append(i)
        reach = max(reach, start + (t.nbytes if t.is_contiguous() else _length(t)))
    if len(group) > 1:
        yield sorted(group)


def _length(tensor: torch.Tensor) -> int:
    """Return the bytes between a tensor's first element and the end of its last."""
    start, end = byte_span(tensor)
    return end - start


def _members(tensors: Sequence[torch.Tensor], group: Sequence[int]) -> tuple[Member, ...]:
    first: dict[tuple[int, int], int] = {}
    members = []
    for i in group:
        storage = tensors[i].untyped_storage()
        number = first.setdefault((storage.data_ptr(), storage.nbytes()), i)
        members.append(Member(i, int(tensors[i].storage_offset()), number))
    return tuple(members)
