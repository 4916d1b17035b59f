"""Tuning on a CUDA device: the same code measures, and waits for the device."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import gelu

import thunder
from autotune.traps import Clock, executor_of
from thunder_autotune import autotune
from thunder_autotune.profiles import profile


@pytest.mark.gpu
def test_a_slow_kernel_on_a_gpu_gives_way_to_torch() -> None:
    def slow(x: torch.Tensor, approximate: str) -> torch.Tensor:
        for _ in range(50):
            x = x + 0
        return gelu(x, approximate=approximate)

    ex = executor_of(slow, "slow_on_gpu")
    x = torch.randn(256, 256, device="cuda")
    tuning = autotune(thunder.jit(lambda x: gelu(x) * 2, executors=[ex]), x)
    (entry,) = tuning.entries
    assert (entry.default, entry.executor) == (ex.name, "torch")
    assert entry.profile == profile() == f"cuda {torch.cuda.get_device_name()}"
    assert torch.equal(tuning.compiled(x), gelu(x) * 2)


@pytest.mark.gpu
def test_a_kernel_that_keeps_memory_of_a_gpu_is_out(clock: Clock) -> None:
    kept: list[torch.Tensor] = []

    def leaks(x: torch.Tensor, approximate: str) -> torch.Tensor:
        kept.append(x * 2)
        return gelu(x, approximate=approximate)

    ex = executor_of(leaks, "leaking_on_gpu")
    x = torch.randn(64, 64, device="cuda")
    (entry,) = autotune(thunder.jit(lambda x: gelu(x), executors=["torch", ex]), x, timer=clock).entries
    assert "it keeps memory" in entry.refused[ex.name]
