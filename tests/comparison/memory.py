"""Memory that tensors share: each is written to in turn, and all that show it in eager must show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from comparison.values import assert_equal_tensors


def assert_same_memory(
    expected: Sequence[Any], found: Sequence[Any], what: str, *, exact: bool = False, note: str = ""
) -> None:
    """Assert that what is one object in eager is one, and that tensors share memory as eager's do.

    Writes to each tensor in turn, in both lists.
    """
    for i, (e, f) in enumerate(zip(expected, found, strict=True)):
        same = next(j for j, other in enumerate(expected) if other is e)
        assert found[same] is f, f"{what}: {same} and {i} are one object in eager, and two here{note}"
        if isinstance(e, torch.Tensor) and e.numel():
            write_to(e, i)
            write_to(f, i)
            after = f"{what}, after a write to number {i}"
            assert_equal_tensors(expected, found, after, exact=exact, note=note)


def write_to(x: torch.Tensor, number: int) -> None:
    """Write a value that depends on `number` to the first element of a tensor."""
    with torch.no_grad():
        x.detach()[(0,) * x.dim()].fill_(bool(number % 2) if x.dtype is torch.bool else 17 + number)
