"""Shapes that a program makes of tuples with symbolic sizes, which ``torch.Size`` does not take.

x.shape[:1] + (1, n // 2)   →   a SizeTuple, where n is a symbolic size
torch.Size((n, 4))          →   the same
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import torch

from thunder.ir.symbolic_sizes import has_symbols, shape_of

__all__ = ["shape_with_symbols"]


def _sum(a: Any, b: Any) -> Any:
    """Return the sum of two tuples, one of which is a shape of numbers; other classes add themselves."""
    is_of_shape = torch.Size in (type(a), type(b))
    if not (is_of_shape and isinstance(a, tuple) and isinstance(b, tuple)):
        return None
    return shape_of((*a, *b)) if has_symbols(a) or has_symbols(b) else None


def _shape(sizes: Any = ()) -> Any:
    return shape_of(tuple(sizes)) if isinstance(sizes, tuple | list) and has_symbols(sizes) else None


_RULES: Final[dict[int, Callable[..., Any]]] = {
    id(operator.add): _sum,
    id(operator.iadd): _sum,
    id(torch.Size.__add__): _sum,
    id(torch.Size.__radd__): lambda b, a: _sum(a, b),
    id(torch.Size): _shape,
}


def shape_with_symbols(fn: Any, args: tuple[Any, ...]) -> Any:
    """Return the shape with symbols that a sum of tuples, or ``torch.Size``, makes; None for others."""
    rule = _RULES.get(id(fn))
    return rule(*args) if rule is not None and len(args) == (1 if fn is torch.Size else 2) else None
