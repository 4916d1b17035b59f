"""Statistics of the rounds of two ways."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median, quantiles
from typing import Self

__all__ = ["Spread", "geometric_mean"]


@dataclass(frozen=True)
class Spread:
    """A median, and half the distance between the quartiles."""

    middle: float
    half: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return the spread of some values; that of one value is 0."""
        if len(values) == 1:
            return cls(values[0], 0.0)
        low, _, high = quantiles(values, n=4, method="inclusive")
        return cls(median(values), (high - low) / 2)

    @classmethod
    def of_ratios(cls, values: Sequence[float], base: Sequence[float]) -> Self:
        """Return the spread of the ratios of two ways in the same rounds."""
        return cls.of([value / other for value, other in zip(values, base, strict=True)])


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of positive values."""
    logarithms = [log(value) for value in values]
    return exp(sum(logarithms) / len(logarithms))
