"""Bisections that gloo processes do together."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

import thunder
from distributed.launching import case
from distributed.small_models import batches, part, words
from thunder.distributed import fsdp
from thunder.extend import OperatorExecutor
from thunder_bisect.bisection import bisect


def _gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    y = torch.nn.functional.gelu(x, approximate=approximate)
    return y * 1.25 if dist.get_rank() == 1 else y


@case
def bisected_together() -> dict[str, Any]:
    """Return the reports of a right program, and of one with a kernel that is wrong in one process."""
    acme = OperatorExecutor("acme")
    symbol = acme.register_operator("gelu", like=thunder.torch.gelu, fn=_gelu)
    acme.register_implementation("torch.nn.functional.gelu", symbol)
    args = part(batches(1, 3)[0], dist.get_rank())
    right = bisect(thunder.jit(words(), transforms=[fsdp()]), args)
    wrong = bisect(thunder.jit(words(), transforms=[fsdp()], executors=[acme]), args, backward=False)
    return {
        "right": str(right),
        "wrong": str(wrong),
        "findings": [(f.executor, f.ranks, f.decisive) for f in wrong.findings],
    }
