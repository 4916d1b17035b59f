"""Programs that are slow for one reason each, and programs that are as they should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import thunder
from thunder.extend import OperatorExecutor

#: a compiled object, called as its user has called it before, and the arguments of the call
Asked = tuple[Any, tuple[Any, ...]]


class ManyParameters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ParameterList(nn.Parameter(torch.ones(1), requires_grad=False) for _ in range(2000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.cat(list(self.parts)).sum()


class Layers(nn.Module):
    def __init__(self, width: int, depth: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return x


def compiled(fn: Callable[..., Any], *calls: tuple[Any, ...], by: str = "torch", **options: Any) -> Any:
    """A compiled object after these calls."""
    result = thunder.jit(fn, executors=[by], **options)
    for args in calls:
        result(*args)
    return result


def in_a_mode(x: torch.Tensor, mode: str) -> torch.Tensor:
    return torch.sin(x) if mode == "a" else torch.cos(x)


def random_steps(x: torch.Tensor) -> torch.Tensor:
    for _ in range(int(torch.randint(0, 40, ()))):
        x = x + 1
    return x


def waves(x: torch.Tensor) -> torch.Tensor:
    for _ in range(20):
        x = torch.sin(x) * 0.5 + 1
    return x


def numbers(x: torch.Tensor) -> torch.Tensor:
    total = 0.0
    for row in range(40):
        total = total + x[row].sum().item()
    return x * total


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous() + 1


def without_a_row(x: torch.Tensor) -> torch.Tensor:
    return torch.special.bessel_y1(x) + 1


def refused_by_inductor(x: torch.Tensor) -> torch.Tensor:
    return torch.special.bessel_j0(x.sin() * 2)


def cut(x: torch.Tensor) -> torch.Tensor:
    for _ in range(12):
        x = torch.special.bessel_j0(x.sin() * 2)
    return x


def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].sum()


def many_parameters() -> Asked:
    args = (torch.ones(4),)
    return compiled(ManyParameters(), args, args), args


def called_once() -> Asked:
    args = (torch.ones(4, 16),)
    return compiled(Layers(16, 40).requires_grad_(False), args), args


def other_text_in_each_call() -> Asked:
    x = torch.ones(4000)
    return compiled(in_a_mode, *((x, mode) for mode in "abcdef")), (x, "g")


def other_size_in_each_call() -> Asked:
    calls = [(torch.ones(4000 + n),) for n in range(6)]
    return compiled(waves, *calls, cache="constant values"), (torch.ones(4100),)


def no_cache() -> Asked:
    args = (torch.ones(40),)
    return compiled(torch.sin, args, args, cache="no caching"), args


def other_answer_in_each_call() -> Asked:
    args = (torch.ones(4),)
    return compiled(random_steps, *[args] * 6, recompile_limit=2), args


def few_operations() -> Asked:
    args = (torch.ones(3),)
    return compiled(torch.sin, args, args), args


def many_operations() -> Asked:
    args = (torch.ones(20_000),)
    return compiled(waves, args, args), args


def reads_in_a_loop() -> Asked:
    args = (torch.ones(40, 8),)
    return compiled(numbers, args, args), args


def large_copy() -> Asked:
    args = (torch.ones(1500, 1500),)
    return compiled(transposed, args, args), args


def unknown_function() -> Asked:
    args = (torch.ones(40_000),)
    return compiled(without_a_row, args, args), args


def unknown_to_the_fuser() -> Asked:
    args = (torch.ones(40_000),)
    return compiled(refused_by_inductor, args, args, by="inductor"), args


def many_regions() -> Asked:
    args = (torch.ones(4),)
    return compiled(cut, args, args, by="inductor"), args


def large_residuals() -> Asked:
    args = (torch.randn(1500, 1500, requires_grad=True),)
    return compiled(positive, args, args), args


def sine_of_many(x: torch.Tensor) -> torch.Tensor:
    for _ in range(8):
        torch.sin(x)
    return torch.sin(x)


def slow_kernel() -> Asked:
    executor = OperatorExecutor("slow_kernels")
    sin = executor.register_operator("sin", like=thunder.torch.sin, fn=sine_of_many)
    executor.register_implementation("torch.sin", sin)
    args = (torch.ones(50_000),)
    program = thunder.jit(torch.sin, executors=[executor, "torch"])
    program(*args)
    program(*args)
    return program, args


#: kind of the finding → a program that is slow for this reason
SLOW: dict[str, list[Callable[[], Asked]]] = {
    "first call": [called_once],
    "recompiles": [other_text_in_each_call, other_size_in_each_call, no_cache],
    "run by Python": [other_answer_in_each_call],
    "guards": [many_parameters],
    "small program": [few_operations],
    "synchronisations": [reads_in_a_loop],
    "copies": [large_copy],
    "no fusion": [many_operations],
    "left to torch": [unknown_to_the_fuser],
    "fallback": [unknown_function],
    "small regions": [many_regions],
    "memory": [large_residuals],
    "kernels": [slow_kernel],
}


def network() -> Asked:
    args = (torch.randn(256, 128),)
    return compiled(Layers(128), *[args] * 4), args


def fused_waves() -> Asked:
    args = (torch.ones(40_000),)
    return compiled(waves, *[args] * 4, by="inductor"), args


def product() -> Asked:
    args = (torch.randn(300, 300), torch.randn(300, 300))
    return compiled(torch.matmul, *[args] * 4), args


def convolutions() -> Asked:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3))
    args = (torch.randn(4, 3, 32, 32),)
    return compiled(model, *[args] * 4), args


def attention() -> Asked:
    model = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    args = (torch.randn(4, 64, 64),)
    return compiled(model, *[args] * 4), args


def large_sum() -> Asked:
    args = (torch.ones(500_000),)
    return compiled(lambda x: x + 1, *[args] * 4, by="inductor"), args


def not_called_before() -> Asked:
    return Layers(128), (torch.randn(256, 128),)


def sizes_that_have_become_symbols() -> Asked:
    calls = [(torch.randn(256 + n, 128),) for n in range(2)]
    model = Layers(128)
    return compiled(model, *calls, (torch.randn(300, 128),)), (torch.randn(256, 128),)


#: programs of which there is nothing to say
FAST = [
    *(network, fused_waves, product, convolutions, attention, large_sum, not_called_before),
    sizes_that_have_become_symbols,
]
