"""Whether a function holds the only references to a tensor and to its memory."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import torch

__all__ = ["is_held_once"]


def is_held_once(args: tuple[Any, ...], position: int) -> bool:
    """Return whether only a local variable of the caller has an argument of a call, and its memory.

    ``args`` are the positional arguments of the function that asks, which was called with a local variable
    at that position. References of Python to the tensor are counted, torch's to the tensor, and those to its
    storage: of views, of nodes of torch's graph that are not released, of tensors that share the memory.
    """
    return _references(args[position]) == _expected()


def _references(tensor: torch.Tensor) -> tuple[int, ...]:
    storage = tensor.untyped_storage()
    return (
        sys.getrefcount(tensor),
        tensor._use_count(),  # type: ignore[attr-defined]
        sys.getrefcount(storage),
        torch._C._storage_Use_Count(storage._cdata),
    )


@cache
def _expected() -> tuple[int, ...]:
    """Return the counts of a tensor that a local variable has alone, by this interpreter and this torch."""

    def function_that_asks(*args: Any) -> tuple[int, ...]:
        return _of_argument(args, 0)

    # the modes of the first call are not those of others
    with torch._C.DisableTorchFunction(), torch.inference_mode(False):
        tensor = torch.empty(1, device="cpu")
        return function_that_asks(tensor)


def _of_argument(args: tuple[Any, ...], position: int) -> tuple[int, ...]:
    return _references(args[position])  # as many calls deep as where `is_held_once` counts
