"""Compares eager, torch.compile and the executor `inductor` in both modes, in one process and one run.

    python inductor_benchmark.py {elementwise,mlp,litgpt,convolutions} [train] [--bfloat16]

CPU time of one thread; the least of the repetitions, whose order is interleaved.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import thunder

REPETITIONS = 9
SECONDS = 0.05  # of one repetition, at least


class Elementwise(nn.Module):
    """GELU, tanh and LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1024))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the norm of gelu(w x) + tanh(x)."""
        return F.layer_norm(F.gelu(x * self.weight) + x.tanh(), (1024,))


class GatedMLP(nn.Module):
    """The feed-forward part of a Llama."""

    def __init__(self, width: int = 512, hidden: int = 1376) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return D (silu(G x) * U x)."""
        result: torch.Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return result


def convolutions() -> nn.Module:
    """Return three convolutions, each with BatchNorm and ReLU, in evaluation mode."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (16, 32, 32):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers).eval()


def litgpt(layers: int = 4) -> nn.Module:
    """Return a small Llama of the package litgpt."""
    from litgpt import GPT, Config

    sizes = {"block_size": 256, "vocab_size": 320, "padded_vocab_size": 320, "n_layer": layers, "n_head": 8}
    parts = {"norm_class_name": "RMSNorm", "mlp_class_name": "LLaMAMLP", "intermediate_size": 1376}
    options = {"rotary_percentage": 1.0, "bias": False, "parallel_residual": False, "n_embd": 512}
    model: nn.Module = GPT(Config(name="small", **sizes, **parts, **options))
    return model


WORKLOADS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "elementwise": (Elementwise, lambda: torch.randn(512, 1024)),
    "mlp": (GatedMLP, lambda: torch.randn(512, 512)),
    "litgpt": (litgpt, lambda: torch.randint(320, (2, 256))),
    "convolutions": (convolutions, lambda: torch.randn(4, 3, 64, 64)),
}


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """Return the seconds of a call, or of a call and its backward, by the way of running it."""
    build, make_input = WORKLOADS[arguments.workload]
    dtype = torch.bfloat16 if arguments.bfloat16 else torch.float32
    torch.manual_seed(0)
    model, x = build().to(dtype), make_input()
    x = x.to(dtype) if x.is_floating_point() else x
    ways: dict[str, Any] = {"eager": model}
    for mode in ("pointwise", "full"):
        ways[mode] = thunder.jit(model, executors=["inductor"], inductor_mode=mode)
    ways["torch.compile"] = torch.compile(model)
    seed = torch.ones_like(model(x))

    def step(run: Any) -> None:
        with torch.set_grad_enabled(arguments.train):
            result = run(x)
        if arguments.train:
            torch.autograd.grad(result, list(model.parameters()), seed)

    for name, run in ways.items():
        before = sum(os.times()[:4])
        step(run)
        print(f"{name:14} first call {sum(os.times()[:4]) - before:6.2f} s")
    start = time.process_time()
    step(model)
    calls = max(1, int(SECONDS / (time.process_time() - start + 1e-6)))
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(REPETITIONS):
        for name, run in ways.items():
            start = time.process_time()
            for _ in range(calls):
                step(run)
            seconds[name].append((time.process_time() - start) / calls)
    return {name: min(each) for name, each in seconds.items()}


def main() -> None:
    """Print a line for each way of running a workload."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("train", nargs="?", choices=["train"])
    parser.add_argument("--bfloat16", action="store_true")
    torch.set_num_threads(1)
    seconds = measure(parser.parse_args())
    for name, value in seconds.items():
        print(f"{name:14} {value * 1e3:9.3f} ms  {value / seconds['eager']:.3f} of eager")


if __name__ == "__main__":
    main()
