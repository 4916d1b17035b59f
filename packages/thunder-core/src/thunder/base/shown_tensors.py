"""Tensors that are shown with the name of a node: ``tensor(2., grad_fn=<MeanBackward0>)``."""

from __future__ import annotations

import functools
from typing import Any

import torch

__all__ = ["LEAVES", "as_it_is_now", "with_node"]

#: the classes of leaves that are shown, by name
LEAVES = {cls.__name__: cls for cls in (torch.Tensor, torch.nn.Parameter)}


def with_node(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Return the tensor with a node of this name, or as a leaf of this class."""
    if name in LEAVES:
        leaf = tensor.detach()
        return leaf.requires_grad_() if LEAVES[name] is torch.Tensor else torch.nn.Parameter(leaf)
    with torch.enable_grad():
        result: torch.Tensor = _function_of_node(name).apply(tensor.detach().requires_grad_())
    return result


def as_it_is_now(value: Any) -> Any:
    """Return a value with copies of its tensors, which have the same text whatever is written later."""
    if isinstance(value, torch.Tensor):
        return _copied(value)
    if type(value) is dict:
        return {k: as_it_is_now(v) for k, v in value.items()}
    return type(value)(map(as_it_is_now, value)) if type(value) in (list, tuple) else value


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    copy = tensor.detach().clone()
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(copy, requires_grad=tensor.requires_grad)
    if tensor.requires_grad and tensor.grad_fn is not None:
        return with_node(copy, type(tensor.grad_fn).__name__)
    return copy.requires_grad_() if tensor.requires_grad else copy


@functools.cache
def _function_of_node(name: str) -> Any:
    forward = staticmethod(lambda ctx, x: x.view_as(x))
    function: Any = type(name, (torch.autograd.Function,), {"forward": forward})
    function._backward_cls.__name__ = name
    return function
