"""How a whole program is judged: with some decisions beside the default, by its results and its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt
from statistics import quantiles
from typing import Any

import torch

from thunder.core.pytree import tree_iter
from thunder_autotune.entries import Entries, Figure
from thunder_autotune.groups import Group, slowest_figures
from thunder_autotune.timing import Timer
from thunder_bisect.slowness.answer import Times
from thunder_bisect.slowness.runs import Call, warm

__all__ = ["ProgramComparison"]

#: how far results of the tuned program may be from those of the default one, relative to their norm
_DISTANCE: Mapping[torch.dtype, float] = {torch.float64: 1e-9, torch.float32: 1e-4}
_LOW_DISTANCE = 3e-2
#: how often the processes of a group call a form before it is timed
_WARM = 2


class ProgramComparison:
    """Compares forms of one program in one call.

    Args:
        form: returns the program with decisions.
        base: returns the decisions of the default. What is wrong by default is not what is compared with.
        group: the processes that run the program together.
    """

    def __init__(
        self,
        call: Call,
        timer: Timer,
        form: Callable[[Entries], Any],
        base: Callable[[], Entries],
        group: Group,
    ) -> None:
        self._call, self._timer, self._form, self._base, self._group = call, timer, form, base, group
        self._default: Any = None

    def __call__(self, entries: Entries) -> tuple[Figure, Figure] | None:
        """Return the times of the program by default and with decisions; None where its results differ."""
        if self._default is None:
            self._default = self._form(self._base())
            self._warm(self._default)
        tuned = self._form(entries)
        self._warm(tuned)
        default, other = self._results(self._default), self._results(tuned)
        if self._group.any(len(default) != len(other) or not all(map(_is_near, default, other))):
            return None
        times = self._timer.program(self._call, {"default": self._default, "tuned": tuned})
        return slowest_figures(self._group.all(lambda: compared(times["default"], times["tuned"])))

    def _warm(self, form: Any) -> None:
        """Call a form until it compiles nothing; equally often in processes that wait for each other."""
        if self._group.size == 1:
            warm(self._call, form)
            return
        for _ in range(_WARM):
            self._call.run(form)
            self._call.restore()

    def _results(self, form: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        found = self._call.run(form)
        results = [x.detach().clone() for x in tree_iter(found) if isinstance(x, torch.Tensor)]
        self._call.restore()
        return results


def compared(default: Times, tuned: Times) -> tuple[Figure, Figure]:
    """Return the time of the program by default, and with decisions by the differences of runs in turns.

    What slows down both runs of a round cancels in their difference. The spread is that of the median of the
    differences: 1.57 times the distance between the quartiles, divided by the square root of their number
    (McGill, Tukey and Larsen, Variations of box plots, 1978).
    """
    differences = [(b - a) * 1e6 for a, b in zip(default.walls, tuned.walls, strict=True)]
    low, middle, high = quantiles(differences, n=4, method="inclusive")
    us = default.wall * 1e6
    return Figure(us), Figure(us + middle, 1.57 * (high - low) / sqrt(len(differences)))


def _is_near(x: torch.Tensor, y: torch.Tensor) -> bool:
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if not (x.is_floating_point() or x.is_complex()) or x.layout is not torch.strided:
        return True  # choices between values that rounding does not tell apart may differ
    distance = float((x - y).double().nan_to_num(0.0).norm()) if not x.is_complex() else float((x - y).norm())
    norm = float(x.double().nan_to_num(0.0, 0.0, 0.0).norm()) if not x.is_complex() else float(x.norm())
    return distance <= _DISTANCE.get(x.dtype, _LOW_DISTANCE) * max(norm, 1e-12)
