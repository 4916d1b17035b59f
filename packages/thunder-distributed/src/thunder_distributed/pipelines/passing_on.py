"""`pass_on`: a result of a stage, as another tensor of the same memory.

    t2 = view(h, (8, 4))
    t3 = pass_on(t2, h)
    return (t3,)

A returned view of an input is computed after the node of a program in torch's graph, where torch sees it as a
view. A stage is no node of torch's graph, and its backward starts from all that it returns. So a result is
passed on, which is a view of its first argument to everything that asks about memory, and no view to torch,
since it has a second argument.
"""

from __future__ import annotations

from typing import Any

import torch

from thunder import TensorProxy
from thunder.core.symbol import Symbol
from thunder.core.tags import OpTags

from ..collectives import ex

__all__ = ["pass_on"]


def _pass_on(a: torch.Tensor, other: Any) -> torch.Tensor:
    return a.detach()


pass_on: Symbol = ex.register_operator(
    "pass_on",
    meta=lambda a, other: TensorProxy(like=a),
    fn=_pass_on,
    tags=(OpTags.VIEW,),
    vjp=lambda c: {"a": c.g, "other": None},
)
