"""Programs and rules of the tests of rewriting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import thunder
from thunder.core.patterns import Rewrites, rewrite

F = torch.nn.functional


class HandWrittenRMSNorm(torch.nn.Module):
    """The normalisation of litgpt's models."""

    def __init__(self, size: int, dim: int = -1, eps: float = 1e-6, add_unit_offset: bool = False) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(size) + 0.5)
        self.eps, self.dim, self.add_unit_offset = eps, dim, add_unit_offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dtype = x.dtype
        x = x.float()
        norm_x = torch.mean(x * x, dim=self.dim, keepdim=True)
        x_normed = x * torch.rsqrt(norm_x + self.eps)
        weight = (1 + self.weight) if self.add_unit_offset else self.weight
        return (x_normed * weight.float()).to(dtype=dtype)


def rms_norm(x, weight, eps: float):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def rms_norm_in_float32(x, weight, eps: float):
    h = x.float()
    return (weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps))).to(x.dtype)


def by_torch(x, weight, eps):
    return F.rms_norm(x, x.shape[-1:], weight, eps)


RMS_NORM = rewrite(rms_norm, by_torch)


def compiled(fn: Any, *rules: Any, **options: Any) -> Any:
    """The compiled program with these rules alone."""
    return thunder.jit(fn, transforms=Rewrites(*rules), **options)


def applied(fn: Any) -> list[str]:
    """The names of the rules that were applied in the last call."""
    return [r.rule for r in thunder.explain(fn).notes if r.is_applied]


def refusals(fn: Any) -> list[str]:
    """The codes of the reasons for which matches of the last call were left."""
    return [r.refusal.code for r in thunder.explain(fn).notes if r.refusal is not None]


def symbols(fn: Any) -> list[str]:
    """The operators of the program that ran, in order."""
    return [
        b.sym.name for b in thunder.last_traces(fn)[-1].bound_symbols if not b.sym.name.startswith("python_")
    ]


def is_rewritten(pattern: Callable[..., Any], program: Callable[..., Any], *args: Any, **rule: Any) -> bool:
    """Whether a rule with this pattern applies to a program; its results are compared with eager's."""
    fn = compiled(program, rewrite(pattern, lambda *args: pattern(*args), name="planted", **rule))
    torch.testing.assert_close(fn(*args), program(*args))
    return "planted" in applied(fn)
