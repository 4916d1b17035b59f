"""Executors that are right in other ways than those of which the faulty ones are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import thunder
from testing.example_executors import (
    Runs,
    Trial,
    gate_executor,
    gate_meta,
    name,
    norm_executor,
    tensor,
)
from thunder.extend import OperatorExecutor, Refusal
from thunder.ir.symbol import BoundSymbol


def blocked_norm(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    """A norm whose sum of squares is added in float32, block by block, and whose result is rounded once."""
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    total = torch.zeros((*x.shape[:-1], 1), dtype=wide)
    for block in x.split(128, -1):
        total += block.to(wide).square().sum(-1, keepdim=True)
    scale = torch.rsqrt(total / max(1, x.shape[-1]) + eps)
    out = (x.to(wide) * scale * w.to(wide)).to(x.dtype)
    return torch.empty_like(x).copy_(out) if x.shape[-1] else torch.empty_like(x)


def norm_in_blocks() -> Trial:
    """An executor of that norm."""
    return norm_executor(blocked_norm)


def numpy_gate(x: torch.Tensor, w: torch.Tensor, alpha: float) -> torch.Tensor:
    """`gate` in numpy, by another formula."""
    import numpy

    a, b = x.detach().numpy(), w.detach().numpy()
    with numpy.errstate(all="ignore"):
        half = numpy.tanh(b * numpy.asarray(alpha * 0.5, dtype=b.dtype)) * 0.5 + 0.5
    return torch.empty_like(x).copy_(torch.from_numpy(numpy.asarray(a * half, dtype=a.dtype)))


def in_numpy() -> Trial:
    """An executor whose kernel is a function of numpy, which has no bfloat16."""

    def checker(x: Any, w: Any, alpha: float) -> bool | Refusal:
        if x.dtype not in (thunder.float32, thunder.float64) or w.dtype is not x.dtype:
            return Refusal("dtype", "numpy computes in float32 and float64", found=x.dtype)
        return True if tuple(x.shape) == tuple(w.shape) else Refusal("shape", "the arguments have one shape")

    return gate_executor(fn=numpy_gate, checker=checker)


def swapped_arguments() -> Trial:
    """An executor that replaces a function of the user's, with a number that it must be given."""
    executor = OperatorExecutor(name())

    def scaled(x: torch.Tensor, w: torch.Tensor, alpha: float) -> torch.Tensor:
        return x * alpha + w

    symbol = executor.register_operator("scaled", meta=gate_meta, fn=scaled, replaces=scaled)
    return Trial(executor, {"samples": {symbol: [((tensor(3, 4), tensor(3, 4, seed=1), 2.0), {})]}})


def fused_primitives() -> Trial:
    """A fusion executor of two operators that have no path in torch, so that programs name them."""
    executor = Runs(name())
    for operator_id in ("prims.exp", "prims.abs"):
        executor.register_supported(operator_id)
    return Trial(executor, {})


class Precise(Runs):
    """Computes a region of low precision in float32, and rounds its results once."""

    def step(self, bsym: BoundSymbol, values: dict[str, Any]) -> torch.Tensor:
        """The result of one call, in float32 if its tensors are of low precision."""
        wide = {k: v.float() if v.dtype is torch.bfloat16 else v for k, v in values.items()}
        return super().step(bsym, wide)

    def compiled(self, bsyms: Sequence[BoundSymbol], inputs: list[str], outputs: list[str]) -> Any:
        """What runs a region."""
        run = super().compiled(bsyms, inputs, outputs)
        types = {p.name: p.dtype for b in bsyms for p in b.flat_proxy_outs}

        def rounded(*args: torch.Tensor) -> list[torch.Tensor]:
            results = run(*args)
            return [
                x.to(thunder.core.dtypes.to_torch_dtype(types[n]))
                for x, n in zip(results, outputs, strict=True)
            ]

        return rounded


class Long(Runs):
    """Fuses runs of two calls or more alone."""

    def runs(self, statements: Sequence[BoundSymbol]) -> Sequence[tuple[bool, int, int]]:
        """Whose, from and to, of each run of statements."""
        return [(mine and end - start > 1, start, end) for mine, start, end in super().runs(statements)]
