"""Sizes that the computation finds, see Note [Computed sizes].

n = mask.sum().item()        t0 = sum(mask); i0 = item(t0)
y = x[:n]               →    u0 = as_size(i0); check_decision(u0, 8, question="<=", answer=True)
                             y = x[:u0]
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from thunder.base.tags import OpTags
from thunder.ops.operator import NONDIFFERENTIABLE, Operator, register
from thunder.ops.prims.declaration import primitive

__all__ = ["as_size", "as_sizes"]


_FINDS = (OpTags.DONT_DCE, OpTags.COMPUTES_SIZE, OpTags.DONT_RECOMPUTE_IN_BACKWARD)


def _same(number: Any) -> Any:
    """The meta function of a number, which is bound with the size as its result."""
    return number


#: a number out of a tensor, as a size on which shapes depend
as_size = primitive(
    "as_size",
    _same,
    python_impl=operator.index,
    vjp=NONDIFFERENTIABLE,
    tags=_FINDS,
)


def _elements(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(tensor.flatten().tolist())


def _unbound(tensor: Any) -> Any:
    raise AssertionError("a call whose sizes the computation finds is bound")


#: the elements of a tensor of integers, in its order, as sizes
as_sizes = register(
    Operator(
        id="prims.as_sizes",
        eager=_elements,
        meta=_unbound,
        vjp=NONDIFFERENTIABLE,
        tags=frozenset(_FINDS),
        module="prims",
    ),
    meta=None,  # it would have to return the sizes of the statement
)
