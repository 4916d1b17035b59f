"""The division of a sequence into parts of nearly equal cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import Final

__all__ = ["balanced"]

#: how much more the most expensive part may cost than it has to, where that makes cuts cheaper
TOLERANCE: Final = 0.1


def balanced(costs: Sequence[int], parts: int, cuts: Sequence[int]) -> list[int]:
    """Return where all parts but the first begin, so that the most expensive part is as cheap as can be.

    No part is empty. Among the divisions whose most expensive part costs at most a tenth more, it is the one
    with the cheapest cuts. Dynamic programming over prefixes: the linear partition problem (Skiena, The
    algorithm design manual, 2nd ed., 8.5), once for the parts, and once for the cuts.

    Args:
        costs: of the elements.
        cuts: of beginning a part at each element.
    """
    sums = [0, *accumulate(costs)]
    least, _ = _best(len(costs), parts, lambda start, end: sums[end] - sums[start], max)
    most = (1 + TOLERANCE) * least

    def cost(start: int, end: int) -> float:
        return cuts[start] if sums[end] - sums[start] <= most else float("inf")

    return _best(len(costs), parts, cost, lambda a, b: a + b)[1]


def _best(
    length: int,
    parts: int,
    cost: Callable[[int, int], float],
    joined: Callable[[float, float], float],
) -> tuple[float, list[int]]:
    """Return the least joined cost of so many parts of a sequence, and where all but the first begin."""

    @cache
    def best(end: int, count: int) -> tuple[float, int]:
        if count == 1:
            return cost(0, end), 0
        return min(
            (joined(best(start, count - 1)[0], cost(start, end)), start) for start in range(count - 1, end)
        )

    begins: list[int] = []
    end = length
    for count in range(parts, 1, -1):
        end = best(end, count)[1]
        begins.append(end)
    return best(length, parts)[0], begins[::-1]
