"""The division of a sequence into parts of nearly equal cost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate

__all__ = ["balanced"]


def balanced(costs: Sequence[int], parts: int) -> list[int]:
    """Return where all parts but the first begin, so that the most expensive part is as cheap as can be.

    No part is empty. Among equal divisions, earlier parts are shorter. Dynamic programming over prefixes:
    the linear partition problem (Skiena, The algorithm design manual, 2nd ed., 8.5).
    """
    sums = [0, *accumulate(costs)]

    @cache
    def best(end: int, count: int) -> tuple[int, int]:
        """Return the cost of the most expensive of so many parts of a prefix, and where the last begins."""
        if count == 1:
            return sums[end], 0
        return min(
            (max(best(start, count - 1)[0], sums[end] - sums[start]), start)
            for start in range(count - 1, end)
        )

    begins: list[int] = []
    end = len(costs)
    for count in range(parts, 1, -1):
        end = best(end, count)[1]
        begins.append(end)
    return begins[::-1]
