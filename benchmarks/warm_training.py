"""Warm training step: CPU microseconds of forward, sum and backward of a stack of tiny linear layers.

    python benchmarks/warm_training.py [--layers 1 10 100] [--ways thunder compile] [--repeats N]

The layers are 4 wide, so what is measured is what stands around the arithmetic, in both directions. Gradients
are dropped between steps, as `zero_grad` does. Each size is measured in a process of its own; all ways of a
size are timed in turn in that process.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from warm import Call, compare

Forward = Callable[[torch.Tensor], torch.Tensor]


def step(model: torch.nn.Module, forward: Forward, x: torch.Tensor) -> Call:
    """One training step of `model`, called through `forward`."""
    parameters = list(model.parameters())

    def run() -> None:
        forward(x).sum().backward()
        for parameter in parameters:
            parameter.grad = None

    return run


def checked(model: torch.nn.Module, forward: Forward, x: torch.Tensor) -> Forward:
    """`forward`, once its gradients have turned out to be those of `model`."""
    expected = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    actual = torch.autograd.grad(forward(x).sum(), list(model.parameters()))
    torch.testing.assert_close(actual, expected)
    return forward


def eager_calls(model: torch.nn.Module, x: torch.Tensor) -> dict[str, Call]:
    """The model itself."""
    return {"eager": step(model, model, x)}


def thunder_calls(model: torch.nn.Module, x: torch.Tensor) -> dict[str, Call]:
    """thunder, every fact guarded, and with a frozen model."""
    # Imported here, not above: a run without this way needs no thunder.
    import thunder

    guarded, frozen = thunder.jit(model), thunder.jit(model, frozen=True)
    return {
        "thunder": step(model, checked(model, guarded, x), x),
        "thunder, frozen": step(model, checked(model, frozen, x), x),
    }


def compile_calls(model: torch.nn.Module, x: torch.Tensor) -> dict[str, Call]:
    """torch.compile with its default backend."""
    return {"torch.compile": step(model, checked(model, torch.compile(model), x), x)}


WAYS = {"eager": eager_calls, "thunder": thunder_calls, "compile": compile_calls}

if __name__ == "__main__":
    compare(__doc__, __file__, WAYS, base="eager")
