"""Buckets of sizes that differ from call to call: a measurement of one size holds for a range of them.

The range in which a size of a call lies is asked about the size of the program, so that it is a fact of the
entry: calls of another range have a program of their own, with the decisions that were measured there.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Final

from thunder.core.analysis import SymbolicNumber
from thunder.core.entries import SymbolicInt
from thunder.core.proxies import TensorProxy
from thunder.core.trace import TraceCtx

__all__ = ["GRID", "Buckets", "borders_in"]

#: the last sizes of the buckets in which a tuning measures; none is one size alone, which would be fixed
GRID: Final = tuple(2**k for k in range(4, 25))

_RANGE: Final = re.compile(r"\bn\d+ in (\d+)\.\.(\d*)")


class Buckets:
    """Ranges of sizes, which end with borders; the last one has no end."""

    def __init__(self, borders: Iterable[int]) -> None:
        self._borders = sorted({*borders})

    def __bool__(self) -> bool:
        return bool(self._borders)

    def of(self, size: SymbolicInt) -> str:
        """Return the range of a size as ``17..32``, or ``33..``; the range is a fact of the program."""
        place = bisect_left(self._borders, size.hint)
        low = self._borders[place - 1] + 1 if place else 0
        high = self._borders[place] if place < len(self._borders) else None
        number: Any = size
        is_inside = number >= low and (high is None or number <= high)
        assert is_inside, "the traced call has a size of its range"
        return f"{low}..{'' if high is None else high}"

    def ask_all(self, trace: TraceCtx) -> None:
        """Make the range of each symbolic size of a program's inputs a fact, while facts can be added.

        A backward that is compiled later finds the answers.
        """
        sizes = {size.name: size for value in trace.args for size in sizes_of_inputs(value)}
        for size in sizes.values():  # not keys themselves: a size that is hashed is fixed
            self.of(size)


def sizes_of_inputs(value: Any) -> list[SymbolicInt]:
    """Return the sizes of inputs on which a tensor's shape or a number depends."""
    numbers = value.shape if isinstance(value, TensorProxy) else (value,)
    return [
        root
        for number in numbers
        if isinstance(number, SymbolicNumber)
        for root in number.roots
        if is_size_of_input(root)
    ]


def is_size_of_input(root: Any) -> bool:
    """Return whether a number is a size of an input: no number among the arguments, and no size of data."""
    return (
        isinstance(root, SymbolicInt)
        and root.variable is not None
        and root.facts.is_size(root.variable)
        and root.variable not in root.facts.computed
    )


def borders_in(keys: Iterable[str]) -> set[int]:
    """Return the borders of the ranges in keys: the last sizes of these, and of those before them."""
    found = (match.groups() for key in keys for match in _RANGE.finditer(key))
    borders = {border for low, high in found for border in (int(low) - 1, int(high or 0))}
    return {border for border in borders if border > 0}
