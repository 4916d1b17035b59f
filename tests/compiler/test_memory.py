"""The memory estimate, against the bytes that torch's allocator hands out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder.compiler.memory_estimate import MemoryEstimate, estimate_memory

KIB = 1024


def measured(fn: Callable[..., Any], *args: torch.Tensor) -> tuple[int, int]:
    """The most bytes beside the arguments, as torch's profiler sees them: of a call; with its backward."""
    compiled = thunder.jit(fn)
    compiled(*args)

    def forward() -> Any:
        return compiled(*args)

    def step() -> None:
        loss = compiled(*args)
        torch.autograd.grad(loss, [a for a in args if a.requires_grad])

    trains = any(a.requires_grad for a in args)
    return peak_bytes(forward), peak_bytes(step) if trains else 0


def peak_bytes(step: Callable[[], Any]) -> int:
    """The highest sum of what the CPU allocator has given and not got back, from the events of one run."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        step()
    live = most = 0
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        most = max(most, live)
    return most


def chain(x: torch.Tensor) -> torch.Tensor:
    return x.sin().exp().cos().sum()


def two_branches(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    a, b = x.exp(), x.sin()
    return ((a * w).sum() + (b * w).sum()) * 2


def views(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x.view(-1)[128:].view(-1, 128).exp() * w).sum()


def copied_view(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1).reshape(-1).exp().sum() + w.sum()


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ w.t()).sum()


def several_results(x: torch.Tensor) -> Any:
    values, _ = x.max(dim=0)
    return values.sum()


X, W = torch.rand(256, 128), torch.rand(1, 128)


@pytest.mark.parametrize("fn", [chain, two_branches, views, copied_view, product, several_results])
@pytest.mark.parametrize("grad", [False, True])
def test_the_estimate_is_what_the_allocator_says(fn: Callable[..., Any], grad: bool) -> None:
    arguments = [t.clone().requires_grad_(grad) for t in (X, W)[: fn.__code__.co_argcount]]
    memory = thunder.plan(fn, *arguments).memory
    forward, step = measured(fn, *arguments)
    assert memory.inputs == sum(a.untyped_storage().nbytes() for a in arguments)
    # a few scalars (cotangents, counters of the profiler's own) are there beside the tensors of the program
    assert memory.forward == pytest.approx(forward, abs=256)
    if grad:
        assert max(memory.forward, memory.backward) == pytest.approx(step, abs=256)
    assert memory.peak == memory.inputs + max(memory.forward, memory.backward)


def test_saved_bytes_are_those_that_the_graph_keeps_without_inputs() -> None:
    x = X.clone().requires_grad_()

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin().exp().cos()

    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() != x.untyped_storage().data_ptr():
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    compiled = thunder.jit(f, rematerialization="none")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = compiled(x)
    memory = thunder.plan(f, x, rematerialization="none").memory
    assert result.requires_grad
    assert memory.saved == sum(kept.values()) > 0


def test_recomputing_saves_bytes_and_shows() -> None:
    def long_chain(x: torch.Tensor) -> torch.Tensor:
        return x.sin().exp().cos().tanh().sum()

    x = X.clone().requires_grad_()
    plans = {mode: thunder.plan(long_chain, x, rematerialization=mode) for mode in ("none", "min-cut")}
    assert plans["min-cut"].memory.saved < plans["none"].memory.saved


def test_an_expanded_input_has_the_bytes_of_its_storage() -> None:
    x = torch.ones(1, 128).expand(256, 128)
    memory = thunder.plan(torch.exp, x).memory
    assert (memory.inputs, memory.forward) == (128 * 4, 256 * 128 * 4)


def test_what_is_written_to_an_input_takes_no_memory_twice() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x

    assert thunder.plan(f, X.clone()).memory == MemoryEstimate(inputs=128 * KIB, forward=0)


def test_a_result_that_nobody_reads_lives_as_long_as_its_statement() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        largest, _ = x.max(dim=1)
        return largest

    memory = thunder.plan(f, X).memory
    assert memory.forward == 256 * 4 + 256 * 8


def test_the_traces_alone_are_enough() -> None:
    compiled = thunder.jit(chain)
    x = X.clone().requires_grad_()
    compiled(x)
    forward, backward = thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]
    assert estimate_memory(forward, backward) == thunder.plan(chain, x).memory


CONVOLUTIONS = {
    "blocks of channels": lambda x, w: F.conv2d(x, w, padding=1),
    "strides": lambda x, w: F.conv2d(x, w, stride=2, padding=1),
    "channels that fill no block": lambda x, w: F.conv2d(x, w[:5], padding="same"),
    "few channels": lambda x, w: F.conv2d(x[:, :3], w[:, :3]),
    "groups": lambda x, w: F.conv2d(x, w[:, :1], groups=16),
    "transposed": lambda x, w: F.conv_transpose2d(x, w[:16], stride=2),
    "one dimension": lambda x, w: F.conv1d(x[..., 0], w[..., 0], padding=1),
    "columns, since of one small image": lambda x, w: F.conv2d(x[:1, :, :8, :8], w),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_what_convolutions_allocate_for_themselves_is_counted(name: str) -> None:
    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return CONVOLUTIONS[name](x, w).square().sum()

    x, w = torch.rand(4, 16, 32, 32, requires_grad=True), torch.rand(32, 16, 3, 3, requires_grad=True)
    memory = thunder.plan(step, x, w, executors="torch").memory
    forward, whole = measured(step, x, w)
    assert memory.forward == pytest.approx(forward, rel=0.05)
    assert max(memory.forward, memory.backward) == pytest.approx(whole, rel=0.05)


@pytest.mark.parametrize("of_weight", [torch.channels_last, torch.contiguous_format], ids=["weight", "image"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("channels", [(3, 8), (4, 16), (8, 8), (16, 1), (16, 32), (24, 8)])
def test_few_channels_that_are_innermost_are_counted(channels, stride, of_weight) -> None:
    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, stride=stride, padding=1).square().sum()

    inside, outside = channels
    x = torch.rand(2, inside, 24, 24).to(memory_format=torch.channels_last).requires_grad_()
    w = torch.rand(outside, inside, 3, 3).to(memory_format=of_weight).requires_grad_()
    memory = thunder.plan(step, x, w, executors="torch").memory
    _, whole = measured(step, x, w)
    assert max(memory.forward, memory.backward) == pytest.approx(whole, rel=0.05)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [3, 7])
@pytest.mark.parametrize("channels", [(1, 8), (8, 64)])
def test_scratch_memory_that_holds_numbers_is_counted(channels, kernel, stride) -> None:
    """One channel is put in another order, and the gradient of a strided result is padded."""
    if (channels, kernel, stride) == (
        (1, 8),
        7,
        2,
    ) and "AVX512" not in torch.backends.cpu.get_cpu_capability():
        pytest.skip("without AVX-512 oneDNN reads this channel as it is, and the plan has an upper bound")

    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, stride=stride, padding=kernel // 2).square().sum()

    inside, outside = channels
    x = torch.rand(2, inside, 64, 64).to(memory_format=torch.channels_last).requires_grad_()
    w = torch.rand(outside, inside, kernel, kernel).to(memory_format=torch.channels_last).requires_grad_()
    memory = thunder.plan(step, x, w, executors="torch").memory
    _, whole = measured(step, x, w)
    assert max(memory.forward, memory.backward) == pytest.approx(whole, rel=0.05)


def test_a_gradient_that_is_expanded_is_copied_by_a_convolution() -> None:
    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, padding=1).sum()

    x, w = torch.rand(4, 16, 32, 32, requires_grad=True), torch.rand(32, 16, 3, 3, requires_grad=True)
    memory = thunder.plan(step, x, w, executors="torch").memory
    assert max(memory.forward, memory.backward) == pytest.approx(measured(step, x, w)[1], rel=0.02)
