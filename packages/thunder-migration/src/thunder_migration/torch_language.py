"""Types in annotations of decompositions, and functions of torch that become operators."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

import torch
import torch.utils.checkpoint

from thunder.core import devices, dtypes
from thunder.core.langctxs import TORCH
from thunder.core.proxies import NumberProxy, TensorProxy
from thunder.core.symbol import Symbol

__all__ = [
    "DeviceLike",
    "NumberLike",
    "TensorLike",
    "checkpoint",
    "dim",
    "dtypeLike",
    "is_cpu",
    "is_cuda",
    "register_function",
    "size",
    "stride",
    "torch_functions",
]

TensorLike = TensorProxy
NumberLike = Number | NumberProxy
DeviceLike = str | devices.Device | torch.device
dtypeLike = dtypes.dtype | torch.dtype

size = torch.Tensor.size
dim = torch.Tensor.dim
stride = torch.Tensor.stride


def is_cpu(a: torch.Tensor) -> bool:
    """Return whether a tensor is in the memory of the host."""
    return a.is_cpu


def is_cuda(a: torch.Tensor) -> bool:
    """Return whether a tensor is on a GPU."""
    return a.is_cuda


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool = False, **kwargs: Any) -> Any:
    """Return `function(*args, **kwargs)`, whose intermediate values the backward computes again.

    The other keywords of `torch.utils.checkpoint.checkpoint` are accepted too.
    """
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=use_reentrant, **kwargs)


def register_function(torch_function: Callable[..., Any], symbol: Callable[..., Any]) -> None:
    """Let calls of a function in every traced program become calls of a symbol, or of a function of symbols.

    It holds for programs that are compiled from now on. An operator of a package is better registered with
    `replaces=`, which holds for programs that use the package's executor.
    """
    TORCH.functions[torch_function] = symbol


def torch_functions() -> dict[Any, Any]:
    """Return the symbols of the torch language by the torch function that becomes each."""
    return {fn: symbol for fn, symbol in TORCH.functions.items() if isinstance(symbol, Symbol)}
