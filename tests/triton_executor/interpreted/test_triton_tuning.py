"""Block sizes chosen by measuring; the tests bring a measure, since the interpreter has no times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder
import thunder_triton
from thunder.extend import FusionExecutor
from thunder.plugins import get_manager
from thunder_triton import compiling, tuning
from thunder_triton.executor import ex
from thunder_triton.fusions.blocks import Blocks, alternatives, blocks_for, power_of_two
from thunder_triton.region_functions import RegionFunction


def program(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x * w
    return F.softmax(y, -1), y.sum(0) * 2


@pytest.fixture(autouse=True)
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))
    with get_manager().temporary(thunder_triton, name="triton-under-test"):
        yield


def region_function(compiled: Any) -> RegionFunction:
    """Return the function of the one fusion of a compiled program."""
    (fusion,) = [b for b in thunder.last_traces(compiled)[-1].bound_symbols if b.sym.is_fusion]
    assert isinstance(fusion.sym.python_impl, RegionFunction)
    return fusion.sym.python_impl


@pytest.mark.parametrize("rows", [1, 3, 70, 5000])
@pytest.mark.parametrize("length", [1, 6, 900, 20_000])
def test_alternatives_are_blocks_that_triton_takes(rows: int, length: int):
    for contiguous in (False, True):
        blocks = blocks_for(rows, length, rows_are_contiguous=contiguous, reduces=length > 1)
        others = alternatives(blocks, rows, length)
        assert blocks not in others
        assert len(set(others)) == len(others)
        for other in others:
            assert other.loops == blocks.loops
            assert bool(other.length) == bool(blocks.length)
            assert other.length in (0, power_of_two(other.length))
            assert other.rows == power_of_two(other.rows)
            assert other.warps in (1, 2, 4, 8, 16)
            assert other.loops or other.length == blocks.length


def test_every_alternative_computes_the_same():
    torch.manual_seed(0)
    x, w = torch.randn(6, 10), torch.randn(10)
    compiled = thunder.jit(program, executors=[ex])
    expected = compiled(x, w)
    function = region_function(compiled)
    strides = (x.stride(), w.stride())
    first = function.program(strides)
    kernels = first.kernels
    tried = 0
    for i, kernel in enumerate(kernels):
        for blocks in kernel.alternatives:
            choice = tuple(blocks if i == k else other.blocks for k, other in enumerate(kernels))
            launch = compiling.launcher(function._generated(strides, choice), torch.device("cpu"))
            inputs = {"x": x, "w": w}
            for result, reference in zip(launch(*(inputs[n] for n in first.inputs)), expected, strict=True):
                torch.testing.assert_close(result, reference, rtol=2e-6, atol=2e-6)
            tried += 1
    assert tried >= 4


def test_the_blocks_that_take_the_least_time_are_chosen_one_kernel_after_the_other():
    class Program:
        def __init__(self, choice: Any) -> None:
            sizes = choice or (Blocks(4, 0, False, 1), Blocks(2, 0, False, 1))
            self.kernels = [Kernel(blocks) for blocks in sizes]

    class Kernel:
        def __init__(self, blocks: Blocks) -> None:
            self.blocks = blocks
            self.alternatives = [Blocks(rows, 0, False, 1) for rows in (1, 8, 16, 32) if rows != blocks.rows]

    def time(tried: Any) -> float:
        first, second = (kernel.blocks.rows for kernel in tried.kernels)
        return abs(first - 16) + abs(second - 8) + 0.5

    generate: Any = Program
    assert [b.rows for b in tuning.best_choice(generate, time)] == [16, 8]
    assert [b.rows for b in tuning.best_choice(generate, lambda tried: 1.0)] == [4, 2]  # as it was


def test_a_choice_is_measured_once_and_kept_for_equal_regions(monkeypatch: pytest.MonkeyPatch):
    measured: list[float] = []

    def milliseconds(run: Callable[[], Any]) -> float:
        assert len(run()) == 2
        measured.append(-float(len(measured)))  # the last is the best
        return measured[-1]

    monkeypatch.setattr(tuning, "can_measure", lambda: True)
    monkeypatch.setattr(tuning, "milliseconds", milliseconds)
    torch.manual_seed(0)
    x, w = torch.randn(6, 10), torch.randn(10)
    compiled = thunder.jit(program, executors=[ex], triton_autotune=True)
    for _ in range(2):
        for result, reference in zip(compiled(x, w), program(x, w), strict=True):
            torch.testing.assert_close(result, reference, rtol=2e-6, atol=2e-6)
    chosen = region_function(compiled).program((x.stride(), w.stride())).kernels
    usual = region_function(compiled)._generated((x.stride(), w.stride()), None).kernels
    assert len(measured) == 1 + sum(len(kernel.alternatives) for kernel in usual)
    assert [k.blocks for k in chosen] == [k.alternatives[-1] for k in usual]

    count = len(measured)
    monkeypatch.setattr(ex, "_compiled", type(ex._compiled)())  # as in another process
    again = thunder.jit(lambda x, w: program(x, w), executors=[ex], triton_autotune=True)
    again(x, w)
    assert len(measured) == count
    assert [k.blocks for k in region_function(again).program((x.stride(), w.stride())).kernels] == [
        k.blocks for k in chosen
    ]
    again(x.t().contiguous().t(), w)  # other strides
    assert len(measured) > count


def test_without_the_option_and_in_the_interpreter_nothing_is_measured(monkeypatch: pytest.MonkeyPatch):
    def milliseconds(run: Callable[[], Any]) -> float:
        raise AssertionError("it was measured")

    monkeypatch.setattr(tuning, "milliseconds", milliseconds)
    x, w = torch.randn(6, 10), torch.randn(10)
    for options in ({}, {"triton_autotune": True}):
        thunder.jit(lambda x, w: program(x, w), executors=[ex], **options)(x, w)
    assert isinstance(ex, FusionExecutor)
