"""Parts of `gate` with a fault, which more than one kind of faults has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from testing.example_executors import (
    gate_checker,
    gate_kernel,
)
from thunder import TensorProxy


def meta_by_autocast(x: Any, w: Any, alpha: float = 1.0) -> Any:
    """Return a proxy whose dtype is that of autocast."""
    return TensorProxy(like=x, dtype=torch.bfloat16 if torch.is_autocast_enabled("cpu") else x.dtype)


def checking(fn: Callable[..., Any]) -> Callable[[], dict[str, Any]]:
    """Return a change of `gate`: a checker that asks `fn` first."""
    return lambda: {"checker": lambda x, w, alpha: fn(x) and gate_checker(x, w, alpha)}


def memoised() -> Callable[..., Any]:
    """Return a function that computes `gate` once for each layout, whatever the values."""
    known: dict[Any, torch.Tensor] = {}

    def fn(x: Any, w: Any, alpha: float) -> Any:
        key = (tuple(x.shape), tuple(x.stride()), x.dtype, alpha)
        if key not in known:
            known[key] = gate_kernel(x, w, alpha)
        return known[key].clone()

    return fn
