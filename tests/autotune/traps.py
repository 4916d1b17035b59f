"""Executors that a tuner has to see through, and a clock that their kernels turn on.

No test waits: a kernel says how long it takes, and the timer reads the clock.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.functional import gelu

import thunder
from thunder.extend import FusionExecutor, OperatorExecutor, Region, evaluate_region
from thunder_autotune.entries import CALLS
from thunder_bisect.slowness.answer import Times
from thunder_bisect.slowness.runs import Repeated

#: the time of torch's kernel, and of one that is faster, in microseconds
TORCH, FAST = 60.0, 20.0
GELU = "torch.nn.functional.gelu"
ROUNDS = 8

_numbers = itertools.count()


@dataclass
class Clock:
    """A clock in microseconds, and the timer that reads it: all runs of torch's kernel take `TORCH`."""

    now: float = 0.0
    #: how many kernels have run since the run began
    kernels: int = 0
    units: list[tuple[str, ...]] = field(default_factory=list)
    programs: int = 0

    def tick(self, us: float) -> None:
        """Note that a kernel has run for some time."""
        self.now += us
        self.kernels += 1

    def gelu(self, x: torch.Tensor, approximate: str, us: float) -> torch.Tensor:
        """Return what torch computes, in another time."""
        self.tick(us)
        return gelu(x, approximate=approximate)

    def _walls(self, call: Repeated, form: Callable[..., Any], own: float) -> float:
        begin, self.kernels = self.now, 0
        call.restore()
        call.run(form)
        return (self.now - begin + own) * 1e-6

    def _measured(
        self, call: Repeated, forms: Mapping[str, Callable[..., Any]], own: Mapping[str, float]
    ) -> dict[str, Times]:
        walls: dict[str, list[float]] = {name: [] for name in forms}
        for _ in range(ROUNDS):
            for name, form in forms.items():
                walls[name].append(self._walls(call, form, own[name]))
        return {name: Times(tuple(times), tuple(times)) for name, times in walls.items()}

    def unit(self, call: Repeated, forms: Mapping[str, Callable[..., Any]]) -> dict[str, Times]:
        self.units.append(tuple(forms))
        own = {name: TORCH if name in ("torch", CALLS) else 0.0 for name in forms}
        return self._measured(call, forms, own)

    def program(self, call: Repeated, forms: Mapping[str, Callable[..., Any]]) -> dict[str, Times]:
        self.programs += 1
        own = {name: TORCH * calls_by(form, "torch") for name, form in forms.items()}
        return self._measured(call, forms, own)


def calls_by(form: Any, executor: str) -> int:
    """Return how many of a program's calls of gelu an executor runs."""
    rows = thunder.explain(form).rows
    return sum(row.symbol == GELU and row.claimed_by == executor for row in rows)


def executor_of(kernel: Callable[[torch.Tensor, str], torch.Tensor], name: str = "trap") -> OperatorExecutor:
    """Return an executor that runs gelu by a kernel."""
    ex = OperatorExecutor(f"{name}{next(_numbers)}")

    def fn(a: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
        return kernel(a, approximate)

    ex.register_implementation(GELU, ex.register_operator("gelu", like=thunder.torch.gelu, fn=fn))
    return ex


def kernels(clock: Clock) -> dict[str, tuple[Callable[[torch.Tensor, str], torch.Tensor], str]]:
    """Return each trap: its name → a kernel that seems fast, and words of the reason why it is out."""
    leaked: list[torch.Tensor] = []
    runs = itertools.count()

    def fast(x: torch.Tensor, approximate: str) -> torch.Tensor:
        clock.tick(FAST)
        return gelu(x, approximate=approximate)

    def wrong_for_one_shape(x: torch.Tensor, approximate: str) -> torch.Tensor:
        return fast(x, approximate) * (1.001 if x.shape[-1] == 16 else 1.0)

    def draws(x: torch.Tensor, approximate: str) -> torch.Tensor:
        torch.rand(1)
        return fast(x, approximate)

    def leaks(x: torch.Tensor, approximate: str) -> torch.Tensor:
        result = fast(x, approximate)
        leaked.append(result)
        return result

    def leaks_inside(x: torch.Tensor, approximate: str) -> torch.Tensor:
        leaked.append(x * 2)
        return fast(x, approximate)

    def writes(x: torch.Tensor, approximate: str) -> torch.Tensor:
        result = fast(x, approximate)
        x.add_(1.0)
        return result

    def raises_for_some(x: torch.Tensor, approximate: str) -> torch.Tensor:
        if bool((x < 0).any()):
            raise ValueError("negative numbers")
        return fast(x, approximate)

    def less_exact(x: torch.Tensor, approximate: str) -> torch.Tensor:
        return fast(x.half(), approximate).float()

    def nondeterministic(x: torch.Tensor, approximate: str) -> torch.Tensor:
        return fast(x, approximate) * (1 + 1.2e-7 * (next(runs) % 2))

    return {
        "wrong for one shape": (wrong_for_one_shape, "elements"),
        "draws random numbers": (draws, "it draws random numbers"),
        "leaks its results": (leaks, "it keeps memory: 1 more"),
        "leaks other tensors": (leaks_inside, "it keeps memory: 1 more"),
        "writes to its input": (writes, "it writes to its inputs"),
        "raises for some values": (raises_for_some, "it raises ValueError: negative numbers on other values"),
        "less exact": (less_exact, ""),
        "nondeterministic": (nondeterministic, "runs on the same values differ"),
    }


class Regions(FusionExecutor):
    """A compiler of regions whose code takes as long as it is told, and may be wrong."""

    def __init__(self, clock: Clock, us: float, factor: float = 1.0) -> None:
        super().__init__(f"regions{next(_numbers)}")
        self._clock, self._us, self._factor = clock, us, factor
        self.register_supported(GELU)
        self.register_supported("torch.sin")

    def compile_region(self, region: Region) -> Any:
        def run(*inputs: Any) -> list[torch.Tensor]:
            self._clock.tick(self._us)
            return [x * self._factor if self._factor != 1.0 else x for x in evaluate_region(region, inputs)]

        return run
