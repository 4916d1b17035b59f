"""Compares eager, torch.compile and the executor `inductor` in both modes, in one process and one run.

    python benchmarks/fused_regions.py {elementwise,mlp,litgpt,convolutions} [train] [--bfloat16]

CPU time of one call, or of one call and its backward, as the median of batches in turn. The first call
includes compiling, with the caches on disk as they are (THUNDER_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR name
empty ones).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import thunder
from measure import command_line, interleaved, machine_facts, one_thread, print_table


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


def measure(workload: str, train: bool, dtype: torch.dtype, repeats: int) -> list[tuple[str, ...]]:
    """Return a row for each way of running a workload: its time, the ratio to eager, the first call."""
    build, make_input = WORKLOADS[workload]
    torch.manual_seed(0)
    model, x = build().to(dtype), make_input()
    x = x.to(dtype) if x.is_floating_point() else x
    runs: dict[str, Any] = {"eager": model, "torch.compile": torch.compile(model)}
    for mode in ("pointwise", "full"):
        runs[f'"{mode}"'] = thunder.jit(model, executors=["inductor"], inductor_mode=mode)
    seed = torch.ones_like(model(x))
    parameters = list(model.parameters())
    ways: dict[str, Callable[[], object]] = {
        name: partial(_step, run, x, parameters, seed, train) for name, run in runs.items()
    }
    first = {name: _cpu_seconds(way) for name, way in ways.items()}
    times = interleaved(ways, repeats, 50_000)
    return [
        (name, f"{time / 1e3:.3f}", f"{time / times['eager']:.2f}", f"{first[name]:.2f}")
        for name, time in times.items()
    ]


def _step(
    run: Any, x: torch.Tensor, parameters: Sequence[torch.Tensor], seed: torch.Tensor, train: bool
) -> None:
    """Call a model; in training also compute the gradients of its parameters."""
    with torch.set_grad_enabled(train):
        result = run(x)
    if train:
        torch.autograd.grad(result, parameters, seed)


def _cpu_seconds(run: Callable[[], object]) -> float:
    """Return the CPU time of a call in this process and in those that it starts and waits for."""
    before = sum(os.times()[:4])
    run()
    return sum(os.times()[:4]) - before


def main() -> None:
    """Print a table of the ways of running a workload."""
    parser = command_line(__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("train", nargs="?", choices=["train"])
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    one_thread()
    dtype = torch.bfloat16 if arguments.bfloat16 else torch.float32
    rows = measure(arguments.workload, arguments.train is not None, dtype, arguments.repeats)
    print(machine_facts(), end="\n\n")
    print_table(("way", "ms", "÷ eager", "first call, s"), rows)


if __name__ == "__main__":
    main()
