"""Memory that tensors share: which inputs of a call overlap in storage."""

from __future__ import annotations

from itertools import combinations

import torch

from thunder.base.memory_layout import byte_span


def overlapping_groups(*tensors: torch.Tensor) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The groups of tensors whose spans of one storage overlap, each of more than one tensor.

    Each member is its position among the arguments and its offset in the storage (elements). Two interleaved
    tensors (``x[::2]`` and ``x[1::2]``) count as overlapping.
    """
    spans = [(t.untyped_storage().data_ptr(), *byte_span(t)) for t in tensors]
    group = list(range(len(tensors)))
    for i, j in combinations(range(len(tensors)), 2):
        a, b = spans[i], spans[j]
        if a[0] == b[0] and a[0] != 0 and a[1] < b[2] and b[1] < a[2]:
            merged, gone = group[i], group[j]
            group = [merged if g == gone else g for g in group]
    groups: dict[int, list[tuple[int, int]]] = {}
    for position, g in enumerate(group):
        groups.setdefault(g, []).append((position, int(tensors[position].storage_offset())))
    return tuple(tuple(members) for members in groups.values() if len(members) > 1)
