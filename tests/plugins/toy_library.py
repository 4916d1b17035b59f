"""A small library of arrays, as a stranger would write it; it knows nothing of thunder.

The elements are numbers in memory of C, and so is the scale by which new grids are filled: an interpreter of
Python can follow neither.
"""

from __future__ import annotations

import array
import ctypes
import operator
from collections.abc import Callable, Sequence
from typing import Any

_scale = ctypes.c_double(1.0)
_journal: list[str] = []


class Grid:
    """A vector of floats with a unit."""

    def __init__(self, elements: Sequence[float], unit: str = "") -> None:
        self._memory = (ctypes.c_double * len(elements))(*elements)
        self.unit = unit

    @property
    def elements(self) -> array.array[float]:
        """The elements, as a copy."""
        return array.array("d", self._memory)

    def __len__(self) -> int:
        return len(self._memory)

    def __add__(self, other: Grid | float) -> Grid:
        return _combined(operator.add, self, other)

    def __mul__(self, other: Grid | float) -> Grid:
        return _combined(operator.mul, self, other)


def _combined(fn: Callable[[float, float], float], a: Grid, b: Grid | float) -> Grid:
    if not isinstance(b, Grid):
        return Grid([fn(x, b) for x in a.elements], a.unit)
    if a.unit != b.unit:
        raise ValueError(f"a grid in {a.unit!r} and one in {b.unit!r}")
    return Grid([fn(x, y) for x, y in zip(a.elements, b.elements, strict=True)], a.unit)


def ones(n: int, unit: str = "") -> Grid:
    """Return a grid of the elements one, times the scale."""
    return Grid([get_scale()] * n, unit)


def total(grid: Grid) -> float:
    """Return the sum of the elements."""
    return sum(grid.elements)


def get_scale() -> float:
    """Return the scale of new grids."""
    return _scale.value


def set_scale(value: float) -> None:
    """Set the scale of new grids."""
    _scale.value = value


def from_tensor(tensor: Any, unit: str = "") -> Grid:
    """Return a grid with the elements of a tensor of torch."""
    return Grid(tensor.tolist(), unit)


def to_tensor(grid: Grid) -> Any:
    """Return a tensor of torch with the elements of a grid."""
    import torch

    return torch.tensor(grid.elements, dtype=torch.float64)
