"""Shapes and sums that a program makes of tuples and lists with numbers of the trace.

x.shape[:1] + (1, n // 2)   →   a SizeTuple, where n is a symbolic size: ``torch.Size`` does not take it
torch.Size((n, 4))          →   the same
sum([1 / n, 0.1])           →   sum((1 / n, 0.1), 0), rounded as Python's
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import torch

from thunder.ir.number_proxies import NumberProxy
from thunder.ir.symbolic_floats import total
from thunder.ir.symbolic_sizes import has_symbols, shape_of

__all__ = ["made_of_numbers"]


def _sum(a: Any, b: Any) -> Any:
    """Return the sum of two tuples, one of which is a shape of numbers; other classes add themselves."""
    is_of_shape = torch.Size in (type(a), type(b))
    if not (is_of_shape and isinstance(a, tuple) and isinstance(b, tuple)):
        return None
    return shape_of((*a, *b)) if has_symbols(a) or has_symbols(b) else None


def _shape(sizes: Any = ()) -> Any:
    return shape_of(tuple(sizes)) if isinstance(sizes, tuple | list) and has_symbols(sizes) else None


def _total(numbers: Any, start: Any) -> Any:
    operands = (start, *numbers)
    return total(operands) if any(isinstance(x, NumberProxy) for x in operands) else None


_RULES: Final[dict[int, Callable[..., Any]]] = {
    id(operator.add): _sum,
    id(operator.iadd): _sum,
    id(torch.Size.__add__): _sum,
    id(torch.Size.__radd__): lambda b, a: _sum(a, b),
    id(torch.Size): _shape,
    id(sum): _total,
}


def made_of_numbers(fn: Any, args: tuple[Any, ...]) -> Any:
    """Return the shape or number that a native function makes of numbers of the trace, or None."""
    rule = _RULES.get(id(fn))
    return rule(*args) if rule is not None and len(args) == (1 if fn is torch.Size else 2) else None
