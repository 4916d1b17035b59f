"""Parts of statements that need no state of the kernel that is written."""

from __future__ import annotations

import math

import torch

from .elementwise import held
from .indices import Expr
from .nodes import Reduction
from .reductions import absent_number

__all__ = ["absent", "accumulated", "condition", "in_parentheses", "is_simple", "unwrapped"]


def condition(bounds: tuple[Expr, int, int]) -> str:
    """Return the test that an index is in a piece."""
    index, low, high = bounds
    text = in_parentheses(index)
    tests = [f"({text} >= {low})"] if index.bounds[0] < low else []
    tests += [f"({text} < {high})"] if index.bounds[1] >= high else []
    return " & ".join(tests)


def in_parentheses(index: Expr) -> str:
    return index.text() if len(index.terms) == 1 and not index.constant else f"({index.text()})"


def accumulated(reduction: Reduction) -> torch.dtype:
    """Return the dtype in which a reduction accumulates."""
    dtype = held(reduction.arg.dtype)
    return torch.int32 if dtype is torch.bool else dtype


def absent(reduction: Reduction) -> str:
    """Return the number that changes nothing in a reduction."""
    number = absent_number(reduction.kind, accumulated(reduction))
    return str(number) if math.isfinite(number) else f'float("{number}")'


def is_simple(text: str) -> bool:
    """Return whether an expression is a name or a number, which needs no statement."""
    return text.isidentifier() or text.replace(".", "", 1).replace("-", "", 1).isdigit()


def unwrapped(text: str) -> str:
    """Return an expression without parentheses around the whole."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for place, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and place < len(text) - 1:
            return text
    return text[1:-1]
