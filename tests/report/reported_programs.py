"""Programs that the tests of reports compile, also those in a browser."""

from __future__ import annotations

from typing import Any

import torch

import thunder
from thunder.core.pytree import tree_map
from thunder.extend import EagerStrides, FusionExecutor, OperatorExecutor, Refusal, row_of
from thunder_report.measurement import MeasureTransform

#: what ends a script, and opens an element, in HTML
MARKUP = '</script><img src=x onerror="window.attacked = true">'


class Block(torch.nn.Module):
    """A layer with a residual connection, whose line has markup in a text."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        label = '</script><img src=x onerror="window.attacked = true">'
        h = torch.sin(self.up(self.norm(x))) * len(label)
        h = torch.nn.functional.gelu(torch.cos(h) * 2)
        return x + self.down(h)


class Chains(FusionExecutor):
    """Runs chains of elementwise calls, one by one, as a region."""

    fusion_name = "chain"

    def compile_region(self, region: Any) -> Any:
        if len(region.bsyms) < 2:
            return Refusal("small", "a chain has at least two calls")
        strides = EagerStrides(region)

        def run(*tensors: torch.Tensor) -> list[torch.Tensor]:
            values = {p.name: x for p, x in zip(region.inputs, tensors, strict=True)}
            for call in region.bsyms:
                args = tree_map(lambda x: values.get(getattr(x, "name", None), x), call.args)
                values[call.output.name] = row_of(call.sym.id).eager(*args)
            return strides.apply([values[p.name] for p in region.outputs], tensors)

        return run


def chains() -> Chains:
    """Return a fusion executor that is not registered."""
    executor = Chains("chains_of_reports")
    for operator in ("torch.sin", "torch.cos", "torch.mul"):
        executor.register_supported(operator)
    return executor


def picky() -> OperatorExecutor:
    """Return an executor that refuses each linear layer, with a reason."""
    executor = OperatorExecutor("picky_of_reports")
    function = torch.nn.functional.linear
    linear = executor.register_operator("picky_linear", like=thunder.torch.linear, fn=function)

    def checker(input: Any, weight: Any, bias: Any = None) -> Any:
        return Refusal("width", f"takes widths that 1000 divides, not {weight.shape[0]} <b>here</b>")

    executor.register_implementation("torch.nn.functional.linear", linear, checker=checker)
    return executor


def trained(layers: int = 2, width: int = 32, measures: bool = True) -> Any:
    """Return a compiled model that was trained with several sizes of batches, and has inferred."""
    model = torch.nn.Sequential(*(Block(width) for _ in range(layers)))
    transforms = [MeasureTransform()] if measures else []
    compiled = thunder.jit(model, executors=[picky(), chains(), "torch"], transforms=transforms)
    for batch in (4, 4, 5, 5):
        compiled(torch.randn(batch, width)).sum().backward()
    with torch.no_grad():
        compiled(torch.randn(4, width))
    return compiled


def decide(x: torch.Tensor, n: int) -> torch.Tensor:
    """Ask a question about data, and depend on a number."""
    if x.sum() > 0:
        return x * n
    return x - n


def decided() -> Any:
    """Return a compiled function with several entries, because of numbers and because of data."""
    compiled = thunder.jit(decide)
    for n in (1, 1, 2):
        compiled(torch.ones(3), n)
    compiled(-torch.ones(3), 2)
    return compiled
