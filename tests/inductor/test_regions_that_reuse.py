"""Regions compute outputs in the memory of inputs that end, and nobody sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

import thunder
from thunder.passes.placed_writes import own_memory

pytestmark = pytest.mark.xdist_group("inductor")


@pytest.fixture
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small values give their memory too."""
    monkeypatch.setattr(own_memory, "SMALLEST", 0)


def regions(compiled: Any, traces: Callable[..., Any] = thunder.last_traces) -> list[str]:
    """Return the names of the regions of the last trace that compute in memory of inputs."""
    names = [b.sym.name for b in traces(compiled)[-1].bound_symbols if b.sym.is_fusion]
    return [name for name in names if "_reuses" in name or "_takes" in name]


def gated(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return (F.silu(x @ w) * (x @ w.t()).sigmoid()) @ v


def arguments() -> list[Tensor]:
    """Return matrices whose products run in torch's kernels."""
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(256, 256, generator=generator, dtype=torch.float64) / 16 for _ in range(3)]


def test_a_value_gives_its_memory_to_the_result_of_the_region_that_reads_it_last(every_size: None) -> None:
    compiled = thunder.jit(gated)
    torch.testing.assert_close(compiled(*arguments()), gated(*arguments()))
    assert regions(compiled)


def test_a_value_that_is_read_later_or_returned_keeps_its_memory(every_size: None) -> None:
    def read(x: Tensor, w: Tensor) -> Tensor:
        h = x @ w
        return (F.gelu(h) * h.sin()) @ w + torch.linalg.inv(h)

    def returned(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        h = x @ w
        return F.gelu(h) * h.sin(), h

    def viewed(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        h = x @ w
        return F.gelu(h) * h.sin(), h[2:]

    def given(x: Tensor, w: Tensor) -> Tensor:
        return F.gelu(x) * w.sin() + x

    for program in (read, returned, viewed, given):
        compiled, operands = thunder.jit(program), arguments()[:2]
        for _ in range(2):
            torch.testing.assert_close(compiled(*operands), program(*operands))
        torch.testing.assert_close(operands, arguments()[:2])
        assert not regions(compiled), program.__name__


def test_a_value_that_is_read_in_another_order_keeps_its_memory(every_size: None) -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        h = x @ w
        return h.t() * h.sin() + h.sum(0)

    compiled = thunder.jit(program)
    torch.testing.assert_close(compiled(*arguments()[:2]), program(*arguments()[:2]))
    assert not regions(compiled)


@pytest.mark.parametrize("case", ["plain", "twice", "held", "hooks"])
def test_saved_values_are_taken_only_if_nobody_else_has_them(every_size: None, case: str) -> None:
    """With ``retain_graph``, under hooks of saved tensors and by ``saved_tensors`` others have them."""
    compiled = thunder.jit(gated)
    kept: list[Tensor] = []

    def pack(t: Tensor) -> Tensor:
        kept.append(t)
        return t

    gradients = []
    for run in (compiled, gated):
        tensors = [t.requires_grad_() for t in arguments()]
        hooks = saved_tensors_hooks(pack, lambda t: t) if case == "hooks" else nullcontext()
        with hooks:
            result = run(*tensors)
        held = list(getattr(result.grad_fn, "saved_tensors", ())) if case == "held" else []
        before = [t.detach().clone() for t in (*held, *kept)]
        for n in range(2 if case == "twice" else 1):
            result.sum().backward(retain_graph=case == "twice" and n == 0)
        torch.testing.assert_close([t.detach() for t in (*held, *kept)], before)
        gradients.append([t.grad for t in tensors])
    torch.testing.assert_close(*gradients)
    assert regions(compiled, thunder.last_backward_traces)


def test_a_result_is_no_inference_tensor_where_its_mode_has_ended(every_size: None) -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        with torch.inference_mode():
            h = x @ w
        return F.gelu(h.sin()).cos()

    compiled = thunder.jit(program)
    for run in (compiled, program):
        result = run(*arguments()[:2])
        torch.testing.assert_close(result, program(*arguments()[:2]))
        assert not result.is_inference()


PEAK = """
import torch
import thunder
from thunder_benchmarks.models.stacks import gated_mlp
from thunder_benchmarks.step_memory import peak_bytes

model = gated_mlp(64, 512)
x, compiled = torch.randn(512, 64), thunder.jit(model)

def step():
    compiled(x).backward(torch.ones(512, 64))
    model.zero_grad()

step()
print(peak_bytes(step) / (512 * 512 * 4))
"""


@pytest.mark.sweep
def test_a_step_needs_less_memory_than_the_same_step_of_torch_compile() -> None:
    """Its peak is that of two hidden values which the backward reads, and of one gradient of them.

    In a process of its own: what others hold of a tensor is asked of its references.
    """
    variables = {**os.environ, "THUNDER_DISABLE_PLUGINS": ""}
    command = [sys.executable, "-c", PEAK]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    assert float(done.stdout.splitlines()[-1]) < 3.6


def test_a_region_whose_writes_only_come_after_a_value_compiles() -> None:
    """TorchInductor asks each user of a value between its loops by which index it reads it."""

    def program(x: torch.Tensor, w: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def loss(x: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(F.linear(x, w), target)

        return torch.func.jvp(loss, (x,), (torch.ones_like(x),))

    x, w = torch.randn(128, 24, requires_grad=True), torch.randn(4096, 24, requires_grad=True)
    target = torch.randint(4096, (128,))
    torch.testing.assert_close(thunder.jit(program)(x, w, target), program(x, w, target))
