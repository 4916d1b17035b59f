"""The error of a second derivative that a program declares that there is none of."""

from __future__ import annotations

from typing import Any

import torch

from thunder.ir.gradient_declarations import JointRule
from thunder.ir.proxies import TensorProxy
from thunder.ir.registered_operators import declared_symbol
from thunder.ir.requires_grad import any_requires_grad
from thunder.ir.symbol import Symbol
from thunder.ops import prims
from thunder.ops.prims.gradient import get_grad, put_grad, raise_error

TWICE = "trying to differentiate twice a function that was marked with @once_differentiable"


def _once_differentiable(a: TensorProxy, *cotangents: TensorProxy) -> Any:
    out = prims.shallow_copy(a)
    if torch.is_grad_enabled() and any_requires_grad(cotangents):
        out.requires_grad = True
    return out


def _gradient_of_once(a: TensorProxy, *cotangents: TensorProxy) -> Any:
    out = once_differentiable(a, *cotangents)
    for c in cotangents:
        if c.requires_grad:
            put_grad(c, raise_error(c, get_grad(out), RuntimeError, (TWICE,)))
    return out


#: its first argument, computed from the others; their gradients are torch's error of ``once_differentiable``
once_differentiable = declared_symbol(
    Symbol(
        name="once_differentiable",
        id="autograd_function.once_differentiable",
        meta=_once_differentiable,
        is_prim=False,
        gradient=JointRule(_gradient_of_once),
    )
)
