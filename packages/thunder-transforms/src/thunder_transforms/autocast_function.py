"""Autocast as a function of functions: `autocast(f, torch.bfloat16)`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from thunder.core.dtypes import dtype as Dtype
from thunder.core.dtypes import to_torch_dtype
from thunder.core.errors import InvalidArgument

__all__ = ["autocast"]

P = ParamSpec("P")
R = TypeVar("R")

_DTYPES = (torch.bfloat16, torch.float16)


def autocast(func: Callable[P, R], dtype: torch.dtype | Dtype) -> Callable[P, R]:
    """Return a function that computes under autocast to `dtype`.

    The rule is torch's own: each operator gets the casts that it has under `torch.autocast`, on the CPU and,
    where there is one, on CUDA. So results and gradients are those of `func` within these contexts. If `func`
    is a compiled function or module, its program is compiled with the casts, which are statements of its
    trace; calls of `func` itself keep using the program without them. The function can be passed to
    `thunder.jit`, too.

    Raises InvalidArgument for a dtype other than bfloat16 and float16, and for what cannot be called.
    """
    if not callable(func):
        raise InvalidArgument(f"autocast received {type(func).__name__}, which cannot be called")
    target: Any = to_torch_dtype(dtype) if isinstance(dtype, Dtype) else dtype
    if target not in _DTYPES:
        raise InvalidArgument(f"autocast to {dtype!r}", hint="Pass torch.bfloat16 or torch.float16.")
    with_cuda = torch.cuda.is_available()

    def under_autocast(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch.autocast("cpu", dtype=target), torch.autocast("cuda", dtype=target, enabled=with_cuda):
            return func(*args, **kwargs)

    if isinstance(func, torch.nn.Module):
        return under_autocast
    return functools.wraps(func)(under_autocast)
