"""Clocks inside compiled programs: each reading is one of the call that runs, and never a constant."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder.base.errors import UnsupportedProgram


class Timed(nn.Module):
    """A layer that measures its own time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.elapsed = -1.0

    def forward(self, x: torch.Tensor) -> Any:
        start, begun = time.perf_counter(), time.time_ns()
        y = self.layer(x)
        time.sleep(0.0)
        self.elapsed = time.perf_counter() - start
        if self.elapsed > 600:
            y = y * 2
        return y, time.monotonic(), begun


@pytest.mark.parametrize("requires_grad", [False, True])
def test_each_call_reads_the_clock(requires_grad):
    model = Timed()
    compiled = thunder.jit(model)
    x = torch.ones(2, requires_grad=requires_grad)
    readings, elapsed = [], set()
    for _ in range(3):
        before = time.monotonic()
        y, reading, begun = compiled(x)
        assert torch.equal(y, model.layer(x))
        assert before <= reading <= time.monotonic()
        assert (type(reading), type(begun)) == (float, int)
        assert 0 <= model.elapsed < 600
        readings.append(begun)
        elapsed.add(model.elapsed)
    assert sorted(set(readings)) == readings
    assert len(elapsed) > 1
    assert thunder.cache_misses(compiled) == 1


def test_a_comparison_of_a_reading_is_a_decision():
    def program(x, start):
        return x + 1 if time.perf_counter() - start > 3600 else x - 1

    compiled = thunder.jit(program)
    for start, expected in ((1e9, -1), (-1e9, 1), (1e9, -1)):
        assert compiled(torch.zeros(1), start) == expected


def test_the_text_of_a_reading_is_made_in_each_call(capsys):
    def program(x):
        start = time.time()
        print(f"started {start:.6f}")
        return x, start

    compiled = thunder.jit(program)
    for _ in range(2):
        start = compiled(torch.ones(1))[1]
        assert capsys.readouterr().out == f"started {start:.6f}\n"


def test_a_reading_in_a_mapped_function_is_refused():
    with pytest.raises(
        UnsupportedProgram, match=r"reads time\.time\(\) in a mapped or differentiated function"
    ):
        thunder.jit(lambda x: torch.vmap(lambda a: a * time.time())(x))(torch.ones(2))


def test_a_reading_in_a_part_that_runs_again_is_refused():
    def region(x):
        return x.sin() * (time.time() > 0)

    with pytest.raises(UnsupportedProgram, match=r"reads time\.time\(\) in a checkpointed region"):
        thunder.jit(lambda x: torch.utils.checkpoint.checkpoint(region, x, use_reentrant=False))(
            torch.ones(1, requires_grad=True)
        )
