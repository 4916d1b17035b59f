"""Layouts of reshaped values: the part of the result has the elements of the reshaped part."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from thunder_distributed.sequences.parts import ARRANGEMENTS, chunks_of
from thunder_distributed.sharding.shard import Shard

SHAPES = [
    (2, 8, 3), (16, 3), (2, 24), (48,), (2, 8, 3, 1), (1, 16, 3), (2, 2, 4, 3), (4, 4, 3), (2, 8, 1, 3),
]  # fmt: skip


def part(full: torch.Tensor, layout: Shard, rank: int) -> torch.Tensor:
    """Return what a process has of a tensor, by torch."""
    chunks, count = chunks_of(layout.arrangement or "plain", rank, layout.size)
    split = full.unflatten(layout.dim, (layout.before, -1))
    pieces = split.chunk(count, layout.dim + 1)
    return torch.cat([pieces[c] for c in chunks], layout.dim + 1).flatten(layout.dim, layout.dim + 1)


@pytest.mark.parametrize("arrangement", [None, *ARRANGEMENTS])
def test_parts_of_reshaped_values_are_reshaped_parts(fake_group, arrangement):
    found = 0
    for old, new in product(SHAPES, SHAPES):
        full = torch.arange(48).view(old)
        for dim in (d for d, extent in enumerate(old) if extent % 4 == 0):
            layout = Shard("0", dim, old[dim], arrangement=arrangement)
            result = layout.reshaped(old, new)
            if result is None:
                continue
            found += 1
            for rank in range(2):
                expected = part(full.view(new), result, rank)
                here = part(full, layout, rank).reshape(result.local(new))
                assert torch.equal(here, expected), (old, new, layout)
                again = result.reshaped(new, old)
                assert arrangement is None or again == layout
    assert found > len(SHAPES)


@pytest.mark.parametrize(
    ("arrangement", "old", "new", "expected"),
    [
        (None, (2, 3, 8), (2, 3, 4, 2), 2),  # heads and their widths
        (None, (2, 3, 2), (6, 2), 1),
        (None, (3, 8), (24,), None),  # a piece has several ranges of the result
        (None, (2, 6), (2, 3, 2), None),  # three heads for two processes
        ("zigzag", (2, 3, 8), (6, 8), 1),
        ("zigzag", (3, 8), (24,), 0),
        ("zigzag", (2, 8), (2, 4, 2), None),  # the sequence would be in two dimensions
        ("plain", (2, 8), (2, 4, 2), None),
    ],
)
def test_the_divided_dimension_is_the_one_that_begins_with_its_elements(
    fake_group, arrangement, old, new, expected
):
    layout = Shard("0", len(old) - 1, old[-1], arrangement=arrangement)
    result = layout.reshaped(old, new)
    assert (None if result is None else result.dim) == expected
