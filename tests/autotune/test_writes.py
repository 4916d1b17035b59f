"""Calls and regions that write: what is written is judged, and given back before each run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from autotune.traps import FAST, Clock, Regions
from thunder.extend import OperatorExecutor, Region, evaluate_region, unwritten, writing_function
from thunder_autotune import autotune
from thunder_autotune.entries import CALLS

COPY = "prims.copy_"
Write = Callable[[torch.Tensor, torch.Tensor], Any]


def copying(clock: Clock, write: Write) -> OperatorExecutor:
    """Return an executor that copies to the inputs of a program, in 20 µs."""
    ex = OperatorExecutor("copying")

    def fn(a: torch.Tensor, b: torch.Tensor, *, grad_enabled: bool = False) -> torch.Tensor:
        clock.tick(FAST)
        write(a, b)
        return b

    ex.register_implementation(COPY, ex.register_operator("copy", like=thunder.core.prims.copy_, fn=fn))
    return ex


def shifted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.copy_(y.flip(0))
    return x + 1


def wrong(a: torch.Tensor, b: torch.Tensor) -> None:
    b.copy_(a)
    b[0] = 0.0


def also_its_source(a: torch.Tensor, b: torch.Tensor) -> None:
    b.copy_(a)
    a.zero_()


def only_once(a: torch.Tensor, b: torch.Tensor) -> None:
    b.copy_(torch.where(b == a, 0.0, a))  # right if `b` has other values before


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda a, b: b.copy_(a), None),
        (wrong, "elements differ"),
        (also_its_source, "it writes to its inputs"),
        (only_once, None),
    ],
    ids=["right", "wrong", "writes elsewhere", "depends on what was there"],
)
def test_what_a_call_writes_is_judged(clock: Clock, write: Write, words: str | None) -> None:
    ex, x, y = copying(clock, write), torch.rand(4, 4), torch.rand(4, 4)
    before = x.clone()
    tuning = autotune(thunder.jit(shifted, executors=["torch", ex]), x, y, timer=clock)
    assert torch.equal(x, before)
    (entry,) = [entry for entry in tuning.entries if entry.key.startswith(COPY)]
    if words is None:
        assert (entry.refused, round(entry.figures[ex.name].us)) == ({}, FAST)
    else:
        assert words in entry.refused[ex.name]


class Writing(Regions):
    """A compiler whose regions write their outputs to inputs."""

    writes = True

    def compile_region(self, region: Region) -> Any:
        def compute(*inputs: Any) -> list[torch.Tensor]:
            self._clock.tick(self._us)
            return [x * self._factor for x in evaluate_region(region, inputs)]

        def write(*inputs: Any) -> list[torch.Tensor]:
            outputs = compute(*inputs)
            for output, target in region.copied:
                inputs[target].copy_(outputs[output])
            return unwritten(region, outputs)

        return writing_function(region, write) if region.copied else compute


def update(x: torch.Tensor) -> torch.Tensor:
    y = torch.sin(torch.sin(x))
    x.copy_(y)
    return y


@pytest.mark.parametrize(
    ("us", "factor", "left"),
    [(20.0, 1.0, False), (90.0, 1.0, True), (20.0, 1.01, True)],
    ids=["fast", "slow", "wrong"],
)
def test_a_region_that_writes_to_inputs_is_measured(
    clock: Clock, us: float, factor: float, left: bool
) -> None:
    ex, x = Writing(clock, us, factor), torch.rand(4, 4)
    before = x.clone()
    with torch.no_grad():
        tuning = autotune(thunder.jit(update, executors=[ex]), x, timer=clock)
        (entry,) = tuning.entries
        assert entry.executor == (CALLS if left else ex.name)
        assert torch.equal(x, before)
        result = tuning.compiled(x)
    assert torch.equal(x, result)
    torch.testing.assert_close(x, torch.sin(torch.sin(before)))
